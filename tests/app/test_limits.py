"""What a daemon bears: too much of everything, secrets, and names that want to be log lines."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.daemon import Daemon, wait_for
from tests.stream import Stream

Make = Callable[..., Daemon]

MIB = 2**20
CHAT = "/v1/chat/completions"


@pytest.fixture
def steady(daemon: Daemon) -> Iterator[Daemon]:
    """The daemon; it may not have grown by more than 64 MiB, and must answer, after the test."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    before = process.memory_info().rss
    yield daemon
    assert daemon.get("/live").status == 200
    assert process.memory_info().rss - before < 64 * MIB


def raw(daemon: Daemon, data: bytes, *, timeout: float = 10) -> bytes:
    """What the daemon says to these bytes until it closes."""
    answer = b""
    with socket.create_connection(("127.0.0.1", daemon.port), timeout=timeout) as one:
        try:
            one.sendall(data)
            while piece := one.recv(65536):
                answer += piece
        except ConnectionError:
            pass
    return answer


def head(*lines: str, path: str = CHAT) -> bytes:
    return "\r\n".join((f"POST {path} HTTP/1.1", "Host: localhost", "Connection: close", *lines, "", "")).encode()


def test_a_body_that_says_it_is_too_large_is_refused_unread(steady: Daemon) -> None:
    assert raw(steady, head("Content-Type: application/json", "Content-Length: 2147483648")).startswith(
        b"HTTP/1.1 413 "
    )


@pytest.mark.parametrize(
    "lines",
    [
        ("Content-Length: -1",),
        ("Content-Length: x",),
        ("Content-Length: 99999999999999999999999999999",),
        ("Content-Length: 2", "Content-Length: 5"),
        ("Transfer-Encoding: chunked", "Content-Length: 5"),
    ],
    ids=str,
)
def test_a_length_that_is_none_is_no_failure_of_the_daemon(steady: Daemon, lines: tuple[str, ...]) -> None:
    answer = raw(steady, head(*lines) + b"5\r\nhello\r\n0\r\n\r\n")
    assert answer == b"" or 400 <= int(answer.split()[1]) < 500


def test_a_body_in_chunks_that_never_ends_can_be_left(steady: Daemon) -> None:
    start = head("Content-Type: application/json", "Transfer-Encoding: chunked")
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as one:
        one.sendall(start)
        for _ in range(20):
            one.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
    time.sleep(0.1)


def test_a_body_in_chunks_is_read(steady: Daemon) -> None:
    body = b'{"model":"a"}'
    chunks = b"".join(b"1\r\n" + bytes((byte,)) + b"\r\n" for byte in body)
    answer = raw(steady, head("Content-Type: application/json", "Transfer-Encoding: chunked") + chunks + b"0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"missing_argument" in answer


@pytest.mark.parametrize("field", ["temperature", "max_tokens", "seed", "n", "ctx_size"])
def test_a_number_of_a_million_digits(steady: Daemon, field: str) -> None:
    number = b"1" + b"0" * 1_000_000
    body = b'{"model":"a","messages":[{"role":"user","content":"x"}],"' + field.encode() + b'":' + number + b"}"
    answer = steady.post(CHAT, body)
    assert answer.status == 400
    assert len(answer.body) < 5000


@pytest.mark.parametrize("depth", [2_000, 100_000, 1_000_000])
@pytest.mark.parametrize("field", ["tools", "stop", "anything"])
def test_deep_nesting(steady: Daemon, field: str, depth: int) -> None:
    nested = b"[" * depth + b"]" * depth
    body = b'{"model":"a","messages":[{"role":"user","content":"x"}],"' + field.encode() + b'":' + nested + b"}"
    assert steady.post(CHAT, body).status == 400


@pytest.mark.parametrize("path", ["/v1/load", "/v1/pull", "/v1/delete", "/v1/unload", "/internal/set"])
def test_deep_nesting_elsewhere(steady: Daemon, path: str) -> None:
    body = b'{"model_name":"none","x":' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b"}"
    assert 400 <= steady.post(path, body).status < 500 or path == "/v1/unload"


@pytest.mark.parametrize(
    "data",
    [
        head("X-Long: " + "x" * MIB),
        head(*(f"X-{number}: {'y' * 1000}" for number in range(2000))),
        b"GET /" + b"a" * MIB + b" HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    ],
    ids=["one header", "many headers", "path"],
)
def test_a_head_of_a_megabyte(steady: Daemon, data: bytes) -> None:
    answer = raw(steady, data)
    assert answer == b"" or 400 <= int(answer.split()[1]) < 500


def test_a_head_that_never_ends(steady: Daemon) -> None:
    """A header without an end is cut off before it fills the memory."""
    sent = 0
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as one:
        one.sendall(b"GET /live HTTP/1.1\r\nHost: localhost\r\nX-Long: ")
        try:
            while sent < 256 * MIB:
                one.sendall(b"x" * MIB)
                sent += MIB
        except (ConnectionError, TimeoutError):
            pass
    assert sent < 256 * MIB


@pytest.mark.parametrize("data", [b"\x16\x03\x01\x02\x00", b"PRI * HTTP/2.0\r\n\r\n", b"\r\n" * 1000, b"GET\r\n\r\n"])
def test_bytes_that_are_no_request(steady: Daemon, data: bytes) -> None:
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as one:
        one.sendall(data)
        one.shutdown(socket.SHUT_WR)
        answer = one.recv(65536)
    assert answer == b"" or 400 <= int(answer.split()[1]) < 500


def test_expecting_to_continue(steady: Daemon) -> None:
    with socket.create_connection(("127.0.0.1", steady.port), timeout=10) as one:
        one.sendall(head("Content-Type: application/json", "Content-Length: 2", "Expect: 100-continue"))
        assert one.recv(1000).startswith(b"HTTP/1.1 100 ")
        one.sendall(b"{}")
        assert one.recv(1000).startswith(b"HTTP/1.1 400 ")


def test_clients_that_never_finish_their_request_keep_nobody_out(steady: Daemon) -> None:
    lazy = [socket.create_connection(("127.0.0.1", steady.port), timeout=10) for _ in range(200)]
    try:
        for number, one in enumerate(lazy):
            part = head("Content-Type: application/json", "Content-Length: 100") + b'{"model"'
            one.sendall(part if number % 2 else part[:30])
        for _ in range(5):
            assert steady.get("/live", timeout=5).status == 200
        assert steady.chat("a").status == 200
    finally:
        for one in lazy:
            one.close()


def test_more_requests_than_may_wait_are_told_when_to_come_back(daemon: Daemon) -> None:
    assert daemon.chat("a").status == 200
    assert daemon.post("/internal/set", {"max_queued_requests": 3}).status == 200
    try:
        running = [Stream(daemon, {"model": "a", "fake": {"tokens": 2000, "interval": 0.02}}) for _ in range(4)]
        for stream in running:
            stream.take(1)
        refused = daemon.chat("a")
        assert refused.status == 429
        assert refused.error["code"] == "queue_full"
        assert int(refused.headers["retry-after"]) >= 1
        assert "x-should-retry" not in refused.headers
        assert daemon.get("/live", timeout=5).status == 200
        assert daemon.get("/v1/models", timeout=5).status == 200
        assert daemon.get("/v1/health", timeout=5).status == 200
        for stream in running:
            stream.hang_up()
        wait_for(lambda: not daemon.entry("a")["is_busy"])
        assert daemon.chat("a").status == 200
    finally:
        daemon.post("/internal/set", {"max_queued_requests": 256})


# Secrets and logs.

NASTY = "x\r\n2026-01-01 00:00:00.000 [Info] (lemonade.app) FORGED\x1b[31m\x00\u2028FORGED"


@pytest.mark.parametrize("path", [CHAT, "/v1/load", "/v1/pull", "/v1/delete", "/v1/unload", "/internal/pin"])
def test_a_name_cannot_forge_a_line_of_the_log(daemon: Daemon, path: str) -> None:
    daemon.post("/internal/set", {"log_level": "trace"})
    body = {"model": NASTY, "model_name": NASTY, "messages": [{"role": "user", "content": "x"}], "pinned": True}
    assert 400 <= daemon.post(path, body).status < 500
    assert 400 <= daemon.get("/v1/models/x%0d%0aFORGED%1b").status < 500
    for line in daemon.log.split("\n"):
        assert not line.startswith("2026-01-01 00:00:00.000")
        assert not line.startswith("FORGED")
        assert not any(ord(mark) < 32 for mark in line), line


@pytest.mark.skipif(sys.platform == "win32", reason="names of files")
def test_the_name_of_a_file_cannot_forge_a_line(make_daemon: Make) -> None:
    one = make_daemon()
    (one.models / "x\r\nFORGED\x1b[31m.gguf").write_bytes(b"GGUF" + bytes(100))
    with one:
        assert one.get("/v1/models").status == 200
        lines = wait_for(lambda: [line for line in one.log.split("\n") if "FORGED" in line])
        assert all(line.startswith("20") and line.isprintable() for line in lines)


def test_what_an_engine_writes_cannot_forge_a_line(make_daemon: Make) -> None:
    one = make_daemon(switches={"noise": 5}, config={"log_level": "trace"})
    one.add_model("a")
    with one:
        assert one.chat("a").status == 200
        lines = wait_for(lambda: [line for line in one.log.split("\n") if "red" in line])
        assert "\x1b" not in lines[0]
        assert max(map(len, one.log.split("\n"))) < 3000


KEYS = {
    "LEMONADE_API_KEY": "sk-CANARY-1",
    "LEMONADE_ADMIN_API_KEY": "sk-CANARY-2",
    "HF_TOKEN": "hf_CANARY3CANARY3CANARY3",
    "LLAMA_API_KEY": "sk-CANARY-4",
}


def test_keys_are_seen_nowhere(make_daemon: Make) -> None:
    one = make_daemon(env=KEYS, config={"log_level": "trace"})
    one.add_model("a")
    answers: list[Any] = []
    with one:
        for given in (*KEYS.values(), "sk-CANARY-5"):
            for headers in ({"Authorization": f"Bearer {given}"}, {"X-Api-Key": given}):
                for path in ("/v1/models", "/internal/config", f"/v1/models?api_key={given}", "/v1/nope"):
                    answers.append(one.get(path, headers=headers))
                answers.append(one.post("/v1/load", {"model_name": "none"}, headers=headers))
        good = {"Authorization": f"Bearer {KEYS['LEMONADE_API_KEY']}"}
        body = {"model": "a", "messages": [{"role": "user", "content": "x"}]}
        assert one.post(CHAT, body, headers=good).status == 200
        entry = one.get("/v1/health", headers=good).json()["all_models_loaded"][0]
        assert "CANARY" not in " ".join(entry["launch_command"])
        if sys.platform == "linux":
            assert one.process is not None
            for child in psutil.Process(one.process.pid).children(recursive=True):
                assert "CANARY" not in " ".join(child.cmdline())
            assert b"CANARY" not in Path(f"/proc/{entry['pid']}/environ").read_bytes()
        assert one.stop() == 0
    assert {answer.status for answer in answers} >= {200, 401, 404}
    for answer in answers:
        assert b"CANARY" not in answer.body
        assert "CANARY" not in str(answer.headers)
    assert "CANARY" not in one.log
    for file in (one.folder / "cache").rglob("*"):
        assert not file.is_file() or b"CANARY" not in file.read_bytes(), file
