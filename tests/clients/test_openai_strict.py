"""Answers of real weights, held against OpenAI's own types without any leniency: nothing missing, nothing converted."""

from __future__ import annotations

from typing import Any

import pytest
from openai.types import Completion, CreateEmbeddingResponse
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.daemon import Daemon, events

pytestmark = [pytest.mark.real, pytest.mark.slow]

TEXT = "What is the capital of France? Answer in one sentence."
MESSAGES = [{"role": "user", "content": TEXT}]
PLACE = {
    "type": "object",
    "properties": {"place": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["place"],
    "additionalProperties": False,
}
FUNCTION = {"name": "weather", "description": "The weather in a place", "parameters": PLACE}
SCHEMA = {"name": "place", "strict": True, "schema": PLACE}

RESPONSES: dict[str, dict[str, Any]] = {
    "text": {"max_output_tokens": 40},
    "cut off": {"max_output_tokens": 3},
    "with fields": {"max_output_tokens": 2, "instructions": "Be brief.", "metadata": {"a": "b"}, "store": True},
    "called": {"tools": [{"type": "function", **FUNCTION}], "tool_choice": "required"},
    "named": {
        "tools": [{"type": "function", **FUNCTION}],
        "tool_choice": {"type": "function", "name": "weather"},
        "parallel_tool_calls": False,
    },
    "schema": {"text": {"format": {"type": "json_schema", **SCHEMA}}},
}
CHATS: dict[str, dict[str, Any]] = {
    "text": {"stream_options": {"include_usage": True}},
    "several": {"n": 3, "temperature": 1.0, "seed": 5},
    "log probabilities": {"logprobs": True, "top_logprobs": 2, "max_tokens": 3},
    "called": {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"},
    "named": {
        "tools": [{"type": "function", "function": FUNCTION}],
        "tool_choice": {"type": "function", "function": {"name": "weather"}},
        "parallel_tool_calls": False,
    },
    "schema": {"response_format": {"type": "json_schema", "json_schema": SCHEMA}},
}


def asked(world: Daemon, path: str, body: dict[str, Any]) -> bytes:
    answer = world.post(f"/v1/{path}", {"model": "smol", "temperature": 0, **body})
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.parametrize("case", RESPONSES)
def test_responses(world: Daemon, case: str) -> None:
    body = {"input": TEXT, "max_output_tokens": 60, **RESPONSES[case]}
    whole = Response.model_validate_json(asked(world, "responses", body), strict=True)
    *told, done = events(asked(world, "responses", {**body, "stream": True}))
    assert done == "[DONE]"
    kind: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
    stream = [kind.validate_json(one, strict=True) for one in told]
    assert [one.sequence_number for one in stream] == list(range(len(stream)))
    last = stream[-1].response
    assert stream[-1].type == f"response.{last.status}"
    ended = [one.item for one in stream if one.type == "response.output_item.done"]
    # The numbers of the calls are made up anew for each answer.
    assert [item.model_dump() for item in ended] == [item.model_dump() for item in last.output]
    for response in (whole, last):
        expected = "incomplete" if case in ("cut off", "with fields") else "completed"
        assert {response.status, response.output[-1].status} == {expected}  # type: ignore[union-attr]
        assert (response.store, response.background, response.previous_response_id) == (False, False, None)
        assert response.parallel_tool_calls is (case != "named")
    assert whole.output_text == last.output_text


@pytest.mark.parametrize("case", CHATS)
def test_chats(world: Daemon, case: str) -> None:
    body = {"messages": MESSAGES, "max_tokens": 40, **CHATS[case]}
    answer = asked(world, "chat/completions", {key: value for key, value in body.items() if key != "stream_options"})
    whole = ChatCompletion.model_validate_json(answer, strict=True)
    assert len(whole.choices) == body.get("n", 1)
    *told, done = events(asked(world, "chat/completions", {**body, "stream": True}))
    assert done == "[DONE]"
    chunks = [ChatCompletionChunk.model_validate_json(one, strict=True) for one in told]
    assert {chunk.id for chunk in chunks} == {chunks[0].id}
    assert (chunks[-1].usage is not None) is ("stream_options" in body)
    for choice in whole.choices:
        pieces = [piece for chunk in chunks for piece in chunk.choices if piece.index == choice.index]
        assert [piece.finish_reason for piece in pieces if piece.finish_reason] == [choice.finish_reason]
        assert "".join(piece.delta.content or "" for piece in pieces) == (choice.message.content or "")
        calls = [call for piece in pieces for call in piece.delta.tool_calls or ()]
        arguments = "".join(call.function.arguments or "" for call in calls if call.function)
        assert arguments == "".join(call.function.arguments for call in choice.message.tool_calls or ())  # type: ignore[union-attr]


def test_completions_and_vectors(world: Daemon) -> None:
    body = {"prompt": "The capital of France is", "max_tokens": 5, "logprobs": 2}
    Completion.model_validate_json(asked(world, "completions", body), strict=True)
    answer = world.post("/v1/embeddings", {"model": "vectors", "input": ["a", "b"]})
    CreateEmbeddingResponse.model_validate_json(answer.body, strict=True)
