from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.connection import Connection
from lemonade.engines.engine import ABANDONED, Launch
from lemonade.engines.ports import PortLost, take_port
from lemonade.engines.process import EngineProcess
from lemonade.engines.worker_launch import KEY_HEADER, worker_launch
from lemonade.errors import EngineLost, ModelLoadError

ROOT = Path(__file__).parent.parent.parent


def launch(port: int | None = None, **config: Any) -> Launch:
    return worker_launch(
        name="example",
        module="tests.engines.example_worker",
        config=config,
        port=port or take_port(),
        env={"PYTHONPATH": str(ROOT)},
    )


@pytest.fixture
async def connection() -> AsyncIterator[Connection]:
    process = await EngineProcess.start(launch(answer=42))
    await process.wait_ready(30)
    connection = Connection(process)
    yield connection
    await connection.close()
    await process.stop()


async def ask(connection: Connection, path: str, body: bytes = b"") -> tuple[int, Any]:
    reply = await connection.request("POST", path, body)
    return reply.status, json.loads(await reply.read())


async def seen(connection: Connection, event: str) -> list[str]:
    async with asyncio.timeout(10):
        while True:
            _, events = await ask(connection, "/events")
            if event in events:
                return list(events)
            await asyncio.sleep(0.02)


async def test_an_operation_gets_query_body_and_config(connection: Connection) -> None:
    status, answer = await ask(connection, "/echo?a=1&b=two%20words", b"x" * 3_000_000)
    assert status == 200
    assert answer["query"] == {"a": "1", "b": "two words"}
    assert answer["size"] == 3_000_000
    assert answer["config"] == {"answer": 42}
    assert answer["pid"] == connection.process.pid


async def test_a_failure_of_ours_keeps_its_status_and_names_the_field(connection: Connection) -> None:
    status, answer = await ask(connection, "/refuse")
    assert status == 400
    assert answer["error"]["param"] == "voice"
    assert answer["error"]["code"] == "invalid_argument"


async def test_a_failure_of_the_library_ends_the_job_and_not_the_engine(connection: Connection) -> None:
    status, answer = await ask(connection, "/fail")
    assert (status, answer["error"]["message"]) == (500, "the library is unhappy")
    assert (await ask(connection, "/echo"))[0] == 200
    assert any("RuntimeError" in line for line in connection.process.tail())


async def test_a_stream_comes_piece_by_piece(connection: Connection) -> None:
    reply = await connection.request("POST", "/stream?pieces=1000", b"")
    assert reply.status == 200
    assert reply.headers["content-type"] == "text/plain"
    assert reply.headers["x-example"] == "yes"
    assert await reply.read() == b"".join(b"%d\n" % number for number in range(1000))


async def test_a_stream_that_fails_before_its_first_piece_is_an_error(connection: Connection) -> None:
    status, answer = await ask(connection, "/stream?pieces=2&fail_at=0")
    assert (status, answer["error"]["param"]) == (400, "pieces")


async def test_a_stream_that_fails_later_has_no_end(connection: Connection) -> None:
    reply = await connection.request("POST", "/stream?pieces=9&fail_at=2", b"")
    assert reply.status == 200
    with pytest.raises(EngineLost):
        await reply.read()
    assert (await ask(connection, "/echo"))[0] == 200


async def test_jobs_run_one_after_the_other_in_their_order(connection: Connection) -> None:
    names = "abcde"
    jobs = []
    for name in names:
        jobs.append(asyncio.ensure_future(ask(connection, f"/slow?name={name}&seconds=0.1")))
        await asyncio.sleep(0.03)
    await asyncio.gather(*jobs)
    _, events = await ask(connection, "/events")
    assert events == [f"{what} {name}" for name in names for what in ("begin", "end")]


async def test_a_job_whose_client_leaves_ends_and_the_next_one_begins(connection: Connection) -> None:
    first = asyncio.ensure_future(ask(connection, "/slow?name=a&seconds=60"))
    await seen(connection, "begin a")
    waiting = asyncio.ensure_future(ask(connection, "/slow?name=b&seconds=0"))
    last = asyncio.ensure_future(ask(connection, "/slow?name=c&seconds=0"))
    await asyncio.sleep(0.1)
    waiting.cancel()
    await asyncio.sleep(0.3)
    first.cancel()
    assert (await last)[0] == 200
    events = await seen(connection, "end c")
    assert "cancelled a" in events
    assert "begin b" not in events


async def test_a_stream_whose_client_leaves_is_closed(connection: Connection) -> None:
    reply = await connection.request("POST", "/stream?pieces=100000000", b"")
    await reply.chunk()
    reply.close()
    await seen(connection, "stream closed")


async def test_work_that_cannot_be_stopped_ends_with_the_process(connection: Connection) -> None:
    stuck = asyncio.ensure_future(ask(connection, "/stuck"))
    await asyncio.sleep(0.3)
    assert not connection.process.exited.is_set()
    stuck.cancel()
    await asyncio.wait_for(connection.process.exited.wait(), 10)
    assert connection.process.returncode == ABANDONED


async def test_other_programs_are_not_answered(connection: Connection) -> None:
    url = f"http://127.0.0.1:{connection.port}/echo"

    def ask_without_key(headers: dict[str, str]) -> int:
        request = urllib.request.Request(url, data=b"{}", headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=10)
        with caught.value:
            return int(caught.value.code)

    assert await asyncio.to_thread(ask_without_key, {}) == 403
    assert await asyncio.to_thread(ask_without_key, {KEY_HEADER: "wrong"}) == 403
    # No body is waited for.
    assert await asyncio.to_thread(ask_without_key, {"Content-Length": "9" * 12}) == 403
    assert not any("-key" in word.lower() for word in connection.process.launch.argv)
    assert (await ask(connection, "/key"))[1] == []


async def test_a_refused_start_tells_why() -> None:
    process = await EngineProcess.start(launch(refuse="the file is not there"))
    with pytest.raises(ModelLoadError, match="the file is not there"):
        await process.wait_ready(30)
    await process.stop()


async def test_a_port_that_is_taken_is_told_as_such(connection: Connection) -> None:
    process = await EngineProcess.start(launch(port=connection.port))
    with pytest.raises(PortLost):
        await process.wait_ready(30)
    await process.stop()
