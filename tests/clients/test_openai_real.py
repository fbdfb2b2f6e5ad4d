"""OpenAI's two libraries on real weights: each does the same things once, and sees the same."""

from __future__ import annotations

import json
from typing import Any, Literal

import openai
import pytest
from openai.types.chat import ChatCompletionChunk, ChatCompletionMessageParam
from pydantic import BaseModel

from tests.clients.environment import run_node
from tests.clients.meaning import TEXTS, close
from tests.daemon import Daemon

pytestmark = [pytest.mark.real, pytest.mark.slow]


class Place(BaseModel):
    place: Literal["Paris", "Rome"]


# Of an answer that is cut off the library for Python says that there is none, when it streams responses.
TEXT = "What is the capital of France? Answer in one sentence."
QUESTION: ChatCompletionMessageParam = {"role": "user", "content": TEXT}
ASK: dict[str, Any] = {"model": "smol", "temperature": 0, "max_tokens": 60}
PARAMETERS = {
    "type": "object",
    "properties": {"place": {"type": "string", "enum": ["Paris", "Rome"]}},
    "required": ["place"],
    "additionalProperties": False,
}
TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "description": "The weather in a place", "parameters": PARAMETERS},
}


def run_python(url: str) -> dict[str, Any]:
    """What `node/real.mjs` does, in Python."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none needed", max_retries=0) as client:
        parts = (_chat, _stream, _tools, _streamed_tool, _schema, _embeddings, _responses)
        names = ("chat", "stream", "tools", "streamedTool", "schema", "embeddings", "responses")
        return {name: part(client) for name, part in zip(names, parts, strict=True)}


def _chat(client: openai.OpenAI) -> Any:
    return client.chat.completions.create(messages=[QUESTION], **ASK).choices[0].message.content


def _stream(client: openai.OpenAI) -> Any:
    with client.chat.completions.create(
        messages=[QUESTION], stream=True, stream_options={"include_usage": True}, **ASK
    ) as stream:
        chunks = list(stream)
    for chunk in chunks:
        # The library builds its objects without checking them.
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    return {"text": text, "pieces": len(chunks), "tokens": chunks[-1].usage.completion_tokens}


def _tools(client: openai.OpenAI) -> Any:
    asked = client.chat.completions.create(messages=[QUESTION], tools=[TOOL], tool_choice="required", **ASK).choices[0]
    call: Any = asked.message.tool_calls[0]
    messages: Any = [
        QUESTION,
        asked.message.to_dict(),
        {"role": "tool", "tool_call_id": call.id, "content": "sunny"},
    ]
    answer = client.chat.completions.create(messages=messages, tools=[TOOL], **ASK)
    return {
        "name": call.function.name,
        "arguments": json.loads(call.function.arguments),
        "finish": asked.finish_reason,
        "answer": answer.choices[0].message.content,
    }


def _streamed_tool(client: openai.OpenAI) -> Any:
    with client.chat.completions.stream(messages=[QUESTION], tools=[TOOL], tool_choice="required", **ASK) as stream:
        calls: Any = stream.get_final_completion().choices[0].message.tool_calls
    return {"name": calls[0].function.name, "arguments": json.loads(calls[0].function.arguments)}


def _schema(client: openai.OpenAI) -> Any:
    parsed = client.chat.completions.parse(messages=[QUESTION], response_format=Place, **ASK).choices[0].message.parsed
    assert parsed is not None
    return parsed.model_dump()


def _embeddings(client: openai.OpenAI) -> Any:
    return [one.embedding for one in client.embeddings.create(model="vectors", input=list(TEXTS)).data]


def _responses(client: openai.OpenAI) -> Any:
    text, kinds = "", []
    with client.responses.stream(model="smol", input=TEXT, temperature=0, max_output_tokens=60) as stream:
        for event in stream:
            kinds.append(event.type)
            if event.type == "response.output_text.delta":
                text += event.delta
        last = stream.get_final_response()
    return {"text": text, "kinds": kinds, "last": last.output_text}


@pytest.fixture(scope="module", params=["python", "node"])
def seen(request: pytest.FixtureRequest, world: Daemon) -> dict[str, Any]:
    """What one of the libraries saw."""
    found: dict[str, Any] = (
        run_python(world.url) if request.param == "python" else run_node("real.mjs", f"{world.url}/v1")
    )
    return found


def test_a_stream_is_the_same_as_the_whole_answer(seen: dict[str, Any]) -> None:
    assert "Paris" in seen["chat"]
    assert seen["stream"]["text"] == seen["chat"]
    assert 5 < seen["stream"]["tokens"] < 60
    assert seen["stream"]["pieces"] > 5


def test_a_tool_is_called_and_its_result_is_answered(seen: dict[str, Any]) -> None:
    for call in (seen["tools"], seen["streamedTool"]):
        assert call["name"] == "weather"
        assert call["arguments"]["place"] in ("Paris", "Rome")
    assert seen["tools"]["finish"] == "tool_calls"
    assert seen["tools"]["answer"]


def test_an_answer_follows_its_schema(seen: dict[str, Any]) -> None:
    assert seen["schema"] in ({"place": "Paris"}, {"place": "Rome"})


def test_embeddings_without_options_mean_something(seen: dict[str, Any]) -> None:
    assert close(seen["embeddings"])


def test_a_response_is_streamed(seen: dict[str, Any]) -> None:
    responses = seen["responses"]
    assert responses["text"] == responses["last"] == seen["chat"]
    assert responses["kinds"][0] == "response.created"
    assert responses["kinds"][-1] == "response.completed"
    assert responses["kinds"].count("response.output_text.delta") > 5
