"""The Vercel AI SDK against a daemon: one run of `node/ai.mjs`, looked at from several sides.

Its two ways in: `@ai-sdk/openai-compatible`, which uses chats, and `@ai-sdk/openai`, which uses responses. It checks
every event against a schema.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.environment import run_node
from tests.clients.meaning import close
from tests.daemon import Daemon

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def seen(world: Daemon) -> dict[str, Any]:
    found: dict[str, Any] = run_node("ai.mjs", f"{world.url}/v1")
    assert [one["failed"] for one in found.values() if isinstance(one, dict) and "failed" in one] == []
    return found


@pytest.mark.parametrize("way", ["stream", "responsesStream", "openaiChatStream"])
def test_a_stream_is_the_same_as_the_whole_answer(seen: dict[str, Any], way: str) -> None:
    stream = seen[way]
    assert stream["errors"] == []
    assert stream["text"] == seen["chat"] != ""
    assert {"text-start", "text-delta", "text-end", "finish"} <= set(stream["kinds"])
    assert (stream["finish"], stream["usage"]["outputTokens"]) == ("length", 40)


@pytest.mark.parametrize("way", ["tools", "responsesTools"])
def test_a_tool_is_called_and_its_result_is_answered(seen: dict[str, Any], way: str) -> None:
    assert seen[way]["calls"][0]["place"] in ("Paris", "Rome")
    assert seen[way]["finishes"][0] == "tool-calls"
    assert seen[way]["text"]


@pytest.mark.parametrize("way", ["object", "responsesObject"])
def test_an_object_follows_its_schema(seen: dict[str, Any], way: str) -> None:
    assert seen[way] in ({"place": "Paris"}, {"place": "Rome"})


@pytest.mark.parametrize("way", ["embeddings", "openaiEmbeddings"])
def test_embeddings_mean_something(seen: dict[str, Any], way: str) -> None:
    assert close(seen[way])


def test_an_error_has_its_status_and_its_reason(seen: dict[str, Any]) -> None:
    assert seen["missing"]["status"] == 404
    assert "'none' was not found" in seen["missing"]["message"]
