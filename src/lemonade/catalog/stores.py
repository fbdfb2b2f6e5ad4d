"""The JSON files in which a person's own models, options and aliases are kept.

A file may be edited by hand, or by another process, while the daemon runs: it is read again when its stamp changes, and
changed only under a lock that threads and processes share, starting from what is on disk at that moment.
"""

from __future__ import annotations

import contextlib
import copy
import json
import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lemonade.settings import write_json

log = logging.getLogger("lemonade.catalog")

Stamp = tuple[int, int, int]


class ObjectFile:
    """One JSON object in a file.

    Args:
        path: the file; it need not exist.
        private: keep it readable for its owner only (mode 0600).
        set_aside: rename a file that is no JSON object to `NAME.corrupted` when it is read. Without it such a file is
            left alone and counts as empty, and a change is refused rather than overwriting what a person had typed.
    """

    def __init__(self, path: Path, *, private: bool = False, set_aside: bool = False) -> None:
        self.path = path
        self._private = private
        self._set_aside = set_aside
        self._stamp: Stamp | str | None = "never read"
        self._values: dict[str, Any] = {}
        self._broken: str | None = None
        self._mutex = threading.RLock()
        #: Grows each time other values were read or written.
        self.version = 0

    def values(self) -> dict[str, Any]:
        """What the file says now. Treat it as read-only; costs one stat when nothing changed."""
        stamp = _stamp(self.path)
        if stamp != self._stamp:
            with self._mutex:
                self._read(stamp)
        return self._values

    def change(self, edit: Callable[[dict[str, Any]], None]) -> None:
        """Applies `edit` to a copy of the values on disk and writes them, unless `edit` raises or changes nothing.

        Raises:
            OSError: the file cannot be written, or holds no JSON object and must not be overwritten.
        """
        with self._mutex, _locked(self.path):
            self._read(_stamp(self.path))
            if self._broken is not None:
                raise OSError(f"{self.path} cannot be changed because it cannot be read ({self._broken}). Correct it.")
            values = copy.deepcopy(self._values)
            edit(values)
            if values == self._values:
                return
            write_json(self.path, values)
            if not self._private and os.name == "posix":
                self.path.chmod(0o644)  # the sibling that was renamed is private
            self._values, self._stamp = values, _stamp(self.path)
            self.version += 1

    def _read(self, stamp: Stamp | None) -> None:
        if stamp == self._stamp:
            return
        before = self._values
        self._values, self._broken, self._stamp = {}, None, stamp
        if stamp is not None:
            try:
                loaded = json.loads(self.path.read_text(encoding="utf-8"))
                if not isinstance(loaded, dict):
                    raise ValueError("it must hold a JSON object")
                self._values = loaded
            except FileNotFoundError:
                self._stamp = None
            except (ValueError, OSError, RecursionError) as error:
                self._refuse(error)
        if before != self._values or self.version == 0:
            self.version += 1

    def _refuse(self, error: Exception) -> None:
        self._broken = str(error)
        if not self._set_aside or isinstance(error, OSError):
            log.error("%s cannot be read and counts as empty until it is corrected: %s", self.path, error)
            return
        aside = self.path.with_name(f"{self.path.name}.corrupted")
        try:
            self.path.replace(aside)
        except OSError as failure:
            log.error("%s cannot be read (%s) nor set aside (%s)", self.path, error, failure)
            return
        self._stamp, self._broken = None, None
        log.error("%s could not be read (%s); it was set aside as %s", self.path, error, aside.name)


def adopt(name: str, old: Path, new: Path) -> None:
    """Moves a file from the folder where older versions kept it, unless there is one in the new folder."""
    if old == new or (new / name).exists() or not (old / name).is_file():
        return
    try:
        new.mkdir(parents=True, exist_ok=True)
        shutil.move(old / name, new / name)
    except OSError as error:
        log.warning("%s cannot be moved to %s: %s", old / name, new, error)


def _stamp(path: Path) -> Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Holds the lock of a file, `.NAME.lock` beside it, against every other process that uses this module."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path.with_name(f".{path.name}.lock"), "a+b") as handle:
        _acquire(handle.fileno())
        try:
            yield
        finally:
            _release(handle.fileno())


if sys.platform == "win32":
    import msvcrt

    def _acquire(descriptor: int) -> None:
        while True:
            os.lseek(descriptor, 0, os.SEEK_SET)
            try:
                msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
                return
            except OSError:  # LK_LOCK gives up after ten seconds
                continue

    def _release(descriptor: int) -> None:
        os.lseek(descriptor, 0, os.SEEK_SET)
        msvcrt.locking(descriptor, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _acquire(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)

    def _release(descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
