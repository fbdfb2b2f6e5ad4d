from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import pytest

from lemonade.engines.connection import Connection, Reply
from lemonade.engines.process import EngineProcess
from lemonade.errors import EngineLost
from tests.engines.launching import fake_launch

CHAT = "/v1/chat/completions"


@asynccontextmanager
async def connected(**switches: Any) -> AsyncIterator[Connection]:
    process = await EngineProcess.start(fake_launch(**switches))
    await process.wait_ready(30)
    connection = Connection(process)
    try:
        yield connection
    finally:
        await connection.close()
        await process.stop(grace=0.5)


def body(*, stream: bool = False, **fake: Any) -> bytes:
    return json.dumps({"messages": [], "stream": stream, **({"fake": fake} if fake else {})}).encode()


async def chunks(reply: Reply) -> bytes:
    parts = []
    while part := await reply.chunk():
        parts.append(part)
    return b"".join(parts)


async def record(connection: Connection) -> dict[str, Any]:
    reply = await connection.request("GET", "/fake/record")
    found: dict[str, Any] = json.loads(await reply.read())
    return found


async def test_an_answer_comes_as_it_is() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body())
        assert reply.status == 200
        assert reply.headers["content-type"].startswith("application/json")
        answer = json.loads(await reply.read())
        assert answer["choices"][0]["message"]["content"] == "The capital of France is Paris."


async def test_the_request_goes_as_it_is() -> None:
    async with connected() as connection:
        raw = b'{"messages":[],  "x": "\xed\x95\x9c"}'
        await (await connection.request("POST", CHAT + "?a=%20b", raw)).read()
        seen = (await record(connection))["requests"][0]
        assert seen["path"] == CHAT + "?a=%20b"
        assert seen["body"]["x"] == "한"
        headers = {name.lower(): value for name, value in seen["headers"].items()}
        assert headers["content-type"] == "application/json"
        assert headers["content-length"] == str(len(raw))
        assert not {"accept-encoding", "user-agent", "cookie", "authorization"} & set(headers)


async def test_other_headers_may_be_given() -> None:
    async with connected() as connection:
        headers: Mapping[str, str] = {"Content-Type": "application/json", "X-Trace": "1"}
        await (await connection.request("POST", CHAT, body(), headers)).read()
        assert (await record(connection))["requests"][0]["headers"]["X-Trace"] == "1"


async def test_a_stream_arrives_piece_by_piece() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, tokens=5, interval=0.05))
        loop = asyncio.get_running_loop()
        times = []
        while await reply.chunk():
            times.append(loop.time())
        assert len(times) >= 5
        assert times[-1] - times[0] > 0.2


async def test_one_byte_per_write_changes_nothing() -> None:
    text = "안녕하세요 🌍 北京"
    async with connected() as connection:
        whole = await chunks(await connection.request("POST", CHAT, body(stream=True, text=text)))
        split = await chunks(await connection.request("POST", CHAT, body(stream=True, text=text, split=1)))
        assert split == whole
        assert "北京" in split.decode()


async def test_read_stops_at_its_limit() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, tokens=1000))
        assert len(await reply.read(100)) == 100
        small = await connection.request("POST", CHAT, body(error={"status": 503, "text": "busy"}))
        assert (small.status, await small.read(100)) == (503, b"busy")


async def test_a_socket_is_used_again() -> None:
    async with connected() as connection:
        for _ in range(5):
            await (await connection.request("POST", CHAT, body())).read()
        sockets = len(process_connections(connection))
        assert sockets == 1


def process_connections(connection: Connection) -> list[Any]:
    import psutil

    port = connection.process.launch.port
    found = psutil.Process(connection.process.pid).net_connections("tcp")
    return [item for item in found if item.laddr.port == port and item.status == psutil.CONN_ESTABLISHED]


@pytest.mark.parametrize(
    "fake", [{"stall": 2}, {"tokens": 10_000, "interval": 0.02}, {"tokens": 100_000}], ids=["stalled", "slow", "flood"]
)
async def test_close_before_the_end_reaches_the_engine(fake: dict[str, Any]) -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, **fake))
        await reply.chunk()
        reply.close()
        await hung_up(connection)


async def test_cancelling_a_request_reaches_the_engine() -> None:
    async with connected() as connection:
        for fake in ({"stall": "headers"}, {"tokens": 1000, "interval": 1}):
            task = asyncio.create_task(connection.request("POST", CHAT, body(**fake)))
            while (await record(connection))["in_flight"] == 0:
                await asyncio.sleep(0.01)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await hung_up(connection)


async def hung_up(connection: Connection) -> None:
    """The engine notices within a second that nobody listens."""
    async with asyncio.timeout(1):
        while True:
            state = await record(connection)
            if state["in_flight"] == 0 and state["requests"][-1]["hung_up"]:
                return
            await asyncio.sleep(0.01)


async def test_close_after_the_end_keeps_the_socket() -> None:
    async with connected() as connection:
        for _ in range(3):
            reply = await connection.request("POST", CHAT, body(stream=True))
            await chunks(reply)
            reply.close()
        assert len(process_connections(connection)) == 1


@pytest.mark.parametrize("stream", [True, False])
async def test_a_crash_before_the_answer(stream: bool) -> None:
    async with connected() as connection:
        with pytest.raises(EngineLost, match="fake-engine was killed by SIGKILL"):
            await connection.request("POST", CHAT, body(stream=stream, crash_before=True))
        with pytest.raises(EngineLost, match="was killed by SIGKILL"):
            await connection.request("POST", CHAT, body())


async def test_a_crash_inside_the_answer_comes_after_its_pieces() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, tokens=9, crash_after=3))
        got = b""
        with pytest.raises(EngineLost, match="was killed by SIGKILL"):
            while True:
                got += await reply.chunk()
        assert got.count(b"data: ") == 3


async def test_an_exit_inside_the_answer_is_named() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, exit_after=2))
        with pytest.raises(EngineLost, match="exited with code 3"):
            await reply.read()


async def test_a_socket_cut_by_a_living_engine() -> None:
    async with connected() as connection:
        reply = await connection.request("POST", CHAT, body(stream=True, cut_after=2))
        with pytest.raises(EngineLost, match="closed the connection without a complete answer"):
            await chunks(reply)
        with pytest.raises(EngineLost, match="closed the connection without a complete answer"):
            await connection.request("POST", CHAT, body(hang_up=True))
        assert await (await connection.request("GET", "/health")).read() == b'{"status": "ok"}'


async def test_a_hung_engine_that_is_killed_frees_the_request() -> None:
    async with connected() as connection:
        waiting = asyncio.create_task(connection.request("POST", CHAT, body(stall="headers")))
        while (await record(connection))["in_flight"] == 0:
            await asyncio.sleep(0.01)
        os.kill(connection.process.pid, signal.SIGSTOP)
        await connection.process.stop(grace=0.1)
        with pytest.raises(EngineLost):
            await waiting


async def test_a_kept_socket_that_was_closed_meanwhile_is_no_failure() -> None:
    """A server that closes every socket right after its second request on it, without saying so in the first answer."""
    seen: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        served = 0
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
                await reader.readexactly(length)
                seen.append(served)
                if served:
                    break
                served += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
        except asyncio.IncompleteReadError:
            pass
        writer.close()

    async with connected() as connection, await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        connection.port = server.sockets[0].getsockname()[1]
        for _ in range(3):
            assert await (await connection.request("POST", "/x", b"{}")).read() == b"ok"
        await connection.close()
    assert seen == [0, 1, 0, 1, 0]


async def test_many_at_once() -> None:
    async with connected() as connection:

        async def one(number: int) -> str:
            reply = await connection.request("POST", CHAT, body(stream=number % 2 == 0, text=f"mark-{number}"))
            return (await reply.read()).decode()

        answers = await asyncio.gather(*(one(number) for number in range(100)))
        assert all(f"mark-{number}" in answer for number, answer in enumerate(answers))


@pytest.mark.parametrize("said", [b"What?\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
async def test_what_is_no_http_is_a_lost_engine(said: bytes) -> None:
    async def speak(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(said)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(speak, "127.0.0.1", 0)
    async with server, connected() as connection:
        connection.port = server.sockets[0].getsockname()[1]
        with pytest.raises(EngineLost, match="is no HTTP"):
            await connection.request("GET", "/")
