from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lemonade.residency import memory
from lemonade.residency.manager import Residency
from tests.residency.fakes import Clock, FakeConnection, World, model, settings, settle

A, B = model("A"), model("B")


class Bench:
    def __init__(self, **values: Any) -> None:
        self.world = World()
        self.clock = Clock()
        self.residency = Residency(
            self.world,
            settings(max_loaded_models=-1, **values),
            env={},
            start=self.world.start,  # type: ignore[arg-type]
            connect=FakeConnection,  # type: ignore[arg-type]
            clock=self.clock,
        )

    def states(self) -> dict[str, str]:
        return {resident.model.name: resident.status for resident in self.residency.residents()}

    async def pass_(self, seconds: float) -> None:
        self.clock.now += seconds
        await self.residency.memory.evaluate()
        await settle()


@pytest.fixture
async def bench() -> AsyncIterator[Bench]:
    made = Bench(auto_evict=True)
    yield made
    await made.residency.close()


async def test_idle_models_shrink_and_then_go(bench: Bench) -> None:
    await bench.residency.load(A, {})
    await bench.pass_(59)
    assert bench.states() == {"A": "ready"}
    await bench.pass_(1)
    assert bench.states() == {"A": "downsized"}
    asked = ["GET /props", "GET /slots", "POST /slots/0?action=erase", "POST /slots/1?action=erase"]
    assert bench.world.requests == [f"A {one}" for one in asked]
    await bench.pass_(60)
    assert len(bench.world.requests) == 4
    await bench.pass_(180)
    assert bench.states() == {}


async def test_an_engine_that_sleeps_is_not_woken(bench: Bench) -> None:
    await bench.residency.load(A, {})
    bench.world.started[0].sleeping = True
    await bench.pass_(60)
    assert bench.states() == {"A": "downsized"}
    assert bench.world.requests == ["A GET /props"]


async def test_use_restores_and_other_recipes_are_only_marked(bench: Bench) -> None:
    other = model("O", "transcription", recipe="whispercpp")
    await bench.residency.load(other, {})
    await bench.pass_(60)
    assert bench.states() == {"O": "downsized"}
    assert bench.world.requests == []
    async with bench.residency.lease(other):
        assert bench.states() == {"O": "in_use"}
    assert bench.states() == {"O": "ready"}


async def test_at_most_one_goes_in_one_evaluation(bench: Bench) -> None:
    await bench.residency.load(A, {})
    bench.clock.now += 1
    await bench.residency.load(B, {})
    await bench.pass_(301)
    assert bench.states() == {"B": "ready"}
    await bench.pass_(0)
    assert bench.states() == {}


async def test_pinned_and_used_models_stay(bench: Bench) -> None:
    await bench.residency.load(A, {}, pinned=True)
    async with bench.residency.lease(B):
        await bench.pass_(1000)
        bench.residency.memory.press(1.0)
        await settle()
        assert bench.states() == {"A": "ready", "B": "in_use"}


async def test_a_request_during_the_downsizing_waits_for_it(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    erased = asyncio.Event()

    async def slowly(resident: object) -> None:
        await erased.wait()

    monkeypatch.setattr(memory, "_erase_slots", slowly)
    resident = await bench.residency.load(A, {})
    bench.clock.now += 60
    evaluation = asyncio.ensure_future(bench.residency.memory.evaluate())
    await settle()
    assert bench.states() == {"A": "downsizing"}

    async def use() -> object:
        async with bench.residency.lease(A) as lease:
            return lease.resident

    waiting = asyncio.ensure_future(use())
    await settle()
    assert not waiting.done()
    erased.set()
    await evaluation
    assert await asyncio.wait_for(waiting, 1) is resident


async def test_a_failing_downsizing_leaves_the_model_in_use(bench: Bench) -> None:
    await bench.residency.load(A, {})
    process = bench.world.started[0]

    async def evaluate() -> None:
        evaluation = asyncio.ensure_future(bench.residency.memory.evaluate())
        await asyncio.sleep(0)
        process.end(-9)
        await evaluation

    bench.clock.now += 60
    await evaluate()
    assert bench.states() == {}
    async with bench.residency.lease(A):
        assert bench.states() == {"A": "in_use"}


async def test_pressure_takes_the_one_that_is_cheapest_to_lose(bench: Bench) -> None:
    await bench.residency.load(A, {})
    bench.clock.now += 10
    await bench.residency.load(B, {})
    bench.clock.now += 10
    await bench.residency.memory.simulate(0.89)
    await settle()
    assert sorted(bench.states()) == ["A", "B"]
    await bench.residency.memory.simulate(0.95)
    await settle()
    assert bench.states() == {"B": "ready"}


async def test_the_weight_of_a_model_keeps_it(bench: Bench) -> None:
    bench.world.defaults["A"] = {"evict_weight_factor": 100.0}
    await bench.residency.load(A, {})
    bench.clock.now += 10
    await bench.residency.load(B, {})
    bench.clock.now += 10
    bench.residency.memory.press(0.95)
    await settle()
    assert bench.states() == {"A": "ready"}


async def test_nothing_goes_unless_asked_for() -> None:
    bench = Bench()
    await bench.residency.load(A, {})
    await bench.pass_(1000)
    assert bench.states() == {"A": "ready"}
    bench.world.defaults["B"] = {"auto_evict": True, "evict_idle_timeout": 20}
    await bench.residency.load(B, {})
    await bench.pass_(20)
    assert bench.states() == {"A": "ready"}
    await bench.residency.close()


def test_the_memory_in_use_is_a_share() -> None:
    assert 0 < memory.memory_in_use() <= 1
