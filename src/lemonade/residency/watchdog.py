"""Ends engines that hang: alive as a process, but answering nobody.

Only an engine with requests inside and without output for a while is looked at; one that answers a look at its health
is thought to work, however long it takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from lemonade.residency.resident import Resident

log = logging.getLogger(__name__)

_PREFIX = "LEMONADE_BACKEND_WATCHDOG"
#: Least grace, in seconds: a long prompt alone may keep an engine silent for some seconds.
LEAST_GRACE = 10.0


@dataclass(frozen=True)
class Limits:
    """Seconds, and a number of probes; the defaults are those of the original."""

    enabled: bool = True
    grace: float = 90.0
    poll: float = 5.0
    probe: float = 2.0
    failures: int = 3

    @classmethod
    def read(cls, env: Mapping[str, str]) -> Limits:
        """From `LEMONADE_BACKEND_WATCHDOG` and `…_GRACE_SECONDS`, `…_POLL_SECONDS`, `…_PROBE_TIMEOUT_SECONDS`,
        `…_MAX_FAILURES`. A value that is no number above zero is reported and ignored."""

        def number(name: str, default: float, least: float) -> float:
            text = env.get(f"{_PREFIX}_{name}", "").strip()
            if not text:
                return default
            try:
                value = float(text)
                if not 0 < value < float("inf"):
                    raise ValueError
            except ValueError:
                log.warning("%s_%s must be a number above 0, not %r; it is ignored", _PREFIX, name, text)
                return default
            return max(value, least)

        return cls(
            enabled=env.get(_PREFIX, "").strip().lower() not in ("0", "false", "no", "off"),
            grace=number("GRACE_SECONDS", cls.grace, LEAST_GRACE),
            poll=number("POLL_SECONDS", cls.poll, 0.1),
            probe=number("PROBE_TIMEOUT_SECONDS", cls.probe, 0.1),
            failures=int(number("MAX_FAILURES", cls.failures, 1)),
        )


class Watchdog:
    """Looks at `residents()` now and then.

    Attributes:
        limits: may be replaced before the first engine starts.
    """

    def __init__(
        self, residents: Callable[[], list[Resident]], clock: Callable[[], float], env: Mapping[str, str]
    ) -> None:
        self.limits = Limits.read(env)
        self._residents = residents
        self._clock = clock
        self._task: asyncio.Task[None] | None = None

    def run(self) -> None:
        """Begins to watch, if it does not yet."""
        if self._task is None and self.limits.enabled:
            self._task = asyncio.ensure_future(self._loop())

    def close(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def look(self) -> None:
        """One round over all engines."""
        await asyncio.gather(*(self._look_at(resident) for resident in self._residents()))

    async def _loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.poll)
            try:
                await self.look()
            except Exception:
                log.exception("looking at engines")

    async def _look_at(self, resident: Resident) -> None:
        now, limits = self._clock(), self.limits
        if resident.touched or not resident.leases:
            resident.touched = False
            resident.quiet_since = now
            resident.missed_probes = 0
        elif now - resident.quiet_since >= limits.grace:
            if await resident.process.probe(limits.probe):
                resident.quiet_since = now
                resident.missed_probes = 0
            else:
                resident.missed_probes += 1
                if resident.missed_probes >= limits.failures:
                    await self._reset(resident)

    async def _reset(self, resident: Resident) -> None:
        silent = self._clock() - resident.quiet_since
        reason = (
            f"{resident.launch.name} had given no output for {silent:.0f} s and did not answer "
            f"{resident.missed_probes} looks at its health; it was ended and starts anew with the next request"
        )
        resident.watchdog_reset = True
        resident.watchdog_reset_reason = reason
        resident.connection.verdict = reason
        await resident.process.stop(0)
