from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import psutil
import pytest

from tests.daemon import Daemon


@asynccontextmanager
async def following(daemon: Daemon, **message: Any) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    async with aiohttp.ClientSession() as session, session.ws_connect(daemon.url + "/v1/logs/stream") as socket:
        await socket.send_json({"type": "logs.subscribe", **message})
        yield socket


async def log(daemon: Daemon) -> None:
    """Has the daemon write some lines."""
    for path, body in (("unload", None), ("load", {"model_name": "a"}), ("load", {"model_name": "b"})):
        await asyncio.to_thread(daemon.post, f"/v1/{path}", body)


async def test_a_snapshot_and_then_each_line_without_a_gap(daemon: Daemon) -> None:
    await log(daemon)
    async with following(daemon) as socket:
        first = await socket.receive_json(timeout=10)
        assert first["type"] == "logs.snapshot"
        entries = first["entries"]
        assert set(entries[0]) == {"seq", "timestamp", "severity", "tag", "line"}
        assert "listens on" in entries[0]["line"]
        task = asyncio.create_task(log(daemon))
        for _ in range(2):
            news = await socket.receive_json(timeout=10)
            assert news["type"] == "logs.entry"
            assert news["entry"]["seq"] == entries[-1]["seq"] + 1
            entries.append(news["entry"])
            if len(entries) > 3:
                break
        await task
    said = [line for line in daemon.log.splitlines() if line.startswith("20")]
    for entry, line in zip(entries, said, strict=False):
        assert line == "{timestamp} [{severity}] ({tag}) {line}".format(**entry)


async def test_from_a_place_on(daemon: Daemon) -> None:
    await log(daemon)
    async with following(daemon, after_seq=None) as socket:
        entries = (await socket.receive_json(timeout=10))["entries"]
        last = entries[-1]["seq"]
        await socket.send_json({"type": "logs.subscribe", "after_seq": last - 1})
        again = await socket.receive_json(timeout=10)
        assert again == {"type": "logs.snapshot", "entries": entries[-1:]}
        await socket.send_json({"type": "logs.subscribe", "after_seq": last})
        assert (await socket.receive_json(timeout=10))["entries"] == []
        # A place that only a daemon before this one can have given.
        await socket.send_json({"type": "logs.subscribe", "after_seq": last + 100_000})
        assert (await socket.receive_json(timeout=10))["entries"][0] == entries[0]


@pytest.mark.parametrize(
    "message", ["", "no json", "[]", '{"type":"hello"}', '{"type":"logs.subscribe","after_seq":"x"}']
)
async def test_other_messages_are_errors_and_the_connection_stays(daemon: Daemon, message: str) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(daemon.url + "/logs/stream") as socket:
        await socket.send_str(message)
        answer = await socket.receive_json(timeout=10)
        assert answer["type"] == "error"
        assert answer["error"]["message"] == "Expected logs.subscribe message"
        await socket.send_json({"type": "logs.subscribe"})
        assert (await socket.receive_json(timeout=10))["type"] == "logs.snapshot"


async def test_one_that_is_slow_holds_nobody_up_and_collects_nothing(daemon: Daemon) -> None:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    async with following(daemon) as slow:
        await slow.receive_json(timeout=10)
        before = process.memory_info().rss
        assert slow._response is not None
        assert slow._response.connection is not None
        assert slow._response.connection.transport is not None
        transport = slow._response.connection.transport
        transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(3):
            await log(daemon)
        assert process.memory_info().rss - before < 20e6
        async with following(daemon) as quick:
            assert (await quick.receive_json(timeout=10))["type"] == "logs.snapshot"
        transport.resume_reading()  # type: ignore[attr-defined]
