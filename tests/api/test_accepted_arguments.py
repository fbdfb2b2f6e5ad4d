"""Every argument of the text endpoints with values that it can have, up to its bounds, and what the engine gets."""

from __future__ import annotations

from typing import Any

import pytest

from tests.api.text_world import MINIMAL, add_models, seen
from tests.daemon import Daemon

CHAT, TEXT, RESPONSES, VECTORS, RANKS = MINIMAL
SAMPLING: list[dict[str, Any]] = [
    {"temperature": 0},
    {"temperature": 2.0},
    {"temperature": 5},
    {"top_p": 0.0},
    {"top_p": 1},
    {"top_k": 0},
    {"top_k": 40},
    {"top_k": -1},
    {"top_k": 2**31 - 1},
    {"min_p": 0.0},
    {"min_p": 1},
    {"repeat_penalty": 0.1},
    {"repeat_penalty": 1.0},
    {"repeat_penalty": 2},
    {"unknown": {"nested": [1]}},
]
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
SCHEMA = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
PASSED: dict[str, list[dict[str, Any]]] = {
    CHAT: [
        *SAMPLING,
        {"seed": -1},
        {"seed": 2**32 - 1},
        {"seed": -(2**63)},
        {"seed": 2**63 - 1},
        {"frequency_penalty": -2.0},
        {"frequency_penalty": 2},
        {"presence_penalty": -2},
        {"presence_penalty": 2.0},
        {"stop": "x"},
        {"stop": []},
        {"stop": ["a", "b"]},
        {"logprobs": True, "top_logprobs": 0},
        {"logprobs": True, "top_logprobs": 20},
        {"logprobs": False},
        {"route_trace": True},
        {"max_tokens": 1},
        {"max_tokens": 2**31 - 1},
        {"tools": []},
        {"tools": [TOOL], "tool_choice": "auto", "parallel_tool_calls": False},
        {"tools": [TOOL], "tool_choice": "none"},
        {"response_format": {"type": "text"}},
        {"response_format": {"type": "json_object"}},
        {"response_format": SCHEMA},
        {"ctx_size": 4096},
        {"ctx_size": -1},
        {"stream": False},
        {"stream_options": {"include_usage": True}},
    ],
    TEXT: [
        *SAMPLING,
        {"seed": 0},
        {"seed": 2**63 - 1},
        {"frequency_penalty": -2.0},
        {"frequency_penalty": 2.0},
        {"presence_penalty": -2.0},
        {"presence_penalty": 2.0},
        {"stop": "x"},
        {"stop": ["a", "b"]},
        {"route_trace": True},
        {"logprobs": False},
        {"echo": False},
        {"max_tokens": 1},
        {"max_tokens": 2**31 - 1},
        {"suffix": "end"},
        {"prompt": ""},
        {"prompt": [5, 6]},
        {"ctx_size": 4096},
        {"stream": False},
    ],
    RESPONSES: [
        *SAMPLING,
        {"max_output_tokens": 1},
        {"max_output_tokens": 2**31 - 1},
        {"stream": False},
        {"route_trace": True},
        {"instructions": "be brief"},
        {"store": False, "metadata": {"a": "b"}},
        {"store": True, "background": False, "truncation": "auto", "max_tool_calls": 3},
        {"include": ["reasoning.encrypted_content"], "parallel_tool_calls": False},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": "auto"},
        {"ctx_size": 4096},
    ],
    VECTORS: [
        {"input": [""]},
        {"input": ["a", ""]},
        {"input": [5]},
        {"input": [[5, 6], [7]]},
        {"input": ["text"] * 33},
        {"encoding_format": "float"},
        {"ctx_size": 512},
        {"user": "me"},
    ],
    RANKS: [{"documents": [""]}, {"top_n": 1}, {"top_n": 100}, {"ctx_size": 512}, {"user": "me"}],
}


@pytest.fixture(scope="module")
def world(daemon: Daemon) -> Daemon:
    add_models(daemon)
    return daemon


def asked(world: Daemon, path: str, more: dict[str, Any]) -> list[dict[str, Any]]:
    """What the engine was asked for a request that is answered."""
    body = {**MINIMAL[path], **more}
    before = len(seen(world, body["model"])) if any(one["model_name"] == body["model"] for one in world.loaded()) else 0
    answer = world.post(f"/v1/{path}", body)
    assert answer.status == 200, answer.body
    return seen(world, body["model"])[before:]


@pytest.mark.parametrize(
    ("path", "more"), [(path, more) for path, values in PASSED.items() for more in values], ids=str
)
def test_what_goes_to_the_engine_as_it_came(world: Daemon, path: str, more: dict[str, Any]) -> None:
    (body,) = asked(world, path, more)
    assert body == {**MINIMAL[path], **more}


OPTIONAL = {
    CHAT: "stream stop logprobs top_logprobs n temperature repeat_penalty frequency_penalty presence_penalty seed "
    "top_k top_p min_p route_trace tools tool_choice parallel_tool_calls response_format max_tokens "
    "max_completion_tokens enable_thinking thinking ctx_size stream_options",
    TEXT: "stream stop echo logprobs n suffix temperature repeat_penalty frequency_penalty presence_penalty seed top_k "
    "top_p min_p route_trace max_tokens ctx_size stream_options",
    RESPONSES: "stream max_output_tokens temperature repeat_penalty top_k top_p min_p route_trace top_logprobs tools "
    "tool_choice text reasoning instructions previous_response_id conversation prompt background store truncation "
    "include parallel_tool_calls max_tool_calls ctx_size",
    VECTORS: "encoding_format dimensions ctx_size",
    RANKS: "top_n return_documents ctx_size",
}


@pytest.mark.parametrize("path", MINIMAL)
def test_null_counts_as_absent(world: Daemon, path: str) -> None:
    (body,) = asked(world, path, dict.fromkeys(OPTIONAL[path].split()) | {"unknown": None})
    assert body == MINIMAL[path]


@pytest.mark.parametrize(
    ("path", "more", "expected"),
    [
        (CHAT, {"max_completion_tokens": 1}, {"max_completion_tokens": 1, "max_tokens": 1}),
        (CHAT, {"enable_thinking": True}, {}),
        (CHAT, {"thinking": True}, {}),
        (CHAT, {"thinking": {"type": "enabled", "budget_tokens": 1024}}, {}),
        (CHAT, {"thinking": {"type": "adaptive"}}, {}),
        (CHAT, {"thinking": {"type": "auto"}}, {}),
        (CHAT, {"thinking": {"type": "disabled"}, "enable_thinking": True}, {}),
        (TEXT, {"logprobs": True}, {"logprobs": 1}),
        (TEXT, {"logprobs": 0}, {"logprobs": 1}),
        (TEXT, {"logprobs": 5}, {"logprobs": 5}),
        (TEXT, {"logprobs": 100}, {"logprobs": 100}),
        (TEXT, {"echo": True}, {}),
        (TEXT, {"n": 1}, {}),
        (TEXT, {"max_tokens": 0}, {"max_tokens": 1}),
        (RESPONSES, {"top_logprobs": 2}, {"top_logprobs": 2, "logprobs": True}),
        (
            RESPONSES,
            {"text": {"format": {"type": "json_object"}}},
            {"text": {"format": {"type": "json_object"}}, "response_format": {"type": "json_object"}},
        ),
        (VECTORS, {"dimensions": 3}, {}),
        (RANKS, {"documents": [{"text": "a"}, "b"], "return_documents": True}, {"documents": ["a", "b"]}),
    ],
    ids=str,
)
def test_what_is_said_to_the_engine_in_other_words(
    world: Daemon, path: str, more: dict[str, Any], expected: dict[str, Any]
) -> None:
    (body,) = asked(world, path, more)
    assert body == {**MINIMAL[path], **expected}


@pytest.mark.parametrize("spelling", ["rerank", "reranking", "reranker"])
@pytest.mark.parametrize("prefix", ["/v1", "/api/v0"])
def test_the_spellings_of_reranking(world: Daemon, prefix: str, spelling: str) -> None:
    answer = world.post(f"{prefix}/{spelling}", MINIMAL[RANKS])
    assert [one["index"] for one in answer.json()["results"]] == [0, 1]
