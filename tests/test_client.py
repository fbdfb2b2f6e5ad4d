from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.address import Address
from lemonade.client import (
    BadAnswer,
    Client,
    Event,
    NoDaemon,
    RemoteError,
    StreamCut,
    events,
    path_of,
    remote_error,
)

STREAM = (
    ': ping\r\n\r\nevent: progress\r\ndata: {"a":1}\r\n\r\n'
    "data: grüße\ndata:zwei\n\n\rdata: drei\r\rid: 4\n\ndata: lost"
)
EVENTS = [Event("progress", '{"a":1}'), Event("message", "grüße\nzwei"), Event("message", "drei")]


@given(st.lists(st.integers(1, 40)))
def test_events_wherever_the_bytes_are_cut(sizes: list[int]) -> None:
    raw = STREAM.encode()
    cuts = [0]
    for size in sizes:
        cuts.append(min(cuts[-1] + size, len(raw)))
    pieces = [raw[a:b] for a, b in zip(cuts, [*cuts[1:], len(raw)], strict=True)]
    assert list(events(iter(pieces))) == EVENTS


@contextmanager
def answering(*raw: bytes) -> Iterator[Client]:
    """A server that takes one connection, answers with these bytes, and closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                for piece in raw:
                    connection.sendall(piece)
                # A close with unread bytes would be a reset, which may overtake what was sent.
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield Client(Address("127.0.0.1", server.getsockname()[1]))
        thread.join(10)


def reply(body: bytes, status: str = "200 OK", kind: str = "application/json") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def test_error_of_the_daemon() -> None:
    body = json.dumps({"error": {"message": "No.", "type": "t", "code": "c"}}).encode()
    with answering(reply(body, "409 Conflict")) as client, pytest.raises(RemoteError) as caught:
        client.post("/x", {})
    assert (caught.value.message, caught.value.status, caught.value.code, caught.value.type) == ("No.", 409, "c", "t")


@pytest.mark.parametrize(
    ("raw", "failure"),
    [
        (reply(b"<html>"), BadAnswer),
        (reply(b"<html>", "502 Bad Gateway"), RemoteError),
        (b"SSH-2.0-OpenSSH_9\r\n", BadAnswer),
        (b"", StreamCut),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", StreamCut),
    ],
)
def test_what_is_no_answer(raw: bytes, failure: type[Exception]) -> None:
    with answering(raw) as client, pytest.raises(failure):
        client.get("/x")


def test_another_program_on_the_port_is_not_taken_for_the_daemon() -> None:
    for raw in (reply(b"[]"), reply(b"{}", "404 Not Found"), b"+PONG\r\n"):
        with answering(raw) as client, pytest.raises(BadAnswer):
            client.is_alive()


def test_a_stream_that_is_refused_is_the_error() -> None:
    body = json.dumps({"error": {"message": "No."}}).encode()
    with answering(reply(body, "400 Bad Request")) as client, pytest.raises(RemoteError, match="No"):
        client.stream("/x", {})
    with answering(reply(b"{}")) as client, pytest.raises(BadAnswer):
        client.stream("/x", {})


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    ("chunk", "failure"),
    [
        (b'data: {"error": {"message": "Died."}}\n\n', RemoteError),
        (b'data: { "error":"Died."}\n\n', RemoteError),
        (b'event: error\ndata: {"error":"Died.","code":"x"}\n\n', RemoteError),
        (b"data: half", StreamCut),
    ],
)
def test_a_stream_that_fails_is_never_silent(chunk: bytes, failure: type[Exception]) -> None:
    with answering(HEAD, b"b\r\ndata: one\n\n\r\n", b"%x\r\n%s\r\n" % (len(chunk), chunk)) as client:
        seen: list[str] = []
        with pytest.raises(failure), client.stream("/x", {}) as stream:
            seen.extend(event.data for event in stream)
    assert seen == ["one"]


def test_a_null_error_is_none() -> None:
    chunk = b'data: {"error": null}\n\n'
    with answering(HEAD, b"%x\r\n%s\r\n0\r\n\r\n" % (len(chunk), chunk)) as client, client.stream("/x", {}) as stream:
        assert [event.json() for event in stream] == [{"error": None}]


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ({"error": {"message": "m", "code": 400}}, "m", "400"),
        ({"error": "m", "code": "c"}, "m", "c"),
        ({"error": {"detail": "d"}}, '{"detail": "d"}', None),
        ([], "The daemon answered with status 500.", None),
    ],
)
def test_shapes_of_errors(body: object, message: str, code: str | None) -> None:
    error = remote_error(body, 500)
    assert (error.message, error.code) == (message, code)


def test_nobody_there() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        client = Client(Address("127.0.0.1", probe.getsockname()[1]))
        with pytest.raises(NoDaemon, match="No daemon runs at http://127"):
            client.get("/x")
        assert not client.is_alive()


def test_localhost_is_both_loopbacks() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(reply(b'{"status": "ok"}'))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        assert Client(Address("localhost", port)).is_alive()
        thread.join(10)


def test_path_of_a_model() -> None:
    assert path_of("owner/name:tag ü") == "/v1/models/owner/name:tag%20%C3%BC"
    # What is no UTF-8 in a terminal reaches a program like this.
    assert path_of("\udcff") == "/v1/models/%3F"
