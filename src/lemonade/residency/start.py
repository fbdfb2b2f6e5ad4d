"""A model that somebody waits for: from the wish until its process is ready."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any, Literal

from lemonade.engines.process import EngineProcess
from lemonade.errors import LemonadeError
from lemonade.model import Model
from lemonade.residency.policy import Occupant, ResidencyClass
from lemonade.residency.resident import Resident

Phase = Literal["fetching", "queued", "starting"]


@dataclass(eq=False, slots=True)
class Waiter:
    """Somebody who waits; `leases` says whether they are counted in when the model is ready."""

    future: asyncio.Future[Resident]
    leases: bool


@dataclass(eq=False, slots=True, kw_only=True)
class Start:
    """One wish for a process; at most one per model.

    Attributes:
        asked: resolved options.
        pinned: what the model's pin will be.
        order: its place in the queue; smaller first.
        device: what it will compute on, as far as that is known before it starts.
        reload: a process that runs with other options must go first.
        phase: its files are being fetched; it waits for its turn; its process exists.
        process: in phase `starting`.
        aborted: it is no longer wanted although it has begun.
        done: set at its end, whatever that was.
    """

    model: Model
    asked: dict[str, Any]
    residency_class: ResidencyClass
    pinned: bool
    order: int
    device: str
    reload: bool = False
    phase: Phase = "fetching"
    process: EngineProcess | None = None
    aborted: bool = False
    waiters: list[Waiter] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    fetching: asyncio.Task[None] | None = None

    @property
    def key(self) -> str:
        return self.model.canonical

    def occupant(self) -> Occupant:
        return Occupant(
            key=self.key,
            name=self.model.name,
            type=self.model.type,
            recipe=self.model.recipe,
            residency_class=self.residency_class,
            device=self.device,
            pinned=self.pinned,
            busy=True,
        )

    def serve(self, resident: Resident) -> None:
        """Counts the waiting leases in and wakes everybody: there is no moment at which the model is ready, free of
        leases, and yet awaited."""
        self.finish()
        for waiter in self.waiters:
            if not waiter.future.done():
                if waiter.leases:
                    resident.leases += 1
                waiter.future.set_result(resident)

    def fail(self, error: LemonadeError) -> None:
        self.finish()
        for waiter in self.waiters:
            if not waiter.future.done():
                waiter.future.set_exception(error)

    def finish(self) -> None:
        if self.fetching is not None:
            self.fetching.cancel()
        self.done.set()


def same_files(one: Model, other: Model) -> bool:
    """Whether a process of the one serves the other: the catalog may have made the value anew meanwhile."""
    return one is other or (one.recipe == other.recipe and one.checkpoints == other.checkpoints)
