"""One model in memory: its process, who uses it, and what `/health` says of it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Literal

from lemonade.engines.connection import Connection
from lemonade.engines.engine import Launch
from lemonade.engines.process import EngineProcess
from lemonade.model import Model
from lemonade.residency.policy import Idler, Occupant, ResidencyClass

Status = Literal["ready", "in_use", "downsizing", "downsized", "evicting"]
Health = Literal["ready", "busy", "exited", "stopped", "watchdog_reset"]

#: Why a resident takes no new leases. The first three end with its process; the next two pass.
Barrier = Literal["unload", "reload", "eviction", "doubt", "downsizing", "stopping", "gone"]
FINAL: frozenset[Barrier] = frozenset({"unload", "reload", "eviction"})


StartProcess = Callable[[Launch], Awaitable[EngineProcess]]
Connect = Callable[[EngineProcess], Connection]


class Resident:
    """A process that is, or was, ready. Its manager alone changes it; everybody may read.

    Attributes:
        options: those it runs with, `ctx_size` being the real number.
        asked: the same before the context was sized, to compare later loads with.
        launch: how it was started (`launch.argv`, `launch.port`, `launch.device`).
        load_seconds: from the start of the process until it was ready.
        last_use: Unix seconds.
        used: the same moment on the manager's clock.
        leases, streams: requests inside it, and how many of them are streamed.
        open: whether it takes new leases; kept in step by `bar` and `unbar`, so that a lease looks at nothing else.
        touched: output was seen since the watchdog last looked.
        gone: set when the process is.
    """

    def __init__(
        self,
        *,
        model: Model,
        options: Mapping[str, Any],
        asked: Mapping[str, Any],
        launch: Launch,
        process: EngineProcess,
        connection: Connection,
        residency_class: ResidencyClass,
        pinned: bool,
        load_seconds: float,
        now: float,
    ) -> None:
        self.model = model
        self.key = model.canonical
        self.options = dict(options)
        self.asked = dict(asked)
        self.launch = launch
        self.process = process
        self.connection = connection
        self.residency_class: ResidencyClass = residency_class
        self.pinned = pinned
        self.load_seconds = load_seconds
        self.used = now
        self.last_use = time.time()
        self.leases = 0
        self.streams = 0
        self.open = True
        self.touched = False
        self.quiet_since = now
        self.missed_probes = 0
        self.downsized = False
        self.watchdog_reset = False
        self.watchdog_reset_reason: str | None = None
        self.gone = asyncio.Event()
        self._barriers: set[Barrier] = set()

    # For the manager.

    def use(self, now: float) -> None:
        self.used = now
        self.last_use = time.time()

    def bar(self, barrier: Barrier) -> None:
        self._barriers.add(barrier)
        self.open = False

    def unbar(self, barrier: Barrier) -> None:
        self._barriers.discard(barrier)
        self.open = not self._barriers

    def barred(self, *barriers: Barrier) -> bool:
        return not self._barriers.isdisjoint(barriers)

    @property
    def finishing(self) -> bool:
        """It is to be stopped as soon as it has no lease."""
        return not self._barriers.isdisjoint(FINAL)

    # For /health.

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def port(self) -> int:
        return self.launch.port

    @property
    def device(self) -> str:
        return self.launch.device

    @property
    def is_busy(self) -> bool:
        return self.leases > 0

    @property
    def is_streaming(self) -> bool:
        return self.streams > 0

    @property
    def status(self) -> Status:
        if self.finishing or self.barred("stopping", "gone"):
            return "evicting"
        if self.barred("downsizing"):
            return "downsizing"
        if self.leases:
            return "in_use"
        return "downsized" if self.downsized else "ready"

    @property
    def backend_health(self) -> Health:
        if self.watchdog_reset:
            return "watchdog_reset"
        if self.process.exited.is_set():
            return "stopped" if self.barred("stopping") else "exited"
        return "busy" if self.leases else "ready"

    @property
    def slot_pool(self) -> str:
        return self.occupant().pool

    # For the policy.

    def occupant(self) -> Occupant:
        return Occupant(
            key=self.key,
            name=self.model.name,
            type=self.model.type,
            recipe=self.model.recipe,
            residency_class=self.residency_class,
            device=self.launch.device,
            pinned=self.pinned,
            busy=self.leases > 0,
            leaving=self.barred("unload", "reload", "stopping", "gone"),
            used=self.used,
        )

    def idler(self, now: float) -> Idler:
        options = self.options
        return Idler(
            key=self.key,
            auto_evict=options.get("auto_evict"),
            pinned=self.pinned,
            busy=self.leases > 0,
            leaving=not self.open,
            idle=now - self.used,
            full=not self.downsized,
            evict_after=options.get("evict_idle_timeout", 300),
            downsize_after=options.get("downsize_idle_timeout", 60),
            load_seconds=self.load_seconds,
            weight=options.get("evict_weight_factor", 1.0),
        )
