from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from lemonade.residency.manager import Residency
from lemonade.residency.watchdog import Limits
from tests.residency.fakes import Clock, FakeConnection, World, model, settings

A = model("A")


@pytest.mark.parametrize(
    ("env", "limits"),
    [
        ({}, Limits()),
        ({"LEMONADE_BACKEND_WATCHDOG": "off"}, Limits(enabled=False)),
        ({"LEMONADE_BACKEND_WATCHDOG": "1"}, Limits()),
        ({"LEMONADE_BACKEND_WATCHDOG_GRACE_SECONDS": "3"}, Limits(grace=10)),
        ({"LEMONADE_BACKEND_WATCHDOG_GRACE_SECONDS": "soon"}, Limits()),
        ({"LEMONADE_BACKEND_WATCHDOG_GRACE_SECONDS": "nan"}, Limits()),
        (
            {
                "LEMONADE_BACKEND_WATCHDOG_GRACE_SECONDS": "20",
                "LEMONADE_BACKEND_WATCHDOG_POLL_SECONDS": "1",
                "LEMONADE_BACKEND_WATCHDOG_PROBE_TIMEOUT_SECONDS": "0.5",
                "LEMONADE_BACKEND_WATCHDOG_MAX_FAILURES": "2",
            },
            Limits(grace=20, poll=1, probe=0.5, failures=2),
        ),
    ],
)
def test_limits_come_from_the_environment(env: dict[str, str], limits: Limits) -> None:
    assert Limits.read(env) == limits


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def residency(world: World, clock: Clock) -> AsyncIterator[Residency]:
    made = Residency(world, settings(), env={}, start=world.start, connect=FakeConnection, clock=clock)  # type: ignore[arg-type]
    yield made
    await made.close()


async def test_an_idle_engine_is_never_looked_at(residency: Residency, world: World, clock: Clock) -> None:
    await residency.load(A, {})
    world.started[0].healthy = False
    clock.now += 1000
    for _ in range(5):
        await residency.watchdog.look()
    assert world.started[0].probes == 0


async def test_output_counts_as_progress(residency: Residency, world: World, clock: Clock) -> None:
    async with residency.lease(A) as lease:
        for _ in range(5):
            clock.now += 80
            lease.touch()
            await residency.watchdog.look()
        assert world.started[0].probes == 0


async def test_a_silent_engine_in_good_health_is_left_alone(residency: Residency, world: World, clock: Clock) -> None:
    async with residency.lease(A):
        for _ in range(10):
            clock.now += 91
            await residency.watchdog.look()
        assert world.started[0].probes == 10
        assert world.running() == ["A"]


async def test_a_hang_ends_after_so_many_probes(residency: Residency, world: World, clock: Clock) -> None:
    async with residency.lease(A) as lease:
        process = world.started[0]
        process.healthy = False
        await residency.watchdog.look()
        clock.now += 91
        for _ in range(2):
            await residency.watchdog.look()
        process.healthy = True
        await residency.watchdog.look()  # it came back: the count begins anew
        process.healthy = False
        clock.now += 91
        for _ in range(2):
            await residency.watchdog.look()
        assert not lease.resident.watchdog_reset
        await residency.watchdog.look()
        assert lease.resident.watchdog_reset
        assert process.exited.is_set()
        assert lease.connection.verdict == lease.resident.watchdog_reset_reason
        assert residency.residents() == []
    async with residency.lease(A) as lease:
        assert not lease.resident.watchdog_reset
