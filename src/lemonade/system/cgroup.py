"""The memory that Linux lets this process have when it is less than the machine's: in containers, in services."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

ROOT = Path("/sys/fs/cgroup")
SELF = Path("/proc/self/cgroup")


class MemoryLimit(NamedTuple):
    """Bytes: what may be used, and what is in use of it, file caches that can be dropped at once left out."""

    limit: int
    used: int

    @property
    def free(self) -> int:
        return max(0, self.limit - self.used)


def memory_limits(root: Path = ROOT, own: Path = SELF) -> list[MemoryLimit]:
    """The limits that hold for this process, of its own group and of those around it; empty where there are none."""
    try:
        lines = own.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2) if line.count(":") >= 2 else ("", "-", "")
        if controllers == "":
            base, names = root, ("memory.max", "memory.current")
        elif "memory" in controllers.split(","):
            base, names = root / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes")
        else:
            continue
        folder = base / path.lstrip("/")
        for group in (folder, *folder.parents):
            if group.is_relative_to(base) and (limit := _limit(group, *names)):
                found.append(limit)
    return found


def _limit(group: Path, limit_name: str, used_name: str) -> MemoryLimit | None:
    limit, used = _number(group / limit_name), _number(group / used_name)
    if limit is None or used is None or limit >= 1 << 62:  # version 1 writes a huge number for no limit
        return None
    return MemoryLimit(limit, max(0, used - _droppable(group)))


def _droppable(group: Path) -> int:
    try:
        lines = (group / "memory.stat").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return 0
    facts = dict(line.split(" ", 1) for line in lines if " " in line)
    text = facts.get("total_inactive_file") or facts.get("inactive_file") or "0"
    return int(text) if text.isdigit() else 0


def _number(path: Path) -> int | None:
    """None where there is no such file, and for `max`."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
