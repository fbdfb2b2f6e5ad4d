"""What this machine is: one value, made without starting a process, so that the daemon's start stays quick."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from lemonade.system.cgroup import memory_limits

GIB = 1024**3

#: PCI vendor ids, as /sys/class/drm/*/device/vendor shows them.
VENDORS = {"0x1002": "amd", "0x10de": "nvidia", "0x8086": "intel"}

#: Names that platforms have for the same instruction set.
ARCHITECTURES = {"amd64": "x86_64", "x64": "x86_64", "aarch64": "arm64"}


@dataclass(frozen=True, slots=True)
class GPU:
    """One graphics processor.

    Attributes:
        vendor: `amd`, `nvidia`, `intel` or `apple`.
        integrated: whether it uses the machine's memory instead of its own.
        vram: bytes of its own memory, 0 when unknown.
        shared: bytes of the machine's memory that it may map (GTT), 0 when unknown.
    """

    name: str
    vendor: str
    integrated: bool = False
    vram: int = 0
    shared: int = 0


def available_memory() -> int:
    """Bytes that new processes can have without swapping, within the limits of a container or a service."""
    import psutil

    return min([int(psutil.virtual_memory().available), *(limit.free for limit in memory_limits())])


def total_memory() -> int:
    """Bytes of RAM, or of the limit of a container or a service."""
    import psutil

    return min([int(psutil.virtual_memory().total), *(limit.limit for limit in memory_limits())])


def find_gpus() -> tuple[GPU, ...]:
    """The GPUs that the kernel shows in files; none on a platform that shows them only through programs."""
    if sys.platform == "darwin" and platform.machine() == "arm64":
        return (GPU("Apple GPU", "apple", integrated=True),)
    if sys.platform != "linux":
        return ()
    return drm_gpus(Path("/sys/class/drm"))


def drm_gpus(root: Path) -> tuple[GPU, ...]:
    """GPUs below a directory that is laid out as Linux's /sys/class/drm."""
    found = []
    for device in sorted(root.glob("card[0-9]*/device")):
        vendor = VENDORS.get(_text(device / "vendor"))
        if vendor is None or "-" in device.parent.name:  # card0-HDMI-A-1 is a connector
            continue
        vram = _number(device / "mem_info_vram_total")
        shared = _number(device / "mem_info_gtt_total")
        # An APU carves a few hundred MiB out of the machine's memory and maps the rest through GTT.
        integrated = vendor == "intel" or (vendor == "amd" and 0 < vram < shared and vram <= 4 * GIB)
        name = _text(device / "product_name") or f"{vendor.upper()} GPU {_text(device / 'device')}".strip()
        found.append(GPU(name, vendor, integrated, vram, shared))
    return tuple(found)


@dataclass(frozen=True)
class Hardware:
    """The machine. Construct it by hand in tests; `detect()` asks the machine itself.

    Attributes:
        os: `linux`, `windows` or `macos`.
        os_version: the name that a person knows, such as `Debian GNU/Linux 12 (bookworm)`.
        arch: `x86_64`, `arm64`, …
        processor: the processor's marketing name.
        cores, threads: physical cores and hardware threads that this process may use.
        memory: bytes of RAM that the daemon and its engines may use, 0 when unknown.
        memory_available: asks for the bytes that are free right now.
        look_for_gpus: asks for the GPUs, at most once.
    """

    os: str = "linux"
    os_version: str = "Linux"
    arch: str = "x86_64"
    processor: str = "Unknown processor"
    cores: int = 1
    threads: int = 1
    memory: int = 0
    memory_available: Callable[[], int] = available_memory
    look_for_gpus: Callable[[], tuple[GPU, ...]] = find_gpus

    @classmethod
    def detect(cls) -> Hardware:
        import psutil

        system = {"darwin": "macos", "win32": "windows"}.get(sys.platform, "linux")
        threads = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        cores = psutil.cpu_count(logical=False) or threads
        machine = platform.machine().lower()
        return cls(
            os=system,
            os_version=_os_version(system),
            arch=ARCHITECTURES.get(machine, machine),
            processor=_processor(),
            cores=max(1, min(cores, threads)),
            threads=threads,
            memory=total_memory(),
        )

    @cached_property
    def gpus(self) -> tuple[GPU, ...]:
        return self.look_for_gpus()


def _os_version(system: str) -> str:
    if system == "linux":
        try:
            return platform.freedesktop_os_release()["PRETTY_NAME"]
        except (OSError, KeyError):
            return f"Linux {platform.release()}"
    if system == "macos":
        return f"macOS {platform.mac_ver()[0]}"
    return f"Windows {platform.release()}"


def _processor() -> str:
    if sys.platform == "linux":
        try:
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
                if line.startswith(("model name", "Model")):
                    return line.partition(":")[2].strip()
        except OSError:
            pass
    # Not platform.processor(): it starts a process on some systems.
    return os.environ.get("PROCESSOR_IDENTIFIER") or platform.machine() or "Unknown processor"


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int:
    text = _text(path)
    return int(text) if text.isdigit() else 0
