from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference.relay import DONE, PING
from lemonade.inference.response import ResponsesRequest, check_reply, shape
from lemonade.inference.response_call import ForcedFunction, must_call
from lemonade.inference.response_events import ResponseEvents
from lemonade.inference.response_fields import ResponseFields
from lemonade.inference.response_media import look_at
from lemonade.model import Model
from tests.inference.test_relay import Sink

BLIND = Model(name="m", recipe="llamacpp")
SEEING = Model(name="m", recipe="llamacpp", labels=("chat", "vision"), checkpoints={"main": "x", "mmproj": "y"})


def sent(**body: Any) -> dict[str, Any]:
    """What the engine is sent for a body."""
    raw = msgspec.json.encode({"model": "m", "input": "x", **body})
    return shape(msgspec.json.decode(raw, type=ResponsesRequest), raw)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"role": "user", "content": "x"}, {"role": "user", "content": "x", "type": "message"}),
        (
            {"role": "user", "content": [{"type": "text", "text": "x"}]},
            {"role": "user", "content": [{"type": "input_text", "text": "x"}], "type": "message"},
        ),
        (
            {"role": "assistant", "content": "x"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "x"}], "type": "message"},
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}], "type": "message", "id": "msg"},
            {"role": "assistant", "content": [{"type": "output_text", "text": "no"}], "type": "message", "id": "msg"},
        ),
        (
            {"type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        ),
        (
            {"type": "function_call_output", "call_id": "c", "output": "x"},
            {"type": "function_call_output", "call_id": "c", "output": "x"},
        ),
        ({"type": "reasoning", "summary": [], "content": None}, None),
        (
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
        ),
    ],
)
def test_items_as_clients_hand_them_back(item: dict[str, Any], expected: dict[str, Any] | None) -> None:
    last = {"role": "user", "content": "y", "type": "message"}
    assert sent(input=[item, last])["input"] == ([expected] if expected else []) + [last]


def test_no_alternatives_are_no_wish() -> None:
    assert "top_logprobs" not in sent(top_logprobs=0)
    assert (sent(top_logprobs=2)["top_logprobs"], sent(top_logprobs=2)["logprobs"]) == (2, True)


def test_the_form_of_the_answer_is_said_in_the_words_of_chats() -> None:
    form = {"type": "json_schema", "name": "n", "strict": True, "schema": {"type": "object"}}
    assert sent(text={"format": form})["response_format"] == {
        "type": "json_schema",
        "json_schema": {"name": "n", "strict": True, "schema": {"type": "object"}},
    }
    assert "response_format" not in sent(text={"verbosity": "low"})


def test_no_reasoning() -> None:
    shaped = sent(reasoning={"effort": "none"})
    assert (shaped["reasoning_effort"], shaped["chat_template_kwargs"]) == ("none", {"enable_thinking": False})
    assert "chat_template_kwargs" not in sent(reasoning={"effort": "low"})


def function(name: str) -> dict[str, Any]:
    return {"type": "function", "name": name, "parameters": {"maxLength": 5000, "type": "object"}}


@pytest.mark.parametrize(
    ("names", "choice", "called"),
    [
        ("ab", {"type": "function", "name": "b"}, ["b"]),
        ("a", "required", ["a"]),
        ("ab", "required", ["a", "b"]),
        ("a", "auto", []),
        ("a", "none", []),
    ],
)
def test_which_function_must_be_called(names: str, choice: Any, called: list[str]) -> None:
    body = {"model": "m", "input": "x", "tools": [function(name) for name in names], "tool_choice": choice}
    request = msgspec.convert(body, ResponsesRequest)
    assert must_call(request) == called
    shaped = shape(request, msgspec.json.encode(body))
    assert shaped["tool_choice"] == choice
    if called:
        ForcedFunction(called).force(shaped)
        assert len(shaped["tools"]) == len(names)
        assert shaped["tool_choice"] == "none"
        schema = shaped["response_format"]["json_schema"]["schema"]
        if len(called) == 1:
            assert schema == {"type": "object"}
        else:
            assert [one["properties"]["name"]["const"] for one in schema["anyOf"]] == called


def test_another_tool_than_a_function_is_left_to_the_engine() -> None:
    tools = [function("a"), {"type": "web_search"}]
    body = {"model": "m", "input": "x", "tools": tools, "tool_choice": "required"}
    assert must_call(msgspec.convert(body, ResponsesRequest)) == []


def test_the_message_is_told_as_a_call() -> None:
    message = {"type": "message", "status": "completed", "content": [{"type": "output_text", "text": '{"a":1}'}]}
    body = msgspec.json.encode({"output": [{"type": "reasoning"}, message], "model": "m"})
    reasoning, call = msgspec.json.decode(ForcedFunction(["f"]).check(body, "asked")[0])["output"]
    assert reasoning == {"type": "reasoning"}
    assert (call["type"], call["name"], call["arguments"]) == ("function_call", "f", '{"a":1}')


async def test_the_events_of_the_message_are_told_as_those_of_a_call() -> None:
    sink = Sink()
    events = ResponseEvents(sink, "m", ForcedFunction(["f"]).retell)
    message = {"id": "msg", "type": "message", "status": "in_progress", "content": []}
    full = {**message, "status": "completed", "content": [{"type": "output_text", "text": "{}"}]}
    await events.write(event("response.output_item.added", item=message))
    await events.write(event("response.content_part.added", item_id="msg", part={}))
    await events.write(event("response.output_text.delta", item_id="msg", delta="{"))
    await events.write(event("response.output_text.delta", item_id="msg", delta="}"))
    await events.write(event("response.output_text.done", item_id="msg", text="{}"))
    await events.write(event("response.content_part.done", item_id="msg", part={}))
    await events.write(event("response.output_item.done", item=full))
    await events.end(event("response.completed", response={"output": [full]}) + DONE)
    blocks = sink.body.removesuffix(DONE).strip().split(b"\n\n")
    told = [msgspec.json.decode(block.split(b"\ndata: ")[1]) for block in blocks]
    assert [one["type"].removeprefix("response.") for one in told] == [
        "output_item.added",
        "function_call_arguments.delta",
        "function_call_arguments.delta",
        "function_call_arguments.done",
        "output_item.done",
        "completed",
    ]
    assert [one["sequence_number"] for one in told] == list(range(6))
    assert {one["output_index"] for one in told[:-1]} == {0}
    call = told[-2]["item"]
    assert {one["item_id"] for one in told[1:4]} == {call["id"]}
    assert told[-1]["response"]["output"] == [call]
    assert (call["status"], call["arguments"], told[3]["arguments"]) == ("completed", "{}", "{}")


def test_the_answer_carries_the_name_that_was_asked_for() -> None:
    body = b'{"output":[],"model":"m","usage":{"input_tokens":5,"output_tokens":2}}'
    checked, figures = check_reply(body, "m")
    assert checked is body
    assert figures is not None
    assert (figures.prompt_tokens, figures.output_tokens) == (5, 2)
    assert msgspec.json.decode(check_reply(body, "alias")[0])["model"] == "alias"
    with pytest.raises(msgspec.MsgspecError):
        check_reply(b'{"choices":[]}', "m")


def event(kind: str, **more: Any) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (kind.encode(), msgspec.json.encode({"type": kind, **more}))


async def test_events_get_the_numbers_that_clients_go_by() -> None:
    sink = Sink()
    events = ResponseEvents(sink, "asked")
    await events.start()
    await events.write(event("response.created", response={"id": "r"}))
    await events.write(PING)
    await events.write(event("response.output_item.added", item={"id": "rs"}))
    await events.write(event("response.reasoning_text.delta", item_id="rs", delta="hm"))
    await events.write(event("response.output_item.added", item={"id": "msg"}))
    await events.write(event("response.output_text.delta", item_id="msg", delta="x"))
    await events.end(event("response.completed", response={"model": "/a/path.gguf"}) + DONE)
    assert sink.ended
    assert sink.body.endswith(b"\n\n" + DONE)
    assert PING in sink.writes
    blocks = sink.body.replace(PING, b"").removesuffix(DONE).strip().split(b"\n\n")
    told = [msgspec.json.decode(block.split(b"\ndata: ")[1]) for block in blocks]
    for block, one in zip(blocks, told, strict=True):
        assert block.startswith(b"event: " + one["type"].encode())
    assert [one["sequence_number"] for one in told] == list(range(6))
    assert [one.get("output_index") for one in told] == [None, 0, 0, 1, 1, None]
    assert [one.get("content_index") for one in told] == [None, None, 0, None, 0, None]
    assert {one["response"]["model"] for one in (told[0], told[-1])} == {"asked"}


async def test_numbers_that_the_engine_gives_are_kept() -> None:
    sink = Sink()
    given = {"item_id": "msg", "output_index": 7, "content_index": 3, "sequence_number": 20, "logprobs": [1]}
    events = ResponseEvents(sink, "asked")
    await events.write(event("response.output_text.delta", **given))
    await events.write(event("response.output_text.delta", item_id="msg"))
    first, second = (msgspec.json.decode(one.split(b"data: ")[1]) for one in sink.writes)
    assert first == {"type": "response.output_text.delta", **given}
    assert second["sequence_number"] == 21


PIXEL = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk"
    "+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


def picture(url: Any) -> list[dict[str, Any]]:
    return [
        {"role": "user", "content": [{"type": "input_text", "text": "x"}, {"type": "input_image", "image_url": url}]}
    ]


async def test_pictures_are_looked_at() -> None:
    await look_at(picture(PIXEL), SEEING, size=100, allow_remote=False)
    await look_at([{"role": "user", "content": "x"}], BLIND, size=100, allow_remote=False)


@pytest.mark.parametrize(
    ("items", "model"),
    [
        (picture(PIXEL), BLIND),
        (picture("http://127.0.0.1/x.png"), SEEING),
        (picture("file:///etc/passwd"), SEEING),
        (picture(None), SEEING),
        (picture({"url": PIXEL}), SEEING),
        ([{"content": [{"type": "input_text"}, {"type": "input_audio", "input_audio": {}}]}], SEEING),
        ([{"content": [{"type": "input_text"}, {"type": "input_file", "file_id": "x"}]}], SEEING),
    ],
)
async def test_what_nobody_should_look_at(items: list[dict[str, Any]], model: Model) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await look_at(items, model, size=100, allow_remote=False)
    assert caught.value.param == "input[0].content[1]"
    assert "input[0].content[1]" in caught.value.message


async def test_of_several_functions_the_call_is_opened_when_it_is_known_which_it_is() -> None:
    sink = Sink()
    events = ResponseEvents(sink, "m", ForcedFunction(["f", "g"]).retell)
    text = '{"name": "g", "arguments": {"a": {"b": "}"}}}'
    message = {"id": "msg", "type": "message", "status": "in_progress", "content": []}
    full = {**message, "status": "completed", "content": [{"type": "output_text", "text": text}]}
    await events.write(event("response.output_item.added", item=message))
    assert not sink.body
    for letter in text:
        await events.write(event("response.output_text.delta", item_id="msg", delta=letter))
    await events.write(event("response.output_text.done", item_id="msg", text=text))
    await events.write(event("response.output_item.done", item=full))
    await events.end(event("response.completed", response={"output": [full]}) + DONE)
    told = [
        msgspec.json.decode(block.split(b"data: ")[1]) for block in sink.body.removesuffix(DONE).strip().split(b"\n\n")
    ]
    assert [one["sequence_number"] for one in told] == list(range(len(told)))
    opened, *pieces, arguments, done, completed = told
    assert (opened["type"], opened["item"]["name"], opened["item"]["arguments"]) == (
        "response.output_item.added",
        "g",
        "",
    )
    assert {one["type"] for one in pieces} == {"response.function_call_arguments.delta"}
    assert "".join(one["delta"] for one in pieces) == arguments["arguments"] == '{"a": {"b": "}"}}'
    assert (arguments["name"], done["item"]["name"]) == ("g", "g")
    assert completed["response"]["output"] == [done["item"]]
    assert {one.get("item_id", opened["item"]["id"]) for one in told[:-1]} == {opened["item"]["id"]}


async def test_a_call_that_was_cut_off_before_its_name_is_still_whole_events() -> None:
    sink = Sink()
    events = ResponseEvents(sink, "m", ForcedFunction(["f", "g"]).retell)
    message = {"id": "msg", "type": "message", "status": "in_progress", "content": []}
    await events.write(event("response.output_item.added", item=message))
    await events.write(event("response.output_text.delta", item_id="msg", delta='{"na'))
    await events.write(event("response.output_text.done", item_id="msg", text='{"na'))
    assert sink.body.count(b"event: response.output_item.added") == 1
    assert b'"arguments":""' in sink.body


async def test_what_every_response_holds() -> None:
    tools = [{**function("a"), "strict": False}]
    request = msgspec.convert(
        {"model": "m", "input": "x", "tools": [function("a")], "temperature": 0.5, "max_output_tokens": 3},
        ResponsesRequest,
    )
    fields = ResponseFields(request)
    sink = Sink()
    events = ResponseEvents(sink, "m", complete=fields.complete)
    await events.end(event("response.created", response={"id": "r", "status": "in_progress"}))
    cut = msgspec.json.encode({"status": "completed", "usage": {"output_tokens": 3}})
    assert msgspec.json.decode(fields.completed(cut))["incomplete_details"] == {"reason": "max_output_tokens"}
    ended = Sink()
    events = ResponseEvents(ended, "m", complete=fields.complete)
    await events.end(event("response.completed", response=msgspec.json.decode(cut)))
    assert b"event: response.incomplete" in ended.body
    (opened,) = (msgspec.json.decode(block.split(b"data: ")[1])["response"] for block in sink.body.split(b"\n\n")[:1])
    whole = msgspec.json.decode(fields.completed(b'{"id":"r","created_at":7,"output":[{"type":"message"}]}'))
    assert (whole["created_at"], whole["output"]) == (7, [{"type": "message"}])
    assert (type(opened["created_at"]), opened["output"]) == (int, [])
    for response in (opened, whole):
        assert (response["tools"], response["tool_choice"], response["temperature"]) == (tools, "auto", 0.5)
        assert (response["max_output_tokens"], response["error"], response["instructions"]) == (3, None, None)


async def test_what_the_limit_cut_off_is_incomplete_everywhere() -> None:
    """The engine calls it completed, and tells the end of the item before it tells how many tokens there were."""
    request = msgspec.convert({"model": "m", "input": "x", "max_output_tokens": 3}, ResponsesRequest)
    fields, sink = ResponseFields(request), Sink()
    events = ResponseEvents(sink, "m", complete=fields.complete)
    item = {"id": "msg", "type": "message", "status": "completed", "content": [{"type": "output_text", "text": "a"}]}
    thought = {"id": "rs", "type": "reasoning", "status": "completed"}
    response = {"status": "completed", "output": [thought, item], "usage": {"output_tokens": 3}}
    await events.write(event("response.output_item.done", item=thought))
    await events.write(event("response.content_part.added", item_id="msg", part={"type": "output_text", "text": ""}))
    await events.write(event("response.output_item.done", item=item))
    await events.end(event("response.completed", response=response) + DONE)
    blocks = sink.body.removesuffix(DONE).strip().split(b"\n\n")
    early, part, late, ended = (msgspec.json.decode(block.split(b"data: ")[1]) for block in blocks)
    assert [one["sequence_number"] for one in (early, part, late, ended)] == [0, 1, 2, 3]
    assert (early["item"]["status"], late["item"]["status"]) == ("completed", "incomplete")
    assert part["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
    assert ended["type"] == "response.incomplete"
    assert [one["status"] for one in ended["response"]["output"]] == ["completed", "incomplete"]
    assert ended["response"]["usage"] == {
        "output_tokens": 3,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens_details": {"reasoning_tokens": 0},
    }


async def test_an_item_whose_stream_breaks_is_told_before_the_error() -> None:
    sink = Sink()
    events = ResponseEvents(sink, "m")
    await events.write(event("response.output_item.done", item={"id": "msg"}))
    assert not sink.body
    await events.end(b'data: {"error":{"message":"gone"}}\n\n')
    assert sink.body.index(b"output_item.done") < sink.body.index(b"gone")
