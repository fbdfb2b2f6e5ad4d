"""OpenAI's library for JavaScript against a daemon: one run of `node/talk.mjs`, looked at from several sides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.clients.environment import run_node
from tests.daemon import Daemon


@pytest.fixture(scope="module")
def talk(daemon: Daemon) -> dict[str, Any]:
    """What the library saw."""
    seen: dict[str, Any] = run_node("talk.mjs", f"{daemon.url}/v1")
    return seen


def test_chat(talk: dict[str, Any]) -> None:
    answer = talk["chat"]
    assert answer["model"] == "a"
    assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."
    assert answer["usage"]["completion_tokens"] == 6


def test_stream_with_usage(talk: dict[str, Any]) -> None:
    *chunks, last = talk["stream"]
    text = "".join(choice["delta"].get("content") or "" for chunk in chunks for choice in chunk["choices"])
    assert text == "The capital of France is Paris."
    assert chunks[-1]["choices"][0]["finish_reason"] == "stop"
    assert last["choices"] == []
    assert last["usage"]["completion_tokens"] == 6


def test_tools(talk: dict[str, Any]) -> None:
    (choice,) = talk["tools"]["choices"]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"place":"Paris"}'


def test_an_abort_reaches_the_engine(talk: dict[str, Any]) -> None:
    assert talk["abort"] == {"seen": 3, "idle": True}


def test_models(talk: dict[str, Any]) -> None:
    assert {"a", "b", "c"} <= set(talk["models"])


@pytest.mark.parametrize(
    ("what", "kind", "code"),
    [
        ("missing", "NotFoundError", "model_not_found"),
        ("wrong", "BadRequestError", "invalid_argument"),
        ("long", "BadRequestError", "context_length_exceeded"),
        ("broken", "APIError", "backend_unavailable"),
    ],
)
def test_errors_have_the_types_of_the_library(talk: dict[str, Any], what: str, kind: str, code: str) -> None:
    assert talk["errors"][what] is not None
    assert (talk["errors"][what]["type"], talk["errors"][what]["code"]) == (kind, code)
