"""Residency over real processes: the fake engine, and what happens to processes in the world."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

import msgspec
import pytest

from lemonade.engines.connection import Reply
from lemonade.engines.engine import Launch
from lemonade.errors import EngineLost, ModelLoadError
from lemonade.model import Model
from lemonade.residency.lease import Lease
from lemonade.residency.manager import Residency
from lemonade.residency.watchdog import Limits
from tests.engines.launching import fake_launch
from tests.residency.fakes import model, settings

A, B = model("A"), model("B")
Make = Callable[..., Residency]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")


class RealLoader:
    """Launches the fake engine; `switches` by model name."""

    def __init__(self) -> None:
        self.switches: dict[str, dict[str, Any]] = {}
        self.launches: list[str] = []
        self.program: str | None = None

    async def fetch(self, model: Model, options: Mapping[str, Any]) -> None:
        pass

    def options(self, model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        return {"ctx_size": -1, "pinned": False, **request}

    def device(self, model: Model, options: Mapping[str, Any]) -> str:
        return "cpu"

    def check(self, model: Model, options: Mapping[str, Any]) -> None:
        pass

    def sized(self, model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**options, "ctx_size": 4096}

    def launch(self, model: Model, options: Mapping[str, Any], port: int) -> Launch:
        self.launches.append(model.name)
        launch = fake_launch(model.name, port=port, **self.switches.get(model.name, {}))
        if self.program is not None:
            return msgspec.structs.replace(launch, argv=(self.program, *launch.argv[1:]))
        return launch


@pytest.fixture
def loader() -> RealLoader:
    return RealLoader()


@pytest.fixture
async def make(loader: RealLoader) -> AsyncIterator[Make]:
    made: list[Residency] = []

    def build(**values: Any) -> Residency:
        made.append(Residency(loader, settings(**values), env={}))
        return made[-1]

    yield build
    for residency in made:
        pids = [resident.pid for resident in residency.residents()]
        await asyncio.wait_for(residency.close(), 15)
        assert not any(alive(pid) for pid in pids)


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def chat(lease: Lease, *, stream: bool = False, **fake: Any) -> Reply:
    body = {"messages": [], "stream": stream, "fake": fake}
    return await lease.connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())


async def answer(residency: Residency, of: Model, **fake: Any) -> tuple[str, int]:
    async with residency.lease(of) as lease:
        data = json.loads(await (await chat(lease, **fake)).read())
        return data["choices"][0]["message"]["content"], lease.resident.pid


async def gone(residency: Residency) -> float:
    """Seconds until nothing is in memory."""
    began = time.monotonic()
    while residency.residents():
        assert time.monotonic() - began < 5
        await asyncio.sleep(0.005)
    return time.monotonic() - began


async def test_a_stream_is_whole_before_the_next_model_starts(make: Make, loader: RealLoader) -> None:
    residency = make()
    events: list[str] = []

    async def stream() -> bytes:
        async with residency.lease(A, streaming=True) as lease:
            reply = await chat(lease, stream=True, tokens=20, interval=0.02)
            data = b""
            while chunk := await reply.chunk():
                lease.touch()
                data += chunk
            events.append("A's last byte")
            return data

    streaming = asyncio.ensure_future(stream())
    while not (residency.residents() and residency.residents()[0].is_streaming):
        await asyncio.sleep(0.01)
    _, pid = await answer(residency, B)
    events.append("B's answer")
    data = await streaming
    assert all(f"w{number} ".encode() in data for number in range(20))
    assert data.endswith(b"data: [DONE]\n\n")
    assert events == ["A's last byte", "B's answer"]
    assert [resident.pid for resident in residency.residents()] == [pid]


async def test_requests_across_the_end_of_a_load_all_succeed(make: Make, loader: RealLoader) -> None:
    residency = make()
    loader.switches["A"] = {"slow_start": 0.5}
    first = asyncio.ensure_future(answer(residency, A))
    await asyncio.sleep(0.55)
    others = [asyncio.ensure_future(answer(residency, B)), asyncio.ensure_future(answer(residency, A))]
    await asyncio.gather(first, *others)
    second = asyncio.ensure_future(answer(residency, B))
    await asyncio.sleep(0.05)
    await asyncio.gather(second, answer(residency, A))


async def test_twenty_first_requests_and_a_load_start_one_process(make: Make, loader: RealLoader) -> None:
    residency = make()
    *answers, resident = await asyncio.gather(*(answer(residency, A) for _ in range(20)), residency.load(A, {}))
    assert {pid for _, pid in answers} == {resident.pid}
    assert (await residency.load(A, {})).pid == resident.pid
    assert loader.launches == ["A"]


async def test_unload_while_streaming_waits_and_leaves_a_sound_state(make: Make) -> None:
    residency = make()
    async with residency.lease(A) as lease:
        reply = await chat(lease, stream=True, tokens=10, interval=0.02)
        unload = asyncio.ensure_future(residency.unload(A))
        data = b""
        while chunk := await reply.chunk():
            data += chunk
        assert [resident.status for resident in residency.residents()] == ["evicting"]
        pid = lease.resident.pid
    await unload
    assert data.endswith(b"data: [DONE]\n\n")
    assert not alive(pid)
    await answer(residency, A)
    await residency.unload(A)
    assert residency.residents() == []


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_process_that_ends_is_noticed_reaped_and_replaced(make: Make, number: signal.Signals) -> None:
    residency = make()
    _, pid = await answer(residency, A)
    residency.pin(A, True)
    os.kill(pid, number)  # on SIGTERM the fake engine exits with 0
    assert await gone(residency) < 1
    assert not alive(pid)
    _, second = await answer(residency, A)
    assert second != pid
    assert residency.residents()[0].pinned


async def test_a_crash_inside_a_request_and_its_replay(make: Make) -> None:
    residency = make()
    with pytest.raises(EngineLost) as caught:
        await answer(residency, A, crash_before=True)
    assert caught.value.code == "backend_unavailable"
    assert (await answer(residency, A))[0] == "The capital of France is Paris."


async def test_an_engine_that_cuts_one_answer_is_not_ended_for_it(make: Make, loader: RealLoader) -> None:
    residency = make()
    _, pid = await answer(residency, A)
    with pytest.raises(EngineLost):
        await answer(residency, A, hang_up=True)
    assert (await answer(residency, A))[1] == pid
    assert loader.launches == ["A"]


async def test_exit_during_the_load_tells_the_last_lines_once(make: Make, loader: RealLoader) -> None:
    residency = make()
    loader.switches["A"] = {"exit_at_start": 7}
    results = await asyncio.gather(*(answer(residency, A) for _ in range(3)), return_exceptions=True)
    results.append((await asyncio.gather(answer(residency, A), return_exceptions=True))[0])
    for error in results:
        assert isinstance(error, ModelLoadError)
        assert error.message.startswith("Failed to load model 'A': A exited with code 7")
        assert "fatal: the file is no model" in error.message
        assert not error.retry
    assert loader.launches == ["A"]


async def test_a_missing_program_is_named(make: Make, loader: RealLoader) -> None:
    residency = make()
    loader.program = "/nowhere/llama-server"
    with pytest.raises(ModelLoadError, match="'/nowhere/llama-server' of A is not there"):
        await answer(residency, A)
    assert residency.residents() == []


async def test_an_engine_that_never_becomes_ready_is_ended(make: Make, loader: RealLoader) -> None:
    residency = make(global_timeout=1)
    loader.switches["A"] = {"never_ready": True}
    with pytest.raises(ModelLoadError, match="was not ready after 1 s"):
        await answer(residency, A)
    loader.switches.clear()
    await answer(residency, B)


async def test_a_hang_is_ended_by_the_watchdog_with_its_reason(make: Make, loader: RealLoader) -> None:
    residency = make()
    residency.watchdog.limits = Limits(grace=0.2, poll=0.1, probe=0.1, failures=2)
    _, pid = await answer(residency, A)
    resident = residency.residents()[0]
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(EngineLost, match="did not answer 2 looks at its health") as caught:
        await asyncio.wait_for(answer(residency, A), 10)
    assert caught.value.code == "backend_watchdog_reset"
    assert resident.watchdog_reset
    assert resident.watchdog_reset_reason == caught.value.message
    assert resident.backend_health == "watchdog_reset"
    assert not alive(pid)
    assert (await answer(residency, A))[1] != pid


async def test_close_ends_engines_and_their_children(make: Make, loader: RealLoader) -> None:
    residency = make(max_loaded_models=-1)
    loader.switches["A"] = {"fork_child": True}
    await answer(residency, A)
    async with residency.lease(A) as lease:
        record = json.loads(await (await lease.connection.request("GET", "/fake/record")).read())
    loader.switches["B"] = {"slow_start": 60}
    loading = asyncio.ensure_future(answer(residency, B))
    while loader.launches != ["A", "B"]:
        await asyncio.sleep(0.01)
    began = time.monotonic()
    await asyncio.wait_for(residency.close(), 10)
    assert time.monotonic() - began < 5
    assert isinstance((await asyncio.gather(loading, return_exceptions=True))[0], Exception)
    for pid in (record["pid"], record["child"]):
        while alive(pid):  # the child is reaped by init
            assert time.monotonic() - began < 5
            await asyncio.sleep(0.01)


async def test_downsizing_erases_the_slots_of_llama_cpp(make: Make) -> None:
    residency = make(auto_evict=True)
    await answer(residency, A)
    resident = residency.residents()[0]
    resident.used -= 61
    await residency.memory.simulate(-1)
    assert resident.status == "downsized"
    async with residency.lease(A) as lease:
        assert resident.status == "in_use"
        record = json.loads(await (await lease.connection.request("GET", "/fake/record")).read())
    assert record["requests"][-1]["path"] == "/slots/0?action=erase"
    assert resident.status == "ready"
