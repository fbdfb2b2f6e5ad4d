"""The one owner of who is in memory: what requests, people and timers may ask of it.

The rules are in `policy.py`, their order in `schedule.py`. A lease of a ready model is a counter: no lock, no task.

Rules that hold whatever happens:

* One model has at most one process, and at most one start that is awaited.
* A process is stopped only when it has no lease, except by `close`, by the watchdog, or after it stopped answering.
* Loads that need a share of the same pool take their turns in the order in which they were asked for. While one waits
  for a busy model to finish, new requests for that model wait behind it, or are let in if the waiting one gives up.
* One process starts at a time in the whole daemon: the size of an automatic context is taken from the memory that is
  free, which is only true when nobody else is about to take it. Downloads and waiting for busy models happen before,
  outside that turn.
* A start that has not begun and that nobody waits for any more does not begin. One that has begun goes on.
* An unload comes after those who came before it: it waits for a start that is awaited and for running requests. A pin
  ends with it; a crash, a reload without a word about pins, and an eviction for want of memory leave it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lemonade.engines.connection import Connection
from lemonade.engines.process import EngineProcess
from lemonade.errors import Busy, ModelLoadError, ModelNotLoaded
from lemonade.model import Model
from lemonade.residency import policy
from lemonade.residency.failures import Failures
from lemonade.residency.launcher import Launcher
from lemonade.residency.lease import Lease
from lemonade.residency.loader import Loader
from lemonade.residency.memory import Memory
from lemonade.residency.policy import ResidencyClass
from lemonade.residency.resident import Connect, Resident, StartProcess
from lemonade.residency.schedule import Schedule
from lemonade.residency.start import Start, Waiter, same_files
from lemonade.residency.watchdog import Watchdog
from lemonade.settings import Settings

#: The only option that a request for an answer may bring into the load that it causes.
REQUEST_OPTIONS = ("ctx_size",)


class Residency:
    """Loads, keeps and unloads models.

    Args:
        loader: the floors below.
        settings: `max_loaded_models`, `max_queued_requests`, `global_timeout` and the `auto_evict` ones are read
            when they are needed, so a change counts from the next decision on.
        env: variables of the watchdog.
        start, connect, clock: replaced in tests.

    Attributes:
        memory: what unloads idle models; the hook of `/internal/simulate-vram-pressure`.
        watchdog: what ends engines that hang.
    """

    def __init__(
        self,
        loader: Loader,
        settings: Settings,
        *,
        env: Mapping[str, str] = os.environ,
        start: StartProcess = EngineProcess.start,
        connect: Connect = Connection,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._loader = loader
        self._settings = settings
        self._clock = clock
        self._failures = Failures(clock)
        launcher = Launcher(loader, settings, start, connect, clock)
        self._schedule = Schedule(loader, launcher, self._failures, settings, clock)
        self.memory = Memory(self.residents, self._evict_idle, self._schedule.advance, settings, clock)
        self.watchdog = Watchdog(self.residents, clock, env)

    # Leases. `take` and `give_back` are the hot path.

    def lease(
        self,
        model: Model,
        *,
        options: Mapping[str, Any] = {},
        residency_class: ResidencyClass = "standard",
        streaming: bool = False,
    ) -> Lease:
        """The right to use the model for one request, as an asynchronous context manager.

        Args:
            options: the request's own; only `ctx_size` counts, and only if the model has to be loaded.
            residency_class: `routing_helper` when a router needs the model to decide.
            streaming: the answer is streamed; `/health` shows it.
        """
        return Lease(self, model, options, residency_class, streaming)

    def take(self, lease: Lease) -> Resident | None:
        resident = self._schedule.residents.get(lease.key)
        if (
            resident is None
            or not resident.open
            or resident.residency_class != lease.residency_class
            or resident.process.exited.is_set()
            or (resident.model is not lease.model and not same_files(resident.model, lease.model))
        ):
            return None
        if resident.leases >= self._settings["max_queued_requests"] + resident.launch.slots:
            raise self._full(lease.model)
        resident.leases += 1
        resident.downsized = False
        resident.use(self._clock())
        return resident

    async def join(self, lease: Lease) -> Resident:
        key, model = lease.key, lease.model
        if self._schedule.closing:
            raise _stopping()
        start, running = self._schedule.starts.get(key), self._schedule.residents.get(key)
        ahead = running.leases + 1 - running.launch.slots if running is not None else 0
        ahead += sum(waiter.leases for waiter in start.waiters) if start is not None else 0
        if ahead > self._settings["max_queued_requests"]:
            raise self._full(model)
        if start is None:
            if running is None:
                self._failures.check(key, model.name)
            request = {name: lease.options[name] for name in REQUEST_OPTIONS if name in lease.options}
            start = self._want(model, self._loader.options(model, request), lease.residency_class, None)
        elif lease.residency_class == "standard" and start.phase != "starting":
            start.residency_class = "standard"
        resident = await self._wait(start, leases=True)
        resident.downsized = False
        return resident

    def answered(self, resident: Resident) -> None:
        self._failures.answered(resident.key)

    def give_back(self, resident: Resident) -> None:
        resident.leases -= 1
        resident.use(self._clock())
        if not resident.leases and (not resident.open or resident.residency_class == "routing_helper"):
            self._schedule.advance()

    def doubt(self, resident: Resident) -> None:
        self._schedule.doubt(resident)

    # What people and programs ask for.

    async def load(self, model: Model, options: Mapping[str, Any], *, pinned: bool | None = None) -> Resident:
        """Loads the model. Nothing happens if it runs with these options already; with others it is started anew
        as soon as it has answered what it is asked.

        Args:
            options: those of the request; the layers below are added.
            pinned: None keeps a running model's pin, and takes the option `pinned` for another.

        Raises:
            ModelLoadError, ModelLoadRefused, InvalidArgument, SlotsPinned, ResidencyConflict, HubError, Busy.
        """
        asked = self._loader.options(model, options)
        key = model.canonical
        while True:
            if self._schedule.closing:
                raise _stopping()
            start = self._schedule.starts.get(key)
            resident = self._schedule.residents.get(key)
            if start is not None:
                start.pinned = start.pinned if pinned is None else pinned
                try:
                    resident = await self._wait(start, leases=False)
                except ModelLoadError:
                    if policy.same_process(asked, start.asked, start.asked):
                        raise
                    continue  # it was under way with other options; those of this load may do
            elif resident is None or not resident.open or not _serves(resident, model, asked):
                if resident is not None and resident.open:
                    self._check(model, asked)
                self._failures.forget(key)
                start = self._want(model, asked, "standard", pinned)
                if resident is not None and resident.open:
                    start.reload = True
                    self._schedule.finish(resident, "reload")
                resident = await self._wait(start, leases=False)
            if _serves(resident, model, asked):
                if pinned is not None:
                    resident.pinned = pinned
                resident.use(self._clock())
                return resident

    def _check(self, model: Model, asked: Mapping[str, Any]) -> None:
        """Raises InvalidArgument or ModelLoadRefused for options with which no process can be started: they must not
        cost the one that runs."""
        with contextlib.suppress(ModelLoadError):  # files that are missing now may be fetched
            self._loader.launch(model, self._loader.sized(model, asked), 0)

    async def unload(self, model: Model | None) -> None:
        """Takes the model, or all of them, out of memory, pinned or not. Requests inside it are answered first;
        those that come meanwhile start it anew afterwards.

        Raises:
            ModelNotLoaded: that model is neither in memory nor being started.
        """
        if model is not None:
            await self._unload(model.canonical, model.name)
            return
        starting = self._schedule.starting
        keys = dict.fromkeys([*self._schedule.residents, *([starting.key] if starting else [])])
        await asyncio.gather(*(self._unload(key, key) for key in keys), return_exceptions=True)

    def pin(self, model: Model, pinned: bool) -> None:
        """Keeps the model from being evicted, or no longer.

        Raises:
            ModelNotLoaded: it is neither in memory nor being started.
        """
        key = model.canonical
        resident, start = self._schedule.residents.get(key), self._schedule.starts.get(key)
        if resident is None and start is None and key not in self._schedule.pins:
            raise ModelNotLoaded(f"Model '{model.name}' is not loaded, so it cannot be pinned.", requested=model.name)
        if resident is not None:
            resident.pinned = pinned
        if start is not None:
            start.pinned = pinned
        if key in self._schedule.pins:
            self._schedule.pins[key] = pinned
        self._schedule.advance()

    def residents(self) -> list[Resident]:
        """What is in memory and alive, the longest loaded first."""
        return [resident for resident in self._schedule.residents.values() if not resident.process.exited.is_set()]

    def loading(self) -> list[Model]:
        """What is being fetched, waits for its turn, or is being started."""
        return [start.model for start in self._schedule.starts.values()]

    def keep_helpers(self, names: Iterable[str]) -> None:
        """The canonical names of the models that routers need now; other routing helpers go when they are idle."""
        self._schedule.helpers = frozenset(names)
        self._schedule.advance()

    async def close(self) -> None:
        """Stops everything: idle models at once, busy ones when they have answered or after some seconds (10 in
        all). New leases and all who wait get `Busy` with status 503. May be called again."""
        self.watchdog.close()
        self.memory.close()
        await self._schedule.close(_stopping())

    def _want(self, model: Model, asked: dict[str, Any], residency_class: ResidencyClass, pinned: bool | None) -> Start:
        self._loader.check(model, asked)
        self.watchdog.run()
        self.memory.run()
        return self._schedule.want(model, asked, residency_class, pinned)

    async def _wait(self, start: Start, *, leases: bool) -> Resident:
        waiter = Waiter(asyncio.get_running_loop().create_future(), leases)
        start.waiters.append(waiter)
        try:
            return await waiter.future
        except asyncio.CancelledError:
            if waiter.future.done() and not waiter.future.cancelled() and waiter.future.exception() is None:
                # Served and cancelled in the same moment.
                if leases:
                    self.give_back(waiter.future.result())
            elif waiter in start.waiters:
                start.waiters.remove(waiter)
                if not start.waiters and start.phase != "starting" and not start.done.is_set():
                    self._schedule.drop(start)
            raise

    async def _unload(self, key: str, name: str) -> None:
        start = self._schedule.starts.get(key)
        if start is not None and (start.phase == "starting" or start.reload):
            if not start.waiters:
                self._schedule.fail(start, ModelLoadError(f"Model '{name}' was unloaded.", requested=name))
            await start.done.wait()
            if key not in self._schedule.residents:
                return
        resident = self._schedule.residents.get(key)
        self._schedule.pins.pop(key, None)
        if resident is None:
            raise ModelNotLoaded(f"Model '{name}' is not loaded.", requested=name)
        self._schedule.finish(resident, "unload")
        await resident.gone.wait()

    def _evict_idle(self, resident: Resident) -> None:
        if resident.open and not resident.leases:
            self._schedule.finish(resident, "unload")

    def _full(self, model: Model) -> Busy:
        limit = self._settings["max_queued_requests"]
        return Busy(
            f"Too many requests wait for '{model.name}' (max_queued_requests is {limit}); try again in a moment."
        )


def _stopping() -> Busy:
    return Busy("The server is stopping.", status=503)


def _serves(resident: Resident, model: Model, asked: Mapping[str, Any]) -> bool:
    return same_files(resident.model, model) and policy.same_process(asked, resident.asked, resident.options)
