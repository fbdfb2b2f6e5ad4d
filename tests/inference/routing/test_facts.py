from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from lemonade.inference.chat import ChatRequest
from lemonade.inference.completion import CompletionRequest
from lemonade.inference.response import ResponsesRequest
from lemonade.inference.routing.facts import Facts, of_anthropic, of_chat, of_completion, of_response

PICTURE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}


def chat(*messages: tuple[str, Any], **more: Any) -> Facts:
    body = {"model": "r", "messages": [{"role": role, "content": content} for role, content in messages], **more}
    return of_chat(msgspec.json.decode(msgspec.json.encode(body), type=ChatRequest))


def response(given: Any, **more: Any) -> Facts:
    body = {"model": "r", "input": given, **more}
    return of_response(msgspec.json.decode(msgspec.json.encode(body), type=ResponsesRequest))


@pytest.mark.parametrize(
    ("messages", "text", "has_images"),
    [
        ([("user", "hello")], "hello", False),
        ([("user", "one"), ("assistant", "two"), ("user", "three"), ("assistant", "four")], "three", False),
        ([("user", [{"type": "text", "text": "a"}, PICTURE, {"type": "input_text", "text": "b"}])], "a\nb", True),
        ([("user", [PICTURE]), ("assistant", "nice"), ("user", "thanks")], "thanks", True),
        ([("system", "be kind")], "", False),
        ([("user", None)], "", False),
    ],
)
def test_chats(messages: list[tuple[str, Any]], text: str, has_images: bool) -> None:
    facts = chat(*messages)
    assert (facts.text, facts.has_images, facts.has_tools) == (text, has_images, False)


def test_tools_and_metadata() -> None:
    tool = {"type": "function", "function": {"name": "f"}}
    facts = chat(("user", "x"), tools=[tool], metadata={"a": "1", "b": 2, "c": None})
    assert facts.has_tools
    assert facts.metadata == {"a": "1"}
    assert not chat(("user", "x"), tools=[]).has_tools
    assert chat(("user", "x"), metadata=None).metadata == {}


@pytest.mark.parametrize(
    ("prompt", "text"), [("a", "a"), (["a", "b"], "a\nb"), ([1, 2], ""), ([[1, 2]], ""), (["a", [1]], "a")]
)
def test_completions(prompt: Any, text: str) -> None:
    body = msgspec.json.encode({"model": "r", "prompt": prompt, "metadata": {"k": "v"}})
    facts = of_completion(msgspec.json.decode(body, type=CompletionRequest))
    assert (facts.text, facts.metadata) == (text, {"k": "v"})


@pytest.mark.parametrize(
    ("given", "text", "has_images"),
    [
        ("a", "a", False),
        ([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "a", False),
        ([{"role": "user", "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]}], "a", True),
        ([{"type": "function_call_output", "call_id": "c", "output": "x"}], "", False),
        ([{"role": "user", "content": 5}, {"content": "no role"}], "", False),
    ],
)
def test_responses(given: Any, text: str, has_images: bool) -> None:
    facts = response(given)
    assert (facts.text, facts.has_images) == (text, has_images)


@dataclass
class Anthropic:
    messages: list[dict[str, Any]]
    system: Any = msgspec.UNSET
    tools: Any = msgspec.UNSET
    metadata: Any = msgspec.UNSET


def test_anthropic() -> None:
    image = {"type": "image", "source": {"type": "base64"}}
    result = {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "text", "text": "rain"}]}
    asked = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}
    called = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}]}
    request = Anthropic(
        [asked, called, {"role": "user", "content": [result]}], "be kind", [{}], {"user_id": "u", "n": 1}
    )
    facts = of_anthropic(request)
    assert (facts.text, facts.has_tools, facts.has_images) == ("a\nb", True, False)
    assert facts.metadata == {"user_id": "u"}
    assert facts.conversation == chat(("system", "be kind"), ("user", "a\nb")).conversation
    parts = [{"type": "text", "text": "be kind"}]
    assert of_anthropic(Anthropic([{"role": "user", "content": "a\nb"}], parts)).conversation == facts.conversation
    assert of_anthropic(Anthropic([{"role": "user", "content": [image]}])).has_images
    assert of_anthropic(Anthropic([{"role": "user", "content": [{**result, "content": [image]}]}])).has_images
    assert of_anthropic(Anthropic([{"role": "user", "content": [1, "x"]}, {"content": None}])).text == ""


def test_a_conversation_is_the_same_from_turn_to_turn() -> None:
    first = chat(("system", "s"), ("user", "one"))
    assert first.conversation
    assert (
        chat(("system", "s"), ("user", "one"), ("assistant", "x"), ("user", "two")).conversation == first.conversation
    )
    assert chat(("system", "other"), ("user", "one")).conversation != first.conversation
    assert chat(("system", "s"), ("user", "uno")).conversation != first.conversation
    assert response("one", instructions="s").conversation == first.conversation
    assert chat(("system", "s")).conversation == b""
