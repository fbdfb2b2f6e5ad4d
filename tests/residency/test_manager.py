from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from lemonade.errors import (
    Busy,
    EngineLost,
    InvalidArgument,
    ModelLoadError,
    ModelNotLoaded,
    Offline,
    ResidencyConflict,
    SlotsPinned,
)
from lemonade.model import Model
from lemonade.residency import launcher
from lemonade.residency.failures import CRASH_WINDOW, CRASHES, REMEMBERED
from lemonade.residency.manager import Residency
from lemonade.residency.resident import Resident
from tests.residency.fakes import Clock, FakeConnection, World, model, settings, settle

A, B, C = model("A"), model("B"), model("C")
Make = Callable[..., Residency]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def make(world: World, clock: Clock) -> AsyncIterator[Make]:
    made: list[Residency] = []

    def build(**values: Any) -> Residency:
        residency = Residency(world, settings(**values), env={}, start=world.start, connect=FakeConnection, clock=clock)  # type: ignore[arg-type]
        made.append(residency)
        return residency

    yield build
    for residency in made:
        await asyncio.wait_for(residency.close(), 10)
    assert world.running() == []


class Holder:
    """A task that holds a lease until it is told to let go."""

    def __init__(self, residency: Residency, of: Model, **more: Any) -> None:
        self._go = asyncio.Event()
        self.resident: Resident | None = None
        self.task = asyncio.ensure_future(self._hold(residency, of, more))

    async def _hold(self, residency: Residency, of: Model, more: dict[str, Any]) -> None:
        async with residency.lease(of, **more) as lease:
            self.resident = lease.resident
            await self._go.wait()

    async def done(self) -> None:
        self._go.set()
        await asyncio.wait_for(self.task, 5)


async def use(residency: Residency, of: Model, **more: Any) -> Resident:
    async with residency.lease(of, **more) as lease:
        return lease.resident


def names(residency: Residency) -> list[str]:
    return [resident.model.name for resident in residency.residents()]


# Starting.


async def test_twenty_first_requests_and_a_load_make_one_start(make: Make, world: World) -> None:
    residency = make()
    requests = [use(residency, A) for _ in range(20)]
    *users, loaded = await asyncio.gather(*requests, residency.load(A, {}))
    assert world.starts("A") == 1
    assert all(user is loaded for user in users)
    again = await residency.load(A, {})
    assert again.pid == loaded.pid
    assert world.starts("A") == 1


async def test_two_values_of_one_model_share_a_process(make: Make, world: World) -> None:
    residency = make()
    await use(residency, A)
    other = model("A")
    assert other is not A
    await use(residency, other)
    assert world.starts("A") == 1


async def test_other_files_under_the_same_name_start_anew(make: Make, world: World) -> None:
    residency = make()
    first = await use(residency, A)
    other = Model(name="A", recipe="llamacpp", checkpoints={"main": "elsewhere/A"})
    second = await use(residency, other)
    assert second is not first
    assert second.model is other
    assert first.process.exited.is_set()


async def test_only_the_context_size_of_a_request_counts(make: Make, world: World) -> None:
    residency = make()
    resident = await use(residency, A, options={"ctx_size": 512, "llamacpp_args": "--evil", "pinned": True})
    assert resident.options["ctx_size"] == 512
    assert resident.options["llamacpp_args"] == ""
    assert not resident.pinned
    assert await use(residency, A, options={"ctx_size": 1024}) is resident


async def test_the_lease_is_counted_before_the_model_counts_as_ready(make: Make, world: World) -> None:
    """Nothing can evict a model between its being ready and the first request's use of it."""
    residency = make()
    world.held.add("A")
    first = Holder(residency, A)
    await settle()
    second = asyncio.ensure_future(use(residency, B))
    await settle()
    world.started[0].gate.set()
    while not residency.residents():
        await asyncio.sleep(0)
    assert residency.residents()[0].leases == 1
    await settle()
    assert world.running() == ["A"]
    await first.done()
    assert (await second).model is B


async def test_a_download_holds_up_nobody_else(make: Make, world: World) -> None:
    residency = make()
    world.fetches["A"] = asyncio.Event()
    slow = asyncio.ensure_future(use(residency, A))
    await settle()
    await use(residency, B)
    assert [found.name for found in residency.loading()] == ["A"]
    world.fetches["A"].set()
    await slow
    assert names(residency) == ["A"]


async def test_a_slow_start_holds_up_neither_leases_nor_unloads(make: Make, world: World) -> None:
    residency = make(max_loaded_models=3)
    await use(residency, A)
    await use(residency, C)
    world.held.add("B")
    slow = asyncio.ensure_future(use(residency, B))
    await settle()
    assert world.running() == ["A", "C", "B"]
    await asyncio.wait_for(use(residency, A), 1)
    await asyncio.wait_for(residency.unload(C), 1)
    assert names(residency) == ["A"]
    assert not slow.done()
    world.started[-1].gate.set()
    await slow


async def test_one_process_starts_at_a_time(make: Make, world: World) -> None:
    residency = make(max_loaded_models=-1)
    world.held |= {"A", "B"}
    both = [asyncio.ensure_future(use(residency, which)) for which in (A, B)]
    await settle()
    assert world.running() == ["A"]
    world.started[0].gate.set()
    await settle()
    assert world.running() == ["A", "B"]
    world.started[1].gate.set()
    await asyncio.gather(*both)


# Waiting and leaving.


async def test_a_queued_start_that_nobody_waits_for_never_begins(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    waiting = [asyncio.ensure_future(use(residency, B)) for _ in range(3)]
    await settle()
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    await use(residency, A)  # A stands in nobody's way any more, so it takes requests again
    await holder.done()
    await settle()
    assert world.starts("B") == 0
    assert world.starts("A") == 1
    assert residency.loading() == []


async def test_a_download_for_nobody_is_no_longer_awaited(make: Make, world: World) -> None:
    residency = make()
    world.fetches["A"] = asyncio.Event()
    task = asyncio.ensure_future(use(residency, A))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    await settle()
    assert world.gave_up == ["A"]
    world.fetches["A"].set()
    await settle()
    assert world.started == []


async def test_a_start_that_has_begun_goes_on_and_stays(make: Make, world: World) -> None:
    residency = make()
    world.held.add("A")
    task = asyncio.ensure_future(use(residency, A))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    world.started[0].gate.set()
    await settle()
    assert names(residency) == ["A"]
    assert residency.residents()[0].leases == 0


async def test_a_waiter_cancelled_in_the_moment_of_success_gives_its_lease_back(make: Make, world: World) -> None:
    residency = make()
    world.held.add("A")
    task = asyncio.ensure_future(use(residency, A))
    await settle()
    world.started[0].gate.set()
    while not residency.residents():
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])
    assert residency.residents()[0].leases == 0


async def test_the_queue_of_a_model_is_bounded(make: Make, world: World) -> None:
    residency = make(max_queued_requests=2)
    world.held.add("A")
    holders = [Holder(residency, A) for _ in range(3)]
    await settle()
    with pytest.raises(Busy, match="max_queued_requests is 2") as caught:
        await use(residency, A)
    assert (caught.value.status, caught.value.retry_after) == (429, 1.0)
    world.started[0].gate.set()
    await settle()
    with pytest.raises(Busy):
        await use(residency, A)
    await holders[0].done()
    await use(residency, A)
    for holder in holders[1:]:
        await holder.done()


async def test_requests_in_slots_do_not_wait(make: Make, world: World) -> None:
    residency = make(max_queued_requests=1)
    world.slots["A"] = 3
    await use(residency, A)
    holders = [Holder(residency, A) for _ in range(4)]
    await settle()
    with pytest.raises(Busy):
        await use(residency, A)
    unload = asyncio.ensure_future(residency.unload(A))
    await settle()
    with pytest.raises(Busy):
        await use(residency, A)
    await holders.pop().done()
    waiting = asyncio.ensure_future(use(residency, A))
    await settle()
    for holder in holders:
        await holder.done()
    await unload
    await waiting


async def test_a_request_that_is_refused_leaves_no_start_behind(make: Make, world: World) -> None:
    residency = make(max_queued_requests=0)
    holder = Holder(residency, A)
    await settle()
    unload = asyncio.ensure_future(residency.unload(A))
    await settle()
    with pytest.raises(Busy):
        await use(residency, A)
    await holder.done()
    await unload
    await settle()
    assert residency.loading() == []
    assert world.starts("A") == 1


# Eviction.


async def test_a_model_in_use_is_evicted_only_after_its_answer(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    order: list[str] = []

    async def ask(which: Model) -> None:
        async with residency.lease(which):
            order.append(which.name)

    later = []
    for which in (B, A, C):
        later.append(asyncio.ensure_future(ask(which)))
        await settle()
    assert world.running() == ["A"]
    assert residency.residents()[0].status == "evicting"
    await holder.done()
    await asyncio.gather(*later)
    assert order == ["B", "A", "C"]
    assert [process.launch.name for process in world.started] == ["A", "B", "A", "C"]


async def test_least_recently_used_goes_per_type(make: Make, world: World, clock: Clock) -> None:
    residency = make(max_loaded_models=2)
    for which in (A, B, model("E", "embeddings"), model("W", "transcription"), A, C):
        clock.now += 1
        await use(residency, which)
    assert names(residency) == ["A", "E", "W", "C"]


async def test_pinned_models_stay_and_fill_the_pool(make: Make) -> None:
    residency = make(max_loaded_models=2)
    await residency.load(A, {}, pinned=True)
    await use(residency, B)
    await use(residency, C)
    assert names(residency) == ["A", "C"]
    residency.pin(C, True)
    with pytest.raises(SlotsPinned):
        await use(residency, B)
    residency.pin(A, False)
    await use(residency, B)
    assert names(residency) == ["C", "B"]


async def test_waiting_for_a_busy_pool_does_not_hold_up_another_pool(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    waiting = asyncio.ensure_future(use(residency, B))
    await settle()
    await asyncio.wait_for(use(residency, model("E", "embeddings")), 1)
    assert not waiting.done()
    await holder.done()
    await waiting


async def test_npu_models_push_each_other_out(make: Make, world: World) -> None:
    residency = make(max_loaded_models=-1)
    world.devices = {"N": "npu", "M": "npu"}
    await use(residency, model("N", recipe="flm"))
    await use(residency, A)
    await use(residency, model("M", recipe="ryzenai-llm"))
    assert names(residency) == ["A", "M"]
    with pytest.raises(ResidencyConflict):
        await use(residency, model("N", recipe="flm"), residency_class="routing_helper")


async def test_a_later_load_does_not_overtake_one_of_its_pool_that_waits_for_the_npu(make: Make, world: World) -> None:
    residency = make()
    world.devices = {"N": "npu", "M": "npu"}
    holder = Holder(residency, model("N", "embeddings", recipe="flm"))
    await settle()
    first = asyncio.ensure_future(use(residency, model("M", recipe="ryzenai-llm")))
    await settle()
    second = asyncio.ensure_future(use(residency, A))
    await settle()
    assert world.running() == ["N"]
    await holder.done()
    await asyncio.gather(first, second)
    assert [process.launch.name for process in world.started] == ["N", "M", "A"]


async def test_helpers_have_pools_of_their_own_and_change_class_in_place(make: Make, world: World) -> None:
    residency = make()
    helper = await use(residency, A, residency_class="routing_helper")
    await use(residency, B)
    assert names(residency) == ["A", "B"]
    assert helper.slot_pool.startswith("routing_helper/llm")
    await use(residency, A)  # now it is counted, so B goes
    assert names(residency) == ["A"]
    assert (helper.residency_class, helper.slot_pool) == ("standard", "standard/llm")
    await use(residency, A, residency_class="routing_helper")
    assert world.starts("A") == 1


async def test_helpers_that_no_router_needs_go_when_idle(make: Make, world: World) -> None:
    residency = make()
    await use(residency, A, residency_class="routing_helper")
    holder = Holder(residency, B, residency_class="routing_helper")
    await settle()
    residency.keep_helpers([])
    await settle()
    assert names(residency) == ["B"]
    await holder.done()
    await settle()
    assert names(residency) == []


# Load, unload, pin.


async def test_load_with_other_options_waits_and_starts_anew(make: Make, world: World) -> None:
    residency = make()
    await residency.load(A, {}, pinned=True)
    holder = Holder(residency, A)
    await settle()
    load = asyncio.ensure_future(residency.load(A, {"ctx_size": 512}))
    await settle()
    late = asyncio.ensure_future(use(residency, A))
    await settle()
    assert not load.done()
    assert not late.done()
    await holder.done()
    resident = await load
    assert (resident.options["ctx_size"], resident.pinned) == (512, True)
    assert await late is resident
    assert world.starts("A") == 2


async def test_a_load_that_is_refused_leaves_the_model_as_it_is(make: Make, world: World) -> None:
    residency = make()
    first = await residency.load(A, {}, pinned=True)
    world.refused["--port 4"] = "the daemon says it"
    with pytest.raises(InvalidArgument):
        await residency.load(A, {"llamacpp_args": "--port 4"})
    assert residency.residents() == [first]
    await use(residency, A)
    assert world.starts("A") == 1


async def test_equal_options_are_no_reload(make: Make, world: World) -> None:
    residency = make()
    first = await residency.load(A, {})
    assert await residency.load(A, {"ctx_size": -1}, pinned=True) is first
    assert first.pinned
    assert await residency.load(A, {"ctx_size": 4096}) is first  # what automatic came to
    assert first.pinned
    assert world.starts("A") == 1


async def test_loads_with_different_options_follow_each_other(make: Make, world: World) -> None:
    residency = make()
    loads = [residency.load(A, {"ctx_size": size}) for size in (512, 1024)]
    one, two = await asyncio.gather(*loads)
    assert (one.options["ctx_size"], two.options["ctx_size"]) == (512, 1024)
    assert residency.residents() == [two]


async def test_a_reload_that_is_given_up_leaves_the_model_in_use(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    load = asyncio.ensure_future(residency.load(A, {"ctx_size": 512}))
    await settle()
    load.cancel()
    await asyncio.wait([load])
    await use(residency, A)
    await holder.done()
    await settle()
    assert names(residency) == ["A"]
    assert world.starts("A") == 1


async def test_unload_waits_for_requests_and_later_ones_start_anew(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    first = residency.residents()[0]
    unload = asyncio.ensure_future(residency.unload(A))
    await settle()
    assert names(residency) == ["A"]
    late = asyncio.ensure_future(use(residency, A))
    await settle()
    assert not unload.done()
    assert not late.done()
    await holder.done()
    await unload
    assert await late is not first
    await residency.unload(A)
    assert names(residency) == []
    with pytest.raises(ModelNotLoaded):
        await residency.unload(A)


async def test_unload_all_ignores_pins(make: Make) -> None:
    residency = make(max_loaded_models=-1)
    await residency.load(A, {}, pinned=True)
    await residency.load(B, {})
    await residency.unload(None)
    assert names(residency) == []
    await residency.unload(None)


async def test_unload_of_a_start_that_nobody_waits_for_gives_it_up(make: Make, world: World) -> None:
    residency = make()
    world.held.add("A")
    task = asyncio.ensure_future(use(residency, A))
    await settle()
    task.cancel()
    await asyncio.wait([task])
    await residency.unload(A)
    await settle()
    assert world.running() == []
    world.held.clear()
    await use(residency, A)


async def test_unload_comes_after_those_who_wait_for_the_start(make: Make, world: World) -> None:
    residency = make()
    world.held.add("A")
    first = Holder(residency, A)
    await settle()
    unload = asyncio.ensure_future(residency.unload(A))
    await settle()
    world.started[0].gate.set()
    await settle()
    assert first.resident is not None
    assert not unload.done()
    await first.done()
    await unload
    assert names(residency) == []


async def test_unload_comes_after_a_reload_that_was_asked_for_before(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    load = asyncio.ensure_future(residency.load(A, {"ctx_size": 512}))
    await settle()
    unload = asyncio.ensure_future(residency.unload(A))
    await settle()
    await holder.done()
    await asyncio.gather(load, unload)
    assert world.starts("A") == 2
    assert names(residency) == []


async def test_unload_of_a_crashed_model_ends_its_pin(make: Make, world: World) -> None:
    residency = make()
    await residency.load(A, {}, pinned=True)
    world.started[0].end(-9)
    await settle()
    with pytest.raises(ModelNotLoaded):
        await residency.unload(A)
    assert not (await residency.load(A, {})).pinned


async def test_a_load_survives_the_failure_of_a_start_with_other_options(make: Make, world: World) -> None:
    residency = make()
    world.held.add("A")
    request = asyncio.ensure_future(use(residency, A))
    await settle()
    load = asyncio.ensure_future(residency.load(A, {"ctx_size": 512}))
    same = asyncio.ensure_future(residency.load(A, {}))
    await settle()
    world.held.clear()
    world.started[0].end(1)
    assert (await load).options["ctx_size"] == 512
    for task in (request, same):
        with pytest.raises(ModelLoadError):
            await task


async def test_a_pin_ends_with_an_unload(make: Make) -> None:
    residency = make()
    await residency.load(A, {}, pinned=True)
    await residency.unload(A)
    assert not (await residency.load(A, {})).pinned
    with pytest.raises(ModelNotLoaded, match="'B' is not loaded"):
        residency.pin(B, True)


async def test_the_option_pinned_counts_for_a_fresh_load(make: Make, world: World) -> None:
    world.defaults["A"] = {"pinned": True}
    assert (await use(make(), A)).pinned


# Failures.


async def test_a_failed_start_is_told_to_all_and_remembered_for_a_moment(
    make: Make, world: World, clock: Clock
) -> None:
    residency = make()
    world.broken["A"] = "fake exited with code 1; its last log lines:\nwrong magic"
    results = await asyncio.gather(*(use(residency, A) for _ in range(3)), return_exceptions=True)
    for result in results:
        assert isinstance(result, ModelLoadError)
        assert result.message.startswith("Failed to load model 'A': fake exited")
        assert "wrong magic" in result.message
        assert not result.retry
    for _ in range(2):
        with pytest.raises(ModelLoadError, match="wrong magic"):
            await use(residency, A)
    assert world.starts("A") == 1
    clock.now += REMEMBERED
    with pytest.raises(ModelLoadError):
        await use(residency, A)
    assert world.starts("A") == 2
    world.broken.clear()
    await residency.load(A, {})  # who asks expressly need not wait
    assert names(residency) == ["A"]


async def test_a_failed_start_evicts_nobody_else(make: Make, world: World) -> None:
    residency = make(max_loaded_models=-1)
    await use(residency, A)
    world.broken["B"] = "fake exited with code 1"
    with pytest.raises(ModelLoadError):
        await use(residency, B)
    assert names(residency) == ["A"]
    assert world.starts("B") == 1


async def test_want_of_memory_stops_idle_models_and_tries_once_more(make: Make, world: World) -> None:
    residency = make(max_loaded_models=-1)
    await use(residency, A)
    await residency.load(C, {}, pinned=True)
    world.broken["B"] = "failed to allocate 9 GB"
    with pytest.raises(ModelLoadError):
        await use(residency, B)
    assert names(residency) == ["C"]
    assert world.starts("B") == 2


async def test_a_start_that_is_given_up_before_its_process_gives_its_port_back(
    make: Make, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    released: list[int] = []
    monkeypatch.setattr(launcher, "take_port", lambda: 4711)
    monkeypatch.setattr(launcher, "release_port", released.append)
    residency = make()
    loading = asyncio.ensure_future(residency.load(A, {}))
    while residency._schedule.starting is None:
        await asyncio.sleep(0)
    start = residency._schedule.starting
    residency._schedule.fail(start, ModelLoadError("no longer wanted"))
    with pytest.raises(ModelLoadError):
        await loading
    await settle()
    assert world.started == []
    assert released == [4711]


async def test_want_of_memory_with_nobody_idle_is_one_attempt(make: Make, world: World) -> None:
    residency = make()
    world.broken["B"] = "failed to allocate 9 GB"
    with pytest.raises(ModelLoadError):
        await use(residency, B)
    assert world.starts("B") == 1


async def test_a_failed_download_is_told_as_it_is(make: Make, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    async def offline(model: Model, options: object) -> None:
        raise Offline("no network by choice")

    monkeypatch.setattr(world, "fetch", offline)
    with pytest.raises(Offline):
        await use(make(), A)


async def test_a_fault_of_the_loader_leaves_nobody_waiting(
    make: Make, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(*args: object) -> None:
        raise ZeroDivisionError

    residency = make()
    monkeypatch.setattr(world, "launch", wrong)
    with pytest.raises(ModelLoadError, match="internal fault"):
        await asyncio.wait_for(use(residency, A), 1)
    monkeypatch.setattr(world, "fetch", wrong)
    with pytest.raises(ModelLoadError, match="internal fault"):
        await asyncio.wait_for(use(residency, B), 1)
    monkeypatch.undo()
    await use(residency, C)


async def test_readiness_is_bounded(make: Make, world: World) -> None:
    residency = make(global_timeout=1)
    world.held.add("A")
    with pytest.raises(ModelLoadError, match="not ready after 1 s"):
        await use(residency, A)
    assert world.running() == []


# Deaths.


@pytest.mark.parametrize("later", [False, True])
async def test_a_dead_process_is_gone_at_once_and_replaced_pin_and_all(make: Make, world: World, later: bool) -> None:
    residency = make()
    first = await residency.load(A, {}, pinned=True)
    world.started[0].end(-9)
    assert residency.residents() == []  # before anything else could run
    if later:
        await settle()
    second = await use(residency, A)
    assert second is not first
    assert second.pinned
    assert first.backend_health == "exited"


async def test_the_pin_of_a_crashed_model_can_be_taken_off(make: Make, world: World) -> None:
    residency = make()
    await residency.load(A, {}, pinned=True)
    world.started[0].end(-9)
    await settle()
    residency.pin(A, False)
    assert not (await use(residency, A)).pinned


async def test_a_replayed_request_never_meets_the_process_it_lost(make: Make, world: World) -> None:
    """The engine's socket closes a moment before its process is known to have ended."""
    residency = make()
    first: Resident | None = None
    with pytest.raises(EngineLost):
        async with residency.lease(A) as lease:
            first = lease.resident
            raise EngineLost("gone")
    replay = asyncio.ensure_future(use(residency, A))
    await settle()
    assert not replay.done()
    world.started[0].end(-11)
    assert await asyncio.wait_for(replay, 5) is not first


async def test_an_engine_that_lost_one_answer_but_lives_is_kept(make: Make, world: World) -> None:
    residency = make()
    with pytest.raises(EngineLost):
        async with residency.lease(A) as lease:
            first = lease.resident
            raise EngineLost("cut")
    assert await asyncio.wait_for(use(residency, A), 5) is first
    assert world.started[0].probes == 1


async def test_an_engine_that_lost_an_answer_and_its_health_is_replaced(make: Make, world: World) -> None:
    residency = make()
    async with residency.lease(A) as lease:
        first = lease.resident
        lease.lost()
    world.started[0].healthy = False
    assert await asyncio.wait_for(use(residency, A), 5) is not first
    assert world.running() == ["A"]


async def kill(residency: Residency, world: World) -> None:
    """A request that its engine does not survive."""
    with pytest.raises(EngineLost):
        async with residency.lease(A):
            world.started[-1].end(139)
            raise EngineLost("gone")
    await settle()


async def test_requests_that_kill_do_not_lock_out_those_that_are_answered(make: Make, world: World) -> None:
    residency = make()
    for _ in range(3 * CRASHES):
        await kill(residency, world)
        await use(residency, A)


async def test_a_crash_loop_ends_in_an_error(make: Make, world: World, clock: Clock) -> None:
    residency = make()
    for _ in range(CRASHES):
        await kill(residency, world)
    with pytest.raises(ModelLoadError, match=r"ended by itself 5 times.*fake exited with code 139(.|\n)*the last line"):
        await use(residency, A)
    assert world.starts("A") == CRASHES
    clock.now += CRASH_WINDOW + 1
    await use(residency, A)


async def test_an_express_load_ends_the_memory_of_a_crash_loop(make: Make, world: World) -> None:
    residency = make()
    for _ in range(CRASHES):
        await kill(residency, world)
    await residency.load(A, {})
    world.started[-1].end(139)
    await settle()
    await use(residency, A)


async def test_a_model_in_use_that_dies_is_replaced_for_others(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    world.started[0].end(-9)
    second = await use(residency, A)
    await holder.done()
    assert residency.residents() == [second]
    assert second.leases == 0


# The end.


async def test_close_stops_all_and_refuses_the_rest(make: Make, world: World) -> None:
    residency = make()
    await use(residency, A)
    world.held.add("B")
    starting = asyncio.ensure_future(use(residency, B))
    await settle()
    queued = asyncio.ensure_future(use(residency, C))
    await settle()
    await asyncio.wait_for(residency.close(), 5)
    for task in (starting, queued):
        error = (await asyncio.gather(task, return_exceptions=True))[0]
        assert isinstance(error, Busy)
        assert error.status == 503
    for call in (use(residency, A), residency.load(A, {})):
        with pytest.raises(Busy):
            await call
    assert world.running() == []
    await residency.close()


async def test_close_waits_a_while_for_an_answer(make: Make, world: World) -> None:
    residency = make()
    holder = Holder(residency, A)
    await settle()
    close = asyncio.ensure_future(residency.close())
    await settle()
    assert world.running() == ["A"]
    await holder.done()
    await asyncio.wait_for(close, 5)


async def test_what_health_shows(make: Make, world: World) -> None:
    residency = make()
    resident = await residency.load(A, {})
    assert (resident.status, resident.backend_health, resident.is_busy) == ("ready", "ready", False)
    async with residency.lease(A, streaming=True):
        assert (resident.status, resident.backend_health) == ("in_use", "busy")
        assert (resident.is_busy, resident.is_streaming) == (True, True)
    assert not resident.is_streaming
    assert (resident.pid, resident.port, resident.device) == (100, resident.launch.port, "cpu")
    assert resident.last_use > 1_700_000_000
    assert resident.slot_pool == "standard/llm"
    assert resident.load_seconds >= 0
