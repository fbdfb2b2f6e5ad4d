"""Lets go of models that nobody uses, and of some when the machine's memory fills up. Off unless `auto_evict` is on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import msgspec

from lemonade.errors import EngineError
from lemonade.residency import policy
from lemonade.residency.resident import Resident
from lemonade.settings import Settings

log = logging.getLogger(__name__)

#: Seconds between two looks at idle models, and between two samples of the memory in use.
IDLE_POLL = 5.0
PRESSURE_POLL = 2.0
#: Seconds for an engine to let its caches go.
DOWNSIZE_TIMEOUT = 10.0


def memory_in_use() -> float:
    """The share of the machine's memory that cannot be had, 0 to 1."""
    import psutil

    return float(psutil.virtual_memory().percent) / 100


class Memory:
    """Evaluates idle times and memory pressure.

    Args:
        residents: what is in memory.
        evict: stops one resident, if it is still idle.
        changed: a resident takes leases again.
        usage: the share of memory in use.
    """

    def __init__(
        self,
        residents: Callable[[], list[Resident]],
        evict: Callable[[Resident], None],
        changed: Callable[[], None],
        settings: Settings,
        clock: Callable[[], float],
        usage: Callable[[], float] = memory_in_use,
    ) -> None:
        self._residents = residents
        self._evict = evict
        self._changed = changed
        self._settings = settings
        self._clock = clock
        self._usage = usage
        self._tasks: list[asyncio.Task[None]] = []

    def run(self) -> None:
        """Begins to look, if it does not yet."""
        if not self._tasks:
            self._tasks = [asyncio.ensure_future(self._idle_loop()), asyncio.ensure_future(self._pressure_loop())]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()

    async def simulate(self, usage: float) -> None:
        """Behaves as if this share of the memory were in use; a negative one means one evaluation of idle models."""
        if usage < 0:
            await self.evaluate()
        else:
            self.press(usage)

    async def evaluate(self) -> None:
        """Unloads at most one model that was idle for long, and shrinks those that were for some time."""
        now = self._clock()
        residents = {resident.key: resident for resident in self._residents()}
        models = [resident.idler(now) for resident in residents.values()]
        evict, downsize = policy.idle_step(models, bool(self._settings["auto_evict"]))
        if evict is not None:
            log.info("unloading '%s': nobody has used it for a while", residents[evict].model.name)
            self._evict(residents[evict])
        await asyncio.gather(*(self._downsize(residents[key]) for key in downsize))

    def press(self, usage: float) -> None:
        """Unloads one model if so much memory is in use that one should go."""
        now = self._clock()
        residents = {resident.key: resident for resident in self._residents()}
        models = [resident.idler(now) for resident in residents.values()]
        key = policy.pressure_step(models, usage, self._settings["auto_evict_threshold_pct"])
        if key is not None:
            log.info("unloading '%s': %.0f %% of the memory is in use", residents[key].model.name, usage * 100)
            self._evict(residents[key])

    async def _downsize(self, resident: Resident) -> None:
        resident.bar("downsizing")
        try:
            if resident.model.recipe == "llamacpp":
                async with asyncio.timeout(DOWNSIZE_TIMEOUT):
                    if not await _sleeps(resident):
                        await _erase_slots(resident)
        except (EngineError, TimeoutError, msgspec.MsgspecError) as error:
            # It is left as it is until its next use; a look every five seconds would not make it better.
            log.warning("'%s' keeps its caches: %s", resident.model.name, error or "no answer")
        finally:
            resident.downsized = True
            resident.unbar("downsizing")
            self._changed()

    async def _idle_loop(self) -> None:
        while True:
            await asyncio.sleep(IDLE_POLL)
            try:
                # Cheap when nobody switched it on: a walk over a handful of models.
                await self.evaluate()
            except Exception:
                log.exception("looking at idle models")

    async def _pressure_loop(self) -> None:
        while True:
            await asyncio.sleep(PRESSURE_POLL)
            try:
                if self._settings["auto_evict"] and self._residents():
                    self.press(self._usage())
            except Exception:
                log.exception("looking at the memory")


class _Properties(msgspec.Struct):
    is_sleeping: bool = False


class _Slot(msgspec.Struct):
    id: int


async def _sleeps(resident: Resident) -> bool:
    """Whether llama.cpp has given its memory back by itself; to ask for its slots would wake it."""
    reply = await resident.connection.request("GET", "/props")
    body = await reply.read()
    return reply.status == 200 and msgspec.json.decode(body, type=_Properties).is_sleeping


async def _erase_slots(resident: Resident) -> None:
    reply = await resident.connection.request("GET", "/slots")
    body = await reply.read()
    if reply.status != 200:
        log.debug("'%s' does not tell its slots (status %d)", resident.model.name, reply.status)
        return
    for slot in msgspec.json.decode(body, type=list[_Slot]):
        reply = await resident.connection.request("POST", f"/slots/{slot.id}?action=erase", b"{}")
        await reply.read()
        if reply.status != 200:
            log.debug("'%s' keeps slot %d (status %d)", resident.model.name, slot.id, reply.status)
