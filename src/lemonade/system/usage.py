"""How busy the machine is right now. Everything is read from the kernel's files; no process is started."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from lemonade.system.hardware import GIB

#: Seconds for which a look is believed. Between two of them the share of the processor is taken.
FRESH = 0.5
DRM = Path("/sys/class/drm")


class Load(msgspec.Struct, frozen=True):
    """The machine at one moment; None for what it does not tell.

    Attributes:
        cpu_percent: share of all processors since the moment before, from 0 to 100.
        memory_gb: memory in use, GiB.
        gpu_percent: share of the busiest GPU.
        vram_gb: GPU memory in use, GiB.
        npu_percent: share of the NPU.
    """

    cpu_percent: float | None
    memory_gb: float
    gpu_percent: float | None
    vram_gb: float | None
    npu_percent: float | None = None


class Usage:
    """Looks at the machine, at most every `FRESH` seconds.

    Args:
        drm: a directory that is laid out as Linux's /sys/class/drm.
        clock: seconds.
    """

    def __init__(self, *, drm: Path = DRM, clock: Callable[[], float] = time.monotonic) -> None:
        self._drm = drm
        self._clock = clock
        self._at = 0.0
        self._times: tuple[float, float] | None = None
        self._load: Load | None = None
        self._cpu()  # the first answer is about the time since now

    def now(self) -> Load:
        if self._load is None or self._clock() - self._at >= FRESH:
            self._load = self._look()
            self._at = self._clock()
        return self._load

    def _look(self) -> Load:
        import psutil

        memory = psutil.virtual_memory()
        return Load(
            cpu_percent=self._cpu(),
            memory_gb=round((memory.total - memory.available) / GIB, 3),
            gpu_percent=self._gpu("gpu_busy_percent", max),
            vram_gb=self._vram(),
        )

    def _cpu(self) -> float | None:
        import psutil

        times = psutil.cpu_times()
        total = sum(times) - getattr(times, "guest", 0) - getattr(times, "guest_nice", 0)
        idle = times.idle + getattr(times, "iowait", 0.0)
        before, self._times = self._times, (total, idle)
        if before is None:
            return None
        passed = total - before[0]
        if passed <= 0:
            return self._load.cpu_percent if self._load else None
        return round(min(max(100.0 * (1 - (idle - before[1]) / passed), 0.0), 100.0), 1)

    def _vram(self) -> float | None:
        used = self._gpu("mem_info_vram_used", sum)
        return None if used is None else round(used / GIB, 3)

    def _gpu(self, file: str, combine: Callable[[list[int]], int]) -> float | None:
        found = []
        for path in self._drm.glob(f"card*/device/{file}"):
            try:
                found.append(int(path.read_text(encoding="ascii")))
            except (OSError, ValueError):
                continue
        return float(combine(found)) if found else None
