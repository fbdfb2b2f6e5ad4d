"""Every argument of the text endpoints with values that it cannot have: a 400 that names it, and nothing is loaded."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.api.text_world import MINIMAL, add_models
from tests.daemon import Daemon

NUMBERS = ("temperature", "top_p", "min_p", "repeat_penalty", "frequency_penalty", "presence_penalty")
INTEGERS = ("seed", "top_k")
#: Values of the right type beyond the bounds.
BEYOND: dict[str, tuple[float, ...]] = {
    "temperature": (-0.1,),
    "top_p": (-0.1, 1.1),
    "min_p": (-0.1, 1.1),
    "repeat_penalty": (0, -1),
    "frequency_penalty": (-2.1, 2.1),
    "presence_penalty": (-2.1, 2.1),
    "seed": (-(2**63) - 1, 2**63),
    "top_k": (-(2**31), 2**31),
}

CHAT, TEXT, RESPONSES, VECTORS, RANKS = MINIMAL


@pytest.fixture(scope="module")
def world(daemon: Daemon) -> Daemon:
    add_models(daemon)
    return daemon


def wrong() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Endpoint, what is wrong, and the argument that the answer names."""
    for path in (CHAT, TEXT, RESPONSES):
        for name in NUMBERS:
            if name in ("frequency_penalty", "presence_penalty") and path == RESPONSES:
                continue
            for value in ("hot", True, [], {}, *BEYOND[name]):
                yield path, {name: value}, name
        for name in INTEGERS:
            if name == "seed" and path == RESPONSES:
                continue
            for value in ("5", 1.5, True, [], *BEYOND[name]):
                yield path, {name: value}, name
        for value in ("yes", 1, []):
            yield path, {"stream": value}, "stream"
            yield path, {"route_trace": value}, "route_trace"
    for path in MINIMAL:
        for value in (5, True, [], {}):
            yield path, {"model": value}, "model"
        for value in ("8192", 1.5, -2, 2**31, True):
            yield path, {"ctx_size": value}, "ctx_size"
    for name, path in (("max_tokens", CHAT), ("max_completion_tokens", CHAT), ("max_output_tokens", RESPONSES)):
        for value in (0, -1, 2**31, "5", 1.5, True):
            yield path, {name: value}, name
    for value in (-1, 2**31, "5", 1.5, True):
        yield TEXT, {"max_tokens": value}, "max_tokens"
    for path in (CHAT, TEXT):
        yield path, {"stop": 5}, "stop"
        yield path, {"stop": {}}, "stop"
        yield path, {"stop": ["a", 1]}, "stop[1]"
        yield path, {"stop": ""}, "stop"
        yield path, {"stop": ["a", ""]}, "stop[1]"
        yield path, {"stream_options": True}, "stream_options"
        for value in (0, -1, 129, "2", 1.5, True):
            yield path, {"n": value}, "n"
    yield from _chat()
    yield from _text()
    yield from _responses()
    yield from _vectors()
    yield from _ranks()


def _chat() -> Iterator[tuple[str, dict[str, Any], str]]:
    for value in ("hi", {}, 5, []):
        yield CHAT, {"messages": value}, "messages"
    yield CHAT, {"messages": [1]}, "messages[0]"
    yield CHAT, {"messages": [{"role": 1, "content": "x"}]}, "messages[0].role"
    yield CHAT, {"messages": [{"role": "user", "content": 5}]}, "messages[0].content"
    yield CHAT, {"messages": [{"role": "assistant", "content": "x", "tool_calls": {}}]}, "messages[0].tool_calls"
    for value in (1, "true"):
        yield CHAT, {"logprobs": value}, "logprobs"
    for value in (-1, 21, "2", True):
        yield CHAT, {"logprobs": True, "top_logprobs": value}, "top_logprobs"
    yield CHAT, {"top_logprobs": 2}, "top_logprobs"
    yield CHAT, {"logprobs": False, "top_logprobs": 2}, "top_logprobs"
    for value in ({}, "x", 5):
        yield CHAT, {"tools": value}, "tools"
    yield CHAT, {"tools": [1]}, "tools[0]"
    yield CHAT, {"tools": [{"type": "function", "function": {"name": "f"}}, {}]}, "tools[1].function.name"
    for value in (5, [], "maybe"):
        yield CHAT, {"tool_choice": value}, "tool_choice"
    yield CHAT, {"tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"
    for value in (1, "no"):
        yield CHAT, {"enable_thinking": value}, "enable_thinking"
        yield CHAT, {"thinking": value}, "thinking"
        yield CHAT, {"parallel_tool_calls": value}, "parallel_tool_calls"
    for value in (5, "", "on", None):
        yield CHAT, {"thinking": {"type": value}}, "thinking.type"
    for value in ("json", []):
        yield CHAT, {"response_format": value}, "response_format"
    yield CHAT, {"response_format": {"type": "xml"}}, "response_format.type"
    yield CHAT, {"response_format": {"type": "json_schema", "json_schema": {}}}, "response_format.json_schema.schema"


def _text() -> Iterator[tuple[str, dict[str, Any], str]]:
    for value in (5, {}, True, []):
        yield TEXT, {"prompt": value}, "prompt"
    yield TEXT, {"prompt": [True]}, "prompt[0]"
    yield TEXT, {"prompt": [[]]}, "prompt[0]"
    yield TEXT, {"prompt": ["a", 5]}, "prompt[1]"
    yield TEXT, {"prompt": [["a"]]}, "prompt[0][0]"
    for value in (1, "true"):
        yield TEXT, {"echo": value}, "echo"
    for value in (-1, 2**31, "1", 1.5):
        yield TEXT, {"logprobs": value}, "logprobs"
    yield TEXT, {"suffix": 5}, "suffix"


def _responses() -> Iterator[tuple[str, dict[str, Any], str]]:
    for value in (5, {}, True, [], ""):
        yield RESPONSES, {"input": value}, "input"
    yield RESPONSES, {"input": ["x"]}, "input[0]"
    yield RESPONSES, {"input": [{}]}, "input[0]"
    yield RESPONSES, {"input": [{"type": 5}]}, "input[0].type"
    yield RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "input[0].type"
    yield RESPONSES, {"input": [{"role": 5, "content": "x"}]}, "input[0].role"
    yield RESPONSES, {"input": [{"role": "judge", "content": "x"}]}, "input[0].role"
    yield (
        RESPONSES,
        {"input": [{"type": "custom_tool_call", "call_id": "c", "name": "f", "input": ""}]},
        "input[0].type",
    )
    yield RESPONSES, {"input": [{"role": "user", "content": 5}]}, "input[0].content"
    for value in (-1, 21, "2", True):
        yield RESPONSES, {"top_logprobs": value}, "top_logprobs"
    for kind, name in (("function_call", "arguments"), ("function_call_output", "output")):
        yield RESPONSES, {"input": [{"type": kind, "name": "f"}]}, "input[0].call_id"
        yield RESPONSES, {"input": [{"type": kind, "call_id": "c", "name": "f"}]}, f"input[0].{name}"
    yield RESPONSES, {"previous_response_id": "resp_1"}, "previous_response_id"
    yield RESPONSES, {"prompt": {"id": "pmpt_1"}}, "prompt"
    for value in (True, "yes"):
        yield RESPONSES, {"background": value}, "background"
    yield RESPONSES, {"store": 1}, "store"
    yield RESPONSES, {"truncation": "some"}, "truncation"
    yield RESPONSES, {"include": "reasoning.encrypted_content"}, "include"
    yield RESPONSES, {"parallel_tool_calls": "no"}, "parallel_tool_calls"
    for value in (0, "1", True):
        yield RESPONSES, {"max_tool_calls": value}, "max_tool_calls"
    for value in ("any", "required", 5):
        yield RESPONSES, {"tool_choice": value}, "tool_choice"
    yield RESPONSES, {"tools": [{"name": "f"}]}, "tools[0].type"
    for value in ("conv_1", {"id": "conv_1"}, 5):
        yield RESPONSES, {"conversation": value}, "conversation"
    yield RESPONSES, {"instructions": 5}, "instructions"
    yield RESPONSES, {"tools": {}}, "tools"
    yield RESPONSES, {"tools": [{"type": "function"}]}, "tools[0].name"
    yield RESPONSES, {"tool_choice": {"type": "function", "name": "f"}}, "tool_choice"
    yield RESPONSES, {"text": {"format": {"type": "xml"}}}, "text.format.type"
    yield RESPONSES, {"text": {"format": {"type": "json_schema"}}}, "text.format.schema"
    image = {"type": "input_image", "image_url": "http://127.0.0.1/x.png"}
    yield RESPONSES, {"input": [{"role": "user", "content": [image]}]}, "input[0].content[0]"
    yield RESPONSES, {"input": [{"role": "user", "content": [{"type": "input_file"}]}]}, "input[0].content[0]"


def _vectors() -> Iterator[tuple[str, dict[str, Any], str]]:
    for value in (5, {}, True, [], ""):
        yield VECTORS, {"input": value}, "input"
    yield VECTORS, {"input": [[]]}, "input[0]"
    yield VECTORS, {"input": ["a", 5]}, "input[1]"
    for value in ("hex", 5, ""):
        yield VECTORS, {"encoding_format": value}, "encoding_format"
    for value in (0, -1, "3", 1.5, 2, 4):
        yield VECTORS, {"dimensions": value}, "dimensions"


def _ranks() -> Iterator[tuple[str, dict[str, Any], str]]:
    for value in (5, [], ""):
        yield RANKS, {"query": value}, "query"
    for value in (5, "x", {}, []):
        yield RANKS, {"documents": value}, "documents"
    yield RANKS, {"documents": [5]}, "documents[0]"
    for value in (0, -1, "2", 1.5):
        yield RANKS, {"top_n": value}, "top_n"
    yield RANKS, {"return_documents": "yes"}, "return_documents"


@pytest.mark.parametrize(("path", "more", "param"), list(wrong()), ids=str)
def test_a_value_that_cannot_be(world: Daemon, path: str, more: dict[str, Any], param: str) -> None:
    answer = world.post(f"/v1/{path}", {**MINIMAL[path], **more})
    assert answer.status == 400, answer.body
    assert answer.error["code"] == "invalid_argument"
    assert answer.error["param"] == param
    assert answer.error["type"] == "invalid_request_error"
    assert not world.loaded(), "nothing is loaded for a request that cannot be answered"


REQUIRED = [(path, name) for path, body in MINIMAL.items() for name in body]


@pytest.mark.parametrize(("path", "name"), REQUIRED)
def test_an_argument_that_is_missing(world: Daemon, path: str, name: str) -> None:
    body = {key: value for key, value in MINIMAL[path].items() if key != name}
    answer = world.post(f"/v1/{path}", body)
    assert answer.status == 400
    assert answer.error["code"] == "missing_argument"
    assert answer.error["param"] == name


def test_an_argument_that_is_missing_inside_another(world: Daemon) -> None:
    answer = world.post(f"/v1/{CHAT}", {**MINIMAL[CHAT], "thinking": {}})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "missing_argument", "thinking.type")
    answer = world.post(f"/v1/{CHAT}", {**MINIMAL[CHAT], "messages": [{"content": "x"}]})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "missing_argument", "messages[0].role")
    answer = world.post("/v1/rerank", {**MINIMAL[RANKS], "documents": [{}]})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (
        400,
        "missing_argument",
        "documents[0].text",
    )


@pytest.mark.parametrize("path", MINIMAL)
@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'"x"', b"null", b'{"model":"a\xff"}'])
def test_a_body_that_is_no_object(world: Daemon, path: str, body: bytes) -> None:
    answer = world.post(f"/v1/{path}", body)
    assert (answer.status, answer.error["code"]) == (400, "invalid_json")


@pytest.mark.parametrize(
    ("path", "model", "status", "kind", "code"),
    [
        (CHAT, "vectors", 400, "invalid_request_error", None),
        (TEXT, "ranks", 400, "invalid_request_error", None),
        (RESPONSES, "vectors", 400, "unsupported_operation", "model_not_applicable"),
        (VECTORS, "a", 501, "not_supported_error", None),
        (VECTORS, "ranks", 501, "not_supported_error", None),
        (RANKS, "a", 501, "not_supported_error", None),
        ("reranking", "a", 501, "not_supported_error", None),
        ("reranker", "a", 501, "not_supported_error", None),
        *[(path, "nobody", 404, "model_not_found", "model_not_found") for path in MINIMAL],
    ],
)
def test_a_model_of_another_kind(
    world: Daemon, path: str, model: str, status: int, kind: str, code: str | None
) -> None:
    minimal = MINIMAL.get(path, MINIMAL[RANKS])
    answer = world.post(f"/v1/{path}", {**minimal, "model": model})
    assert answer.status == status, answer.body
    assert answer.error["type"] == kind
    assert answer.error.get("code") == code
    assert answer.headers["x-should-retry"] == "false"
    assert not world.loaded()
