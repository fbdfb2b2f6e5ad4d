from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lemonade import listener as module
from lemonade.errors import ConfigError
from lemonade.listener import MAX_HEAD, AddressInUse, Listener, address, bind, is_open_to_network
from tests.daemon import free_port


async def application(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def running() -> AsyncIterator[Listener]:
    one = Listener(application, "127.0.0.1", free_port())  # type: ignore[arg-type]
    task = asyncio.ensure_future(one.run_until_stopped())
    try:
        yield one
    finally:
        one.stop()
        await task


@asynccontextmanager
async def listening() -> AsyncIterator[int]:
    async with running() as one:
        yield one._asked[1]


async def exchange(port: int, *parts: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 10)
    except ConnectionResetError:
        return b""
    finally:
        writer.close()


@pytest.mark.parametrize(
    "head",
    [
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MAX_HEAD + b"\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\n"
        + b"".join(b"X%d: %s\r\n" % (n, b"a" * 900) for n in range(80))
        + b"\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"a" * MAX_HEAD,
    ],
    ids=["one header", "many headers", "unfinished"],
)
async def test_a_head_has_a_limit(head: bytes) -> None:
    async with listening() as port:
        answer = await exchange(port, head)
        assert answer.startswith(b"HTTP/1.1 431 ")
        assert json.loads(answer.partition(b"\r\n\r\n")[2])["error"]["type"] == "invalid_request_error"


async def test_what_is_no_http_is_told_so_in_json() -> None:
    async with listening() as port:
        answer = await exchange(port, b"\x16\x03\x01 hello\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 400 ")
        assert "error" in json.loads(answer.partition(b"\r\n\r\n")[2])


async def test_a_head_that_does_not_come_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEAD_TIMEOUT", 0.1)
    async with listening() as port:
        assert await exchange(port, b"GET / HTT") == b""
        # A connection that rests between two requests is no such thing.
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for _ in range(2):
            writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert await asyncio.wait_for(reader.readuntil(b"ok"), 5)
            await asyncio.sleep(0.3)
        writer.close()


def test_an_address_in_use_says_so() -> None:
    port = free_port()
    sockets = bind("localhost", port)
    try:
        with pytest.raises(AddressInUse, match="already in use"):
            bind("localhost", port)
        with pytest.raises(AddressInUse):
            bind("127.0.0.1", port)
    finally:
        for one in sockets:
            one.close()


def test_a_host_that_is_not_here() -> None:
    with pytest.raises(ConfigError, match=r"192\.0\.2\.1"):
        bind("192.0.2.1", free_port())
    with pytest.raises(ConfigError, match=r"no\.such\.host"):
        bind("no.such.host.invalid", 1)


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("localhost", "localhost"),
        ("0.0.0.0", "localhost"),
        ("::", "localhost"),
        ("::1", "[::1]"),
        ("10.0.0.1", "10.0.0.1"),
    ],
)
def test_the_address_that_is_shown_can_be_opened(host: str, shown: str) -> None:
    assert address(host, 80) == f"http://{shown}:80"


@pytest.mark.parametrize(
    ("host", "open_to_network"),
    [("localhost", False), ("127.0.0.1", False), ("::1", False), ("0.0.0.0", True), ("", True), ("10.0.0.1", True)],
)
def test_which_addresses_other_machines_reach(host: str, open_to_network: bool) -> None:
    assert is_open_to_network(host) is open_to_network


async def test_a_move_that_failed_does_not_stop_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    def taken(*_: Any) -> None:
        raise OSError("somebody was faster")

    async with running() as one:
        while not one.started:
            await asyncio.sleep(0.01)
        with monkeypatch.context() as patch:
            patch.setattr(Listener, "_move", taken)
            one.move("127.0.0.1", free_port())
            assert one._moving is not None
            await asyncio.wait({one._moving})
        port = free_port()
        one.move("127.0.0.1", port)
        await one._moving
        assert (await exchange(port, b"GET / HTTP/1.0\r\n\r\n")).endswith(b"ok")
