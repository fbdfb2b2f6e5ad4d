"""What this machine has: programs on PATH, Python packages, cores."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
import sys
import time
from functools import cache
from pathlib import Path

#: Seconds for which a look at PATH is believed. A person who installs a program need not restart the daemon.
FRESH = 5.0

_seen: dict[tuple[str, str], tuple[float, str | None]] = {}


def find_program(name: str) -> str | None:
    """The full path of a program on PATH, or else beside this Python (where pip puts programs), or None."""
    key = (name, os.environ.get("PATH", ""))
    now = time.monotonic()
    when, found = _seen.get(key, (-FRESH, None))
    if now - when >= FRESH or (found is not None and not os.access(found, os.X_OK)):
        found = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
        _seen[key] = (now, found)
    return found


@cache
def installed_version(distribution: str) -> str:
    """The version of a Python package, `""` when it is not installed. Reads metadata; imports nothing."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return ""


def physical_cores() -> int:
    """Physical cores that this process may use. The threads of engines wait for each other, so more only hinder."""
    import psutil

    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(psutil.cpu_count(logical=False) or allowed, allowed))
