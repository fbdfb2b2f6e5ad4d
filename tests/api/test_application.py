from __future__ import annotations

import http.client

import pytest

from tests.daemon import Daemon

CHAT = "/v1/chat/completions"


def good(**more: object) -> dict[str, object]:
    return {"model": "a", "messages": [{"role": "user", "content": "x"}], **more}


@pytest.mark.parametrize("prefix", ["/v1", "/v0", "/api/v1", "/api/v0"])
def test_every_prefix_answers(daemon: Daemon, prefix: str) -> None:
    assert daemon.get(f"{prefix}/health").json()["status"] == "ok"
    assert daemon.get(f"{prefix}/models").json()["object"] == "list"


@pytest.mark.parametrize(
    "path", ["/nope", "/v1/nope", "/v1/health/", "/V1/health", "//v1/health", "/v1", "/v1/models/"]
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE", "PATCH"])
def test_an_unknown_route_is_json(daemon: Daemon, method: str, path: str) -> None:
    answer = daemon.ask(method, path)
    assert answer.status == 404
    assert answer.error["type"] == "not_found"
    assert answer.error["path"] == path
    assert answer.headers["x-should-retry"] == "false"


def test_a_wrong_method_is_json(daemon: Daemon) -> None:
    answer = daemon.get(CHAT)
    assert answer.status == 405
    assert answer.error["message"] == "Method Not Allowed. Use POST for this endpoint"
    assert answer.headers["allow"] == "POST"
    assert daemon.post("/v1/models", {}).status == 405


@pytest.mark.parametrize("path", ["/live", "/v1/health", "/v1/models", "/v1/models/a"])
def test_head_is_get_without_a_body(daemon: Daemon, path: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port)
    connection.request("HEAD", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (200, b"")
    assert int(answer.headers["content-length"]) > 0
    connection.close()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", "invalid_json"),
        (b"{", "invalid_json"),
        (b"[]", "invalid_json"),
        (b'"x"', "invalid_json"),
        (b"null", "invalid_json"),
        (b"{} x", "invalid_json"),
        (b'{"model":"a\xff"}', "invalid_json"),
        (b'{"model":"a","messages":[{"role":"user","content":"x"}],"other":"\xff"}', "invalid_json"),
        (b'{"model":"a","x":' + b"[" * 100_000 + b"]" * 100_000 + b"}", "invalid_json"),
        (b"{}", "missing_argument"),
        (b'{"model":"a"}', "missing_argument"),
        (b'{"messages":[{"role":"user","content":"x"}]}', "missing_argument"),
    ],
)
def test_bodies_that_are_no_request(daemon: Daemon, body: bytes, code: str) -> None:
    answer = daemon.post(CHAT, body)
    assert answer.status == 400
    assert answer.error["code"] == code
    assert answer.error["type"] == "invalid_request_error"
    assert not daemon.loaded()


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        ("messages", "hi", "messages"),
        ("messages", [], "messages"),
        ("messages", [1], "messages[0]"),
        ("messages", [{"role": 1, "content": "x"}], "messages[0].role"),
        ("messages", [{"role": "user", "content": 5}], "messages[0].content"),
        ("model", 5, "model"),
        ("temperature", "hot", "temperature"),
        ("max_tokens", -1, "max_tokens"),
        ("max_tokens", 0, "max_tokens"),
        ("max_tokens", 1.5, "max_tokens"),
        ("max_tokens", True, "max_tokens"),
        ("max_completion_tokens", "5", "max_completion_tokens"),
        ("stream", "yes", "stream"),
        ("stop", [1], "stop[0]"),
        ("n", 0, "n"),
        ("tools", {}, "tools"),
        ("tool_choice", 5, "tool_choice"),
        ("response_format", "json", "response_format"),
        ("logprobs", 5, "logprobs"),
        ("seed", 1.5, "seed"),
        ("ctx_size", "8192", "ctx_size"),
        ("enable_thinking", "no", "enable_thinking"),
        ("stream_options", [], "stream_options"),
        ("route_trace", "yes", "route_trace"),
    ],
)
def test_arguments_of_the_wrong_type_name_the_field(daemon: Daemon, field: str, value: object, param: str) -> None:
    answer = daemon.post(CHAT, good(**{field: value}))
    assert answer.status == 400
    assert answer.error["code"] == "invalid_argument"
    assert answer.error["param"] == param
    assert param in answer.error["message"]
    assert not daemon.loaded(), "nothing is loaded for a request that cannot be answered"


def test_numbers_out_of_range(daemon: Daemon) -> None:
    for text in (b"1e999", b"1" + b"0" * 100_000):
        body = b'{"model":"a","messages":[{"role":"user","content":"x"}],"temperature":' + text + b"}"
        assert daemon.post(CHAT, body).status == 400
