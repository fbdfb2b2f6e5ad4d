from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference.chat import ChatRequest, check, check_reply, shape

USER = {"role": "user", "content": "hi"}


def all_sent(*, template: str | None = None, **body: Any) -> list[dict[str, Any]]:
    """What the engine is sent for a body, once per answer."""
    raw = msgspec.json.encode({"model": "m", "messages": [USER], **body})
    request = msgspec.json.decode(raw, type=ChatRequest)
    check(request)
    return [msgspec.json.decode(one) for one in shape(request, raw, lambda: template)]


def sent(**body: Any) -> dict[str, Any]:
    """What the engine is sent for a body."""
    (only,) = all_sent(**body)
    return only


def untouched(raw: bytes) -> bool:
    """Whether the engine is sent the very bytes."""
    (only,) = shape(msgspec.json.decode(raw, type=ChatRequest), raw, lambda: None)
    return only is raw


def test_an_ordinary_request_is_not_encoded_again() -> None:
    raw = b'{ "model":"m", "messages":[{"role":"user","content":"hi"}], "temperature": 0.50, "unknown": [1,  2] }'
    assert untouched(raw)


def test_null_counts_as_absent() -> None:
    assert sent(tool_choice=None, temperature=None, stop=None) == {"model": "m", "messages": [USER]}


def test_no_alternatives_are_no_wish() -> None:
    assert sent(top_logprobs=0, logprobs=False) == {"model": "m", "messages": [USER], "logprobs": False}
    assert sent(top_logprobs=0) == {"model": "m", "messages": [USER]}
    assert sent(top_logprobs=0, logprobs=True)["top_logprobs"] == 0


@pytest.mark.parametrize(
    ("body", "off"),
    [
        ({"enable_thinking": False}, True),
        ({"thinking": False}, True),
        ({"thinking": {"type": "disabled"}}, True),
        ({"enable_thinking": True}, False),
        ({"thinking": {"type": "enabled"}}, False),
        ({"enable_thinking": True, "thinking": False}, False),
        ({"enable_thinking": False, "thinking": True}, True),
    ],
)
def test_thinking(body: dict[str, Any], off: bool) -> None:
    result = sent(**body)
    assert "enable_thinking" not in result
    assert "thinking" not in result
    assert (result.get("reasoning_effort") == "none") is off
    assert (result.get("chat_template_kwargs") == {"enable_thinking": False}) is off
    assert result["messages"][0]["content"].startswith("/no_think\n") is off


def test_thinking_keeps_other_template_arguments() -> None:
    assert sent(enable_thinking=False, chat_template_kwargs={"a": 1})["chat_template_kwargs"] == {
        "a": 1,
        "enable_thinking": False,
    }


def test_max_completion_tokens_is_max_tokens_unless_both_are_given() -> None:
    assert sent(max_completion_tokens=5)["max_tokens"] == 5
    both = sent(max_completion_tokens=5, max_tokens=7)
    assert (both["max_tokens"], both["max_completion_tokens"]) == (7, 7)


def tool(name: str, **schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": schema}}}


def test_the_arguments_of_a_call_that_must_be_made_are_asked_for() -> None:
    tools = [tool("a"), tool("b", x={"type": "string", "maxLength": 5000})]
    parameters = {"type": "object", "properties": {"x": {"type": "string"}}}
    result = sent(tools=tools, tool_choice={"type": "function", "function": {"name": "b"}})
    assert [one["function"]["name"] for one in result["tools"]] == ["a", "b"]
    assert result["tool_choice"] == "none"
    assert result["response_format"]["json_schema"]["schema"] == parameters
    result = sent(tools=tools, tool_choice="required")
    calls = result["response_format"]["json_schema"]["schema"]["anyOf"]
    assert [call["properties"]["name"]["const"] for call in calls] == ["a", "b"]
    assert calls[1]["properties"]["arguments"] == parameters
    assert sent(tools=tools, tool_choice="auto")["tool_choice"] == "auto"
    with pytest.raises(InvalidArgument, match="'c'"):
        sent(tools=[tool("a")], tool_choice={"type": "function", "function": {"name": "c"}})


def test_bounds_that_explode_the_grammar_are_dropped() -> None:
    fine = tool("a", x={"type": "string", "maxLength": 1999}, y={"type": "array", "maxItems": 2000})
    raw = msgspec.json.encode({"model": "m", "messages": [USER], "tools": [fine]})
    assert untouched(raw)
    result = sent(tools=[tool("a", x={"type": "string", "maxLength": 2000}, y={"items": [{"minItems": 2001, "z": 1}]})])
    assert result["tools"][0]["function"]["parameters"]["properties"] == {
        "x": {"type": "string"},
        "y": {"items": [{"z": 1}]},
    }


def test_histories_of_agents() -> None:
    call = {"id": "1", "function": {"name": "f", "arguments": {"a": 1}}}
    calling = {"role": "assistant", "content": None, "tool_calls": [call]}
    result = sent(messages=[{"role": "developer", "content": "d"}, calling, {"role": "assistant", "content": None}])
    function = {"name": "f", "arguments": '{"a":1}'}
    assert result["messages"] == [
        {"role": "system", "content": "d"},
        {"role": "assistant", "tool_calls": [{"id": "1", "function": function, "type": "function"}], "content": None},
        {"role": "assistant", "content": ""},
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [('{"a": 1}', '{"a": 1}'), ({"a": 1}, '{"a":1}'), (None, "{}"), ("", "{}"), ("{broken", '"{broken"')],
)
def test_arguments_of_calls_are_json(given: Any, expected: str) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": given}}
    result = sent(messages=[USER, {"role": "assistant", "content": "", "tool_calls": [call]}])
    assert result["messages"][1]["tool_calls"][0]["function"]["arguments"] == expected


def system(text: Any) -> dict[str, Any]:
    return {"role": "system", "content": text}


def test_system_messages_come_first_where_the_template_refuses_conversations() -> None:
    messages = [system("a"), USER, system([{"type": "text", "text": "b"}]), {"role": "developer", "content": "c"}]
    merged = [system("a\n\nb\n\nc"), USER]
    assert sent(messages=messages, template=None)["messages"] == merged
    assert sent(messages=messages, template="{{ raise_exception('no') }}")["messages"] == merged
    kept = sent(messages=messages, template="{{ messages }}")["messages"]
    assert [message["role"] for message in kept] == ["system", "user", "system", "system"]
    assert untouched(msgspec.json.encode({"model": "m", "messages": [system("a"), USER]}))


def test_each_answer_is_a_request_with_a_seed_of_its_own() -> None:
    assert [one.get("seed") for one in all_sent(n=3, seed=5)] == [5, 6, 7]
    assert all("n" not in one for one in all_sent(n=3, seed=5))
    assert [one.get("seed") for one in all_sent(n=2)] == [None, None]
    assert [one.get("seed") for one in all_sent(n=2, seed=-1)] == [-1, -1]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "required", "tools": []}, "tool_choice"),
        ({"response_format": {}}, "response_format.type"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema.schema"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"tools": [{"type": "function", "function": {"name": 5}}]}, "tools[0].function.name"),
    ],
)
def test_what_means_nothing_is_refused(body: dict[str, Any], param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        sent(**body)
    assert caught.value.param == param


def completion(message: dict[str, Any], model: str = "m") -> bytes:
    return msgspec.json.encode({"model": model, "choices": [{"index": 0, "message": message}]})


def test_a_whole_answer_passes_untouched() -> None:
    body = completion({"role": "assistant", "content": "x"})
    assert check_reply(body, "m")[0] is body


def test_an_answer_carries_the_name_that_was_asked_for_and_a_content() -> None:
    body = completion({"role": "assistant", "reasoning_content": "hm"}, "/path/to.gguf")
    assert msgspec.json.decode(check_reply(body, "asked")[0]) == {
        "model": "asked",
        "choices": [{"index": 0, "message": {"role": "assistant", "reasoning_content": "hm", "content": ""}}],
    }


@pytest.mark.parametrize("body", [b'{"choices":[]}', b'{"choices":[{"message":{}}]}', b"{}", b"[]", b"<html>"])
def test_what_is_no_answer_is_refused(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        check_reply(body, "m")
