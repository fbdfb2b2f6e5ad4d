"""The right to use a model's engine for one request: the only way to an engine."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Protocol

from lemonade.engines.connection import Connection
from lemonade.errors import EngineLost
from lemonade.model import Model
from lemonade.residency.policy import ResidencyClass
from lemonade.residency.resident import Resident


class Owner(Protocol):
    """What a lease asks of the manager."""

    def take(self, lease: Lease) -> Resident | None:
        """Counts the lease in if its model is ready, else answers None."""
        ...

    async def join(self, lease: Lease) -> Resident:
        """Waits for the model, starting it if need be, and counts the lease in."""
        ...

    def answered(self, resident: Resident) -> None: ...
    def give_back(self, resident: Resident) -> None: ...
    def doubt(self, resident: Resident) -> None: ...


class Lease:
    """An asynchronous context manager; `resident` and `connection` are there inside it.

    While it is held, the model is not stopped by an eviction, an unload or a reload. It is to be held until the last
    byte of the answer, and no longer.

    Entering raises what kept the model from being ready: `ModelLoadError`, `SlotsPinned`, `HubError`, `Busy`, …
    """

    __slots__ = ("_owner", "_resident", "key", "model", "options", "residency_class", "streaming")

    def __init__(
        self,
        owner: Owner,
        model: Model,
        options: Mapping[str, Any],
        residency_class: ResidencyClass = "standard",
        streaming: bool = False,
    ) -> None:
        self._owner = owner
        self._resident: Resident | None = None
        self.model = model
        self.key = model.canonical
        self.options = options
        self.residency_class: ResidencyClass = residency_class
        self.streaming = streaming

    @property
    def resident(self) -> Resident:
        assert self._resident is not None, "a lease is used inside `async with`"
        return self._resident

    @property
    def connection(self) -> Connection:
        return self.resident.connection

    def touch(self) -> None:
        """Output was seen: the engine is alive. Costs next to nothing; call it for every piece."""
        self.resident.touched = True

    def lost(self) -> None:
        """The engine did not answer as it should (`EngineLost`): the next lease gets a process that was looked at
        first, or a new one. Leaving the context with an `EngineLost` says the same."""
        self._owner.doubt(self.resident)

    async def __aenter__(self) -> Lease:
        resident = self._owner.take(self)
        if resident is None:
            resident = await self._owner.join(self)
        self._resident = resident
        if self.streaming:
            resident.streams += 1
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        resident = self.resident
        if error is None:
            self._owner.answered(resident)
        elif isinstance(error, EngineLost):
            self._owner.doubt(resident)
        if self.streaming:
            resident.streams -= 1
        self._owner.give_back(resident)
