"""OpenAI's library for Python asks a router: strict objects, and the decision where the library keeps what it does not
know."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai.types import Completion
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.daemon import Daemon

ROUTER = "user.router"
POLICY: dict[str, Any] = {
    "version": "1",
    "recipe": "collection.router",
    "components": ["a", "b"],
    "routing": {
        "candidates": ["a", "b"],
        "default_model": "a",
        "rules": [{"id": "red", "match": {"metadata": {"key": "team", "equals": "red"}}, "route_to": "b"}],
    },
}


@pytest.fixture(scope="module")
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    assert daemon.post("/v1/models/register", {"model_name": ROUTER, **POLICY}).status == 200
    with openai.OpenAI(base_url=f"{daemon.url}/v1", api_key="none needed") as one:
        yield one


def decision(answer: Any) -> Any:
    return answer.model_extra["x_lemonade_route"]


def test_chat(client: openai.OpenAI) -> None:
    raw = client.chat.completions.with_raw_response.create(
        model=ROUTER,
        messages=[{"role": "user", "content": "hi"}],
        metadata={"team": "red"},
        extra_body={"route_trace": True},
    )
    assert raw.headers["x-lemonade-route"] == "red"
    answer = raw.parse()
    ChatCompletion.model_validate(answer.model_dump(), strict=True)
    assert answer.model == decision(answer)["route_to"] == "b"
    assert decision(answer)["trace"] == [{"condition": "metadata", "result": True}]


def test_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model=ROUTER, messages=[{"role": "user", "content": "hi"}], stream=True
    ) as stream:
        chunks = list(stream)
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
        assert chunk.model == "a"
    assert decision(chunks[0])["default_used"] is True
    assert not any("x_lemonade_route" in (chunk.model_extra or {}) for chunk in chunks[1:])


def test_completions_and_responses(client: openai.OpenAI) -> None:
    text = client.completions.create(model=ROUTER, prompt="hi")
    Completion.model_validate(text.model_dump(), strict=True)
    assert decision(text)["matched_rule"] == ""
    answer = client.responses.create(model=ROUTER, input="hi", metadata={"team": "red"})
    assert decision(answer)["route_to"] == answer.model == "b"
    with client.responses.create(model=ROUTER, input="hi", stream=True) as stream:
        events = list(stream)
    assert events[0].type == "response.created"
    assert decision(events[0])["route_to"] == "a"
    assert events[-1].type == "response.completed"
