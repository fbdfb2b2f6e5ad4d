"""Residency under any order of requests, loads, unloads, deaths and disappointments."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lemonade.errors import EngineLost, LemonadeError
from lemonade.model import Model
from lemonade.residency import schedule
from lemonade.residency.manager import Residency
from lemonade.residency.resident import Resident
from tests.residency import fakes

MODELS = [fakes.model("A"), fakes.model("B"), fakes.model("C"), fakes.model("E", "embeddings")]
models = st.sampled_from(MODELS)
picks = st.integers(0, 9)


class User:
    """One request: waits for its lease, holds it, lets go."""

    def __init__(self, residency: Residency, model: Model, **more: Any) -> None:
        self.go = asyncio.Event()
        self.lost = False
        self.resident: Resident | None = None
        self.task = asyncio.ensure_future(self._run(residency, model, more))

    async def _run(self, residency: Residency, model: Model, more: dict[str, Any]) -> None:
        try:
            async with residency.lease(model, **more) as lease:
                self.resident = lease.resident
                assert self.resident.model.name == model.name
                await self.go.wait()
                if self.lost:
                    raise EngineLost("gone")
        except LemonadeError:
            pass
        finally:
            self.resident = None


class Machine(RuleBasedStateMachine):
    @initialize(limit=st.sampled_from([1, 1, 2, -1]))
    def begin(self, limit: int) -> None:
        self.runner = asyncio.Runner()
        self.limit = limit
        self.clock = fakes.Clock()
        self.world = fakes.World()
        self.killed: set[int] = set()
        self.users: list[User] = []
        self.calls: list[asyncio.Future[Any]] = []
        self.runner.run(self._begin())

    async def _begin(self) -> None:
        self.residency = Residency(
            self.world,
            fakes.settings(max_loaded_models=self.limit, auto_evict=True, max_queued_requests=4),
            env={"LEMONADE_BACKEND_WATCHDOG": "0"},
            start=self.world.start,  # type: ignore[arg-type]
            connect=fakes.FakeConnection,  # type: ignore[arg-type]
            clock=self.clock,
        )

    def do(self, work: Any = None) -> None:
        """Runs `work` on the loop and lets everything happen that can."""

        async def run() -> None:
            if work is not None:
                work()
            self.clock.now += 1
            await fakes.settle(60)

        self.runner.run(run())

    def call(self, make: Any) -> None:
        async def quiet() -> None:
            try:
                await make()
            except LemonadeError:
                pass

        self.do(lambda: self.calls.append(asyncio.ensure_future(quiet())))

    @rule(model=models, helper=st.booleans(), size=st.sampled_from([None, 512]))
    def request(self, model: Model, helper: bool, size: int | None) -> None:
        more: dict[str, Any] = {"options": {"ctx_size": size}} if size else {}
        if helper:
            more["residency_class"] = "routing_helper"
        self.do(lambda: self.users.append(User(self.residency, model, **more)))

    @precondition(lambda self: self.users)
    @rule(pick=picks, lost=st.booleans())
    def finish(self, pick: int, lost: bool) -> None:
        user = self.users[pick % len(self.users)]
        user.lost = lost
        self.do(user.go.set)

    @precondition(lambda self: self.users)
    @rule(pick=picks)
    def leave(self, pick: int) -> None:
        self.do(self.users.pop(pick % len(self.users)).task.cancel)

    @rule(model=models, size=st.sampled_from([-1, 512, 4096]), pinned=st.sampled_from([None, True, False]))
    def load(self, model: Model, size: int, pinned: bool | None) -> None:
        self.call(lambda: self.residency.load(model, {"ctx_size": size}, pinned=pinned))

    @rule(model=st.one_of(st.none(), models))
    def unload(self, model: Model | None) -> None:
        self.call(lambda: self.residency.unload(model))

    @precondition(lambda self: self.calls)
    @rule(pick=picks)
    def hang_up(self, pick: int) -> None:
        self.do(self.calls.pop(pick % len(self.calls)).cancel)

    @rule(model=models, pinned=st.booleans())
    def pin(self, model: Model, pinned: bool) -> None:
        def work() -> None:
            try:
                self.residency.pin(model, pinned)
            except LemonadeError:
                pass

        self.do(work)

    @rule(names=st.sets(st.sampled_from("ABCE")))
    def hold(self, names: set[str]) -> None:
        """From now on the processes of these models take their time."""
        self.world.held = names

    @rule(model=models, reason=st.sampled_from([None, "exited with code 1", "out of memory"]))
    def break_(self, model: Model, reason: str | None) -> None:
        self.world.broken.pop(model.name, None)
        if reason is not None:
            self.world.broken[model.name] = reason

    @rule(model=models)
    def fetch(self, model: Model) -> None:
        """Its files are missing, or arrive."""
        if event := self.world.fetches.pop(model.name, None):
            self.do(event.set)
        else:
            self.world.fetches[model.name] = asyncio.Event()

    @rule()
    def ready(self) -> None:
        self.do(lambda: [process.gate.set() for process in self.world.started])

    @precondition(lambda self: self.world.running())
    @rule(pick=picks)
    def kill(self, pick: int) -> None:
        alive = [process for process in self.world.started if not process.exited.is_set()]
        process = alive[pick % len(alive)]
        self.killed.add(process.pid)
        self.do(lambda: process.end(-9))

    @rule(seconds=st.sampled_from([61, 301]))
    def grow_idle(self, seconds: int) -> None:
        self.clock.now += seconds
        self.call(self.residency.memory.evaluate)

    @rule()
    def fill_memory(self) -> None:
        self.do(lambda: self.residency.memory.press(0.99))

    @rule(names=st.sets(st.sampled_from([model.canonical for model in MODELS])))
    def keep_helpers(self, names: set[str]) -> None:
        self.do(lambda: self.residency.keep_helpers(names))

    @invariant()
    def one_process_per_model(self) -> None:
        running = self.world.running()
        assert len(running) == len(set(running)), running

    @invariant()
    def the_limit_holds(self) -> None:
        pools = [resident.slot_pool for resident in self.residency.residents()]
        starting = [start for start in self.world.started if not start.exited.is_set() and not start.gate.is_set()]
        for pool in set(pools):
            if self.limit > 0:
                waiting = sum(pool == "standard/llm" and start.launch.name in "ABC" for start in starting)
                helpers = self.helpers_among(starting)
                assert pools.count(pool) + max(waiting - helpers, 0) <= self.limit, (pools, starting)

    def helpers_among(self, starting: list[fakes.FakeProcess]) -> int:
        current = self.residency._schedule.starting
        return sum(
            current is not None and current.model.name == process.launch.name and current.residency_class != "standard"
            for process in starting
        )

    @invariant()
    def who_is_leased_lives(self) -> None:
        for user in self.users:
            if user.resident is not None and user.resident.process.exited.is_set():
                # Killed from outside, or stopped after it failed somebody.
                assert user.resident.pid in self.killed or user.resident.barred("doubt")

    @invariant()
    def leases_add_up(self) -> None:
        for resident in self.residency.residents():
            assert resident.leases == sum(user.resident is resident for user in self.users), resident.model.name

    def teardown(self) -> None:
        if not hasattr(self, "runner"):
            return

        async def end() -> None:
            # Everything that holds somebody up is taken away: then nobody may be left waiting.
            self.world.held = set()
            for event in self.world.fetches.values():
                event.set()
            for user in self.users:
                user.go.set()
            waiting = [*(user.task for user in self.users), *self.calls]
            for _ in range(200):
                for process in self.world.started:
                    process.gate.set()
                await fakes.settle(10)
                # A start that has begun goes on without those who wanted it, and may take a second attempt.
                if all(task.done() for task in waiting) and self.residency.loading() == []:
                    break
            assert [task for task in waiting if not task.done()] == []
            for task in waiting:
                if not task.cancelled():
                    task.result()
            assert self.residency.loading() == []
            assert all(not resident.leases for resident in self.residency.residents())
            await asyncio.wait_for(self.residency.close(), 5)
            assert self.world.running() == []

        try:
            self.runner.run(end())
        finally:
            self.runner.close()


def test_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "DOUBT", 0)
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
