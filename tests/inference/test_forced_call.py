from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.inference.forced_call import ForcedCall, force

ARGUMENTS = json.dumps({"city": "Paris } {", "nested": {"a": {"b": [{}]}}})
ANSWER = f'{{"name": "b\\u0020c", "arguments": {ARGUMENTS} }}\n'


def whole(names: list[str], content: str, finish: str = "stop") -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": content}, "finish_reason": finish}
    ForcedCall(names).edit(0, choice)
    return choice


def test_a_whole_answer_is_told_as_a_call() -> None:
    choice = whole(["f"], ARGUMENTS)
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] is None
    assert choice["finish_reason"] == "tool_calls"
    assert call["function"] == {"name": "f", "arguments": ARGUMENTS}
    assert call["type"] == "function"
    assert call["id"].startswith("call_")


def test_of_several_functions_the_answer_says_which() -> None:
    (call,) = whole(["a", "b c"], ANSWER)["message"]["tool_calls"]
    assert call["function"]["name"] == "b c"
    assert json.loads(call["function"]["arguments"]) == json.loads(ARGUMENTS)


def test_an_answer_that_was_cut_off_says_so() -> None:
    choice = whole(["f"], '{"city": "Pa', "length")
    assert choice["finish_reason"] == "length"
    assert choice["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Pa'


def deltas(names: list[str], pieces: list[str]) -> list[dict[str, Any]]:
    editor = ForcedCall(names)
    made: list[dict[str, Any]] = [{"delta": {"role": "assistant", "content": None}, "finish_reason": None}]
    made += [{"delta": {"content": piece}, "finish_reason": None} for piece in pieces]
    made.append({"delta": {}, "finish_reason": "stop"})
    for choice in made:
        editor.edit(0, choice)
    return made


@pytest.mark.parametrize(("names", "text", "name"), [(["f"], ARGUMENTS, "f"), (["a", "b c"], ANSWER, "b c")])
@given(sizes=st.lists(st.integers(1, 20), max_size=30))
def test_a_stream_is_told_as_a_call_however_it_is_cut(names: list[str], text: str, name: str, sizes: list[int]) -> None:
    pieces, at = [], 0
    for size in sizes:
        pieces.append(text[at : at + size])
        at += size
    told = deltas(names, [piece for piece in [*pieces, text[at:]] if piece])
    parts = [choice["delta"]["tool_calls"][0] for choice in told if "tool_calls" in choice["delta"]]
    assert all(part["index"] == 0 for part in parts)
    assert parts[0]["function"]["name"] == name
    assert parts[0]["id"].startswith("call_")
    assert all("id" not in part and "name" not in part["function"] for part in parts[1:])
    assert json.loads("".join(part["function"]["arguments"] for part in parts)) == json.loads(ARGUMENTS)
    assert told[-1]["finish_reason"] == "tool_calls"
    assert not any(choice["delta"].get("content") for choice in told)
    assert told[0]["delta"]["role"] == "assistant"


def function(name: str, **definitions: Any) -> dict[str, Any]:
    reference = {"type": "object", "properties": {"x": {"$ref": "#/$defs/X"}}, "$defs": definitions}
    return {"type": "function", "function": {"name": name, "parameters": reference}}


def test_definitions_are_found_where_references_look_for_them() -> None:
    body: dict[str, Any] = {"tools": [function("a", X={"type": "string"}), function("b", X={"type": "null"})]}
    force(body, ["a", "b"])
    schema = body["response_format"]["json_schema"]["schema"]
    for call, kind in zip(schema["anyOf"], ("string", "null"), strict=True):
        arguments = _at(schema, call["properties"]["arguments"]["$ref"])
        assert _at(schema, arguments["properties"]["x"]["$ref"]) == {"type": kind}


def _at(schema: Any, reference: str) -> Any:
    for name in reference.removeprefix("#/").split("/"):
        schema = schema[name]
    return schema


def test_a_function_without_parameters() -> None:
    body: dict[str, Any] = {"tools": [{"type": "function", "function": {"name": "f"}}]}
    force(body, ["f"])
    assert body["response_format"]["json_schema"]["schema"] == {"type": "object", "properties": {}}
