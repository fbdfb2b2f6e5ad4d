"""What happens next: who is let in, started, stopped, and in which order.

The schedule is the state of residency and the rules by which it moves. All of it runs on the event loop's thread, in
plain functions; `advance` derives from the whole state what may happen, so nothing depends on which event came first.
Only waiting is done in tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from lemonade.engines.engine import ABANDONED
from lemonade.engines.ports import PortLost
from lemonade.errors import LemonadeError, ModelLoadError
from lemonade.model import Model
from lemonade.residency import policy
from lemonade.residency.failures import Failures
from lemonade.residency.launcher import Launcher, explained
from lemonade.residency.loader import Loader
from lemonade.residency.policy import Occupant, ResidencyClass
from lemonade.residency.resident import Barrier, Resident
from lemonade.residency.start import Start, same_files
from lemonade.settings import Settings

log = logging.getLogger(__name__)

#: Seconds for an engine to end by itself when asked to: usually, and when the daemon stops.
GRACE = 5.0
CLOSE_GRACE = 2.0
#: Seconds that running requests may take when the daemon stops.
CLOSE_BUSY = 7.0
#: Seconds for an engine that answered wrongly to turn out to be dead, and to answer a look at its health.
DOUBT = 0.5
DOUBT_PROBE = 2.0


class Schedule:
    """Attributes:
    residents: processes that were ready and are not yet gone, by the model's canonical name.
    starts: what is wanted, by the same; at most one per model.
    starting: the one start whose process exists.
    pins: of models whose process crashed.
    helpers: canonical names of the models that routers need; None when nobody said.
    closing: nothing starts any more.
    """

    def __init__(
        self,
        loader: Loader,
        launcher: Launcher,
        failures: Failures,
        settings: Settings,
        clock: Callable[[], float],
    ) -> None:
        self.residents: dict[str, Resident] = {}
        self.starts: dict[str, Start] = {}
        self.starting: Start | None = None
        self.pins: dict[str, bool] = {}
        self.helpers: frozenset[str] | None = None
        self.closing = False
        self._loader = loader
        self._launcher = launcher
        self._failures = failures
        self._settings = settings
        self._clock = clock
        self._order = itertools.count()
        self._tasks: set[asyncio.Task[None]] = set()
        self._advancing = False

    # The wish for a process.

    def want(
        self, model: Model, asked: dict[str, Any], residency_class: ResidencyClass, pinned: bool | None = None
    ) -> Start:
        """Enters a wish; there must be none for the model yet. `pinned` None keeps the pin that the model has."""
        key = model.canonical
        if pinned is None:
            running = self.residents.get(key)
            kept = running.pinned if running and not running.barred("unload") else self.pins.get(key)
            pinned = bool(asked.get("pinned")) if kept is None else kept
        start = Start(
            model=model,
            asked=asked,
            residency_class=residency_class,
            pinned=pinned,
            order=next(self._order),
            device=self._loader.device(model, asked),
        )
        self.starts[key] = start
        start.fetching = self._spawn(self._fetch(start))
        return start

    async def _fetch(self, start: Start) -> None:
        try:
            await self._loader.fetch(start.model, start.asked)
            self._loader.check(start.model, start.asked)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            start.fetching = None
            self._failed(start, error)
            return
        start.fetching = None
        start.phase = "queued"
        self.advance()

    def drop(self, start: Start) -> None:
        """Nobody waits for it any more."""
        start.finish()
        self._forget(start)
        self.advance()

    def _failed(self, start: Start, reason: Exception) -> None:
        error = explained(start.model, reason)
        if not start.done.is_set():
            if reason is not error and not isinstance(reason, LemonadeError):
                log.error("loading '%s'", start.model.name, exc_info=reason)
            else:
                log.warning("%s", error.message)
            self._failures.failed(start.key, error)
        self.fail(start, error)

    def fail(self, start: Start, error: LemonadeError) -> None:
        """Tells all who wait, and gives up what has begun. Nothing happens to a start that is over."""
        if not start.done.is_set():
            start.aborted = True
            start.fail(error)
            self._forget(start)
            if start.process is not None:
                self._spawn(start.process.stop(CLOSE_GRACE))
        self.advance()

    def _forget(self, start: Start) -> None:
        if self.starts.get(start.key) is start:
            del self.starts[start.key]
        running = self.residents.get(start.key)
        if start.reload and running is not None and not running.barred("stopping"):
            running.unbar("reload")  # its reason has gone

    # What happens next.

    def advance(self) -> None:
        """Does all that the state allows: lets waiters in, starts the next process, stops what has to go."""
        if self._advancing:
            return
        self._advancing = True
        try:
            while not self.closing and self._step():
                pass
        finally:
            self._advancing = False
        grace = CLOSE_GRACE if self.closing else GRACE
        for resident in list(self.residents.values()):
            if resident.finishing and not resident.leases and not resident.barred("stopping", "gone"):
                resident.bar("stopping")
                self._spawn(self._stop(resident, grace))

    def _step(self) -> bool:
        """One look at the queue. Answers whether it has to be looked at again because something changed."""
        doomed: set[str] = set()
        claimed: set[str] = set()
        next_start: Start | None = None
        for start in sorted(self.starts.values(), key=lambda start: start.order):
            running = self.residents.get(start.key)
            if running is not None and running.open and self._suits(running, start):
                self._serve(start, running)
                return True
            if start.phase != "queued":
                continue
            wanted = start.occupant()
            if not claimed.isdisjoint(wanted.claims):
                claimed |= wanted.claims
                continue
            try:
                obstacles = policy.admit(wanted, self._others(start), self._settings["max_loaded_models"])
            except LemonadeError as error:
                self.fail(start, error)
                return True
            claimed |= wanted.claims
            doomed.update(obstacles)
            if obstacles:
                continue
            if running is None:
                next_start = next_start or start
            elif not running.open or running.process.exited.is_set():
                continue  # until it is gone, or open again
            elif same_files(running.model, start.model):
                # Only its class changes, and there is room for it there.
                running.residency_class = start.residency_class
                return True
            else:
                start.reload = True
                running.bar("reload")
        changed = self._sentence(doomed)
        if next_start is not None and self.starting is None:
            self.starting = next_start
            next_start.phase = "starting"
            self._spawn(self._run(next_start))
        return changed

    def _sentence(self, doomed: set[str]) -> bool:
        """Bars those who stand in somebody's way, and lets those in again who no longer do."""
        pardoned = False
        for resident in self.residents.values():
            helper = resident.residency_class == "routing_helper" and self.helpers is not None
            unneeded = helper and not resident.pinned and resident.key not in (self.helpers or ())
            if resident.key in doomed or unneeded:
                resident.bar("eviction")
            elif resident.barred("eviction") and not resident.barred("stopping"):
                resident.unbar("eviction")
                pardoned |= resident.open and resident.key in self.starts
        return pardoned

    def _others(self, start: Start) -> list[Occupant]:
        others = [resident.occupant() for resident in self.residents.values() if resident.key != start.key]
        if self.starting is not None and self.starting.key != start.key:
            others.append(self.starting.occupant())
        return others

    def _suits(self, resident: Resident, start: Start) -> bool:
        same = resident.residency_class == start.residency_class and same_files(resident.model, start.model)
        return same and not start.reload and not resident.process.exited.is_set()

    def _serve(self, start: Start, resident: Resident) -> None:
        self._forget(start)
        resident.model = start.model
        resident.use(self._clock())
        start.serve(resident)

    # The start of a process.

    async def _run(self, start: Start) -> None:
        try:
            resident = await self._launch(start)
        except Exception as error:  # noqa: BLE001 - whatever it is, somebody waits for it
            self.starting = None
            self._failed(start, error)
        else:
            self.starting = None
            self.pins.pop(resident.key, None)
            self.residents[resident.key] = resident
            log.info(
                "'%s' is ready after %.1f s (process %d)", resident.model.name, resident.load_seconds, resident.pid
            )
            self._serve(start, resident)
            self._spawn(self._watch(resident))
        self.advance()

    async def _launch(self, start: Start) -> Resident:
        """A second attempt is made only where the first one's reason has been taken away."""
        try:
            return await self._launcher.launch(start)
        except PortLost:
            return await self._launcher.launch(start)
        except ModelLoadError as error:
            said = "\n".join([error.message, *(start.process.tail() if start.process else ())])
            if start.aborted or not policy.wants_memory(said):
                raise
            going = [self.residents[key] for key in policy.room(start.occupant(), self._others(start))]
            if not going:
                raise
            log.info("'%s' needs more memory; unloading what is idle", start.model.name)
            for resident in going:
                self.finish(resident, "unload")
            await asyncio.gather(*(resident.gone.wait() for resident in going))
            return await self._launcher.launch(start)

    # The end of a process.

    def finish(self, resident: Resident, why: Barrier) -> None:
        """Stops it as soon as it has no lease."""
        resident.bar(why)
        self.advance()

    async def _watch(self, resident: Resident) -> None:
        process = resident.process
        await process.exited.wait()
        if not resident.barred("stopping"):
            said = "\n".join(process.tail()[-10:])
            how = resident.watchdog_reset_reason or process.epitaph()
            if process.returncode == ABANDONED:
                log.info("'%s' gave its work up by ending; the next request starts it anew", resident.model.name)
            else:
                log.warning("'%s': %s", resident.model.name, how)
                self._failures.crashed(resident.key, f"{how}; its last log lines:\n{said}" if said else how)
            if resident.pinned and not resident.barred("unload"):
                self.pins[resident.key] = True
        await self._remove(resident)

    async def _stop(self, resident: Resident, grace: float) -> None:
        await resident.process.stop(grace)
        await self._remove(resident)

    async def _remove(self, resident: Resident) -> None:
        resident.bar("gone")
        if self.residents.get(resident.key) is resident:
            del self.residents[resident.key]
        resident.gone.set()
        self.advance()
        await resident.process.stop(0)
        await resident.connection.close()

    def doubt(self, resident: Resident) -> None:
        """It did not answer as it should: looks at it before it gets another lease."""
        if not resident.barred("doubt", "stopping", "gone"):
            resident.bar("doubt")
            self._spawn(self._examine(resident))

    async def _examine(self, resident: Resident) -> None:
        try:
            await asyncio.wait_for(resident.process.exited.wait(), DOUBT)
            return
        except TimeoutError:
            pass
        if await resident.process.probe(DOUBT_PROBE):
            resident.unbar("doubt")
            self.advance()
        else:
            await resident.process.stop(0)

    async def close(self, error: LemonadeError) -> None:
        """Fails all starts with `error` and stops all processes, the busy ones when they have answered or after
        `CLOSE_BUSY` seconds."""
        self.closing = True
        for start in list(self.starts.values()):
            self.fail(start, error)
        for resident in self.residents.values():
            resident.bar("unload")
        self.advance()
        await asyncio.gather(*(self._close(resident) for resident in list(self.residents.values())))
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _close(self, resident: Resident) -> None:
        try:
            await asyncio.wait_for(resident.gone.wait(), CLOSE_BUSY)
        except TimeoutError:
            resident.bar("stopping")
            await self._stop(resident, CLOSE_GRACE)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
