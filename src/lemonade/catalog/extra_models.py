"""GGUF files that lie in a folder of the person's own: offered as they are, never downloaded, changed or deleted."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import stat
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import msgspec

from lemonade.hub.selection import SHARD, is_companion, quantisation
from lemonade.model import Model
from lemonade.system.hardware import GIB

log = logging.getLogger("lemonade.catalog")

#: Seconds between looks at the folder where the system cannot tell of changes (network drives, say).
POLL_SECONDS = 5.0


class Found(msgspec.Struct, frozen=True):
    """One scan.

    Attributes:
        models: by bare name.
        folders: the name of a folder that gave several models, to the first of them.
    """

    models: dict[str, Model] = {}
    folders: dict[str, str] = {}


def scan(root: Path) -> Found:
    """Every model below `root`. A folder that does not exist holds none; what cannot be read is passed over."""
    models: dict[str, Model] = {}
    folders: dict[str, str] = {}
    by_folder: dict[Path, list[Path]] = {}
    for path in _gguf_files(root):
        by_folder.setdefault(path.parent, []).append(path)
    for folder, files in sorted(by_folder.items()):
        main = sorted(path for path in files if not is_companion(path.name))
        projectors = sorted(path for path in files if "mmproj" in path.name.lower())
        if not main:
            continue
        groups = _series(main)
        if folder == root:
            for stem, series in groups.items():
                _add(models, stem, folder.name, series, None)
            continue
        projector = projectors[0].name if projectors else None
        if len(groups) > 1 and _all_distinct(groups):
            names = [_add(models, stem, folder.name, series, projector) for stem, series in groups.items()]
            folders[folder.name] = names[0]
        else:
            _add(models, folder.name, folder.parent.name, main, projector, checkpoint=folder)
    return Found(models, folders)


def _gguf_files(root: Path) -> Iterator[Path]:
    for directory, subdirectories, names in os.walk(root, followlinks=False):
        subdirectories[:] = sorted(name for name in subdirectories if not name.startswith("."))
        for name in names:
            path = Path(directory, name)
            if not name.lower().endswith(".gguf") or name.startswith(".") or not os.access(path, os.R_OK):
                continue
            if _is_text(path):
                yield path
            else:
                log.warning("%r is no model: its name is not UTF-8", os.fsencode(path))


def _is_text(path: Path) -> bool:
    """Whether the name can be said in JSON; a system may hold names of any bytes."""
    try:
        str(path).encode()
    except UnicodeEncodeError:
        return False
    return True


def _series(files: list[Path]) -> dict[str, list[Path]]:
    """Stem without the shard's number, to the files of the series."""
    groups: dict[str, list[Path]] = {}
    for path in files:
        shard = SHARD.match(path.name)
        groups.setdefault(shard["base"] if shard else path.stem, []).append(path)
    return groups


def _all_distinct(groups: dict[str, list[Path]]) -> bool:
    tokens = [quantisation(stem) for stem in groups]
    return None not in tokens and len(set(tokens)) == len(tokens)


def _add(
    models: dict[str, Model],
    name: str,
    prefix: str,
    files: list[Path],
    projector: str | None,
    *,
    checkpoint: Path | None = None,
) -> str:
    if name in models:
        name = f"{prefix}-{name}"
    number, free = 2, name
    while free in models:
        free, number = f"{name}-{number}", number + 1
    checkpoints = {"main": str(checkpoint or files[0])}
    if projector:
        checkpoints["mmproj"] = projector
    models[free] = Model(
        name=free,
        recipe="llamacpp",
        origin="extra",
        checkpoints=checkpoints,
        labels=("custom", "chat", "vision") if projector else ("custom", "chat"),
        size=sum(_size(path) for path in files) / GIB,
        suggested=True,
        source="extra_models_dir",
    )
    return free


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


class ExtraModels:
    """The models of the folder that `directory()` names; scanned once and again after each change.

    Args:
        directory: the folder, or None when there is none; asked anew each time, as the setting may change.
    """

    def __init__(self, directory: Callable[[], Path | None]) -> None:
        self._directory = directory
        self._scanned: Path | None = None
        self._found = Found()
        self._stale = True
        self._relocated: asyncio.Event | None = None
        #: Grows each time other models were found.
        self.version = 0

    def found(self) -> Found:
        """What the folder holds, as far as the last change that was noticed."""
        root = self._directory()
        if self._stale or root != self._scanned:
            # Before the scan: a change that is noticed during it must not be lost.
            self._stale = False
            self._take(root, _look(root))
        return self._found

    def _take(self, root: Path | None, found: Found) -> None:
        self._scanned = root
        if found != self._found:
            self._found = found
            self.version += 1

    def changed(self) -> None:
        """Makes the next look scan the folder."""
        self._stale = True

    def relocate(self) -> None:
        """Says that `directory()` may answer differently from now on."""
        self.changed()
        if self._relocated is not None:
            self._relocated.set()

    async def watch(self, notify: Callable[[], None] = lambda: None, *, poll_seconds: float = POLL_SECONDS) -> None:
        """Runs until it is cancelled; calls `notify` after each change in the folder, also of the folder itself."""
        self._relocated = relocated = asyncio.Event()
        while True:
            relocated.clear()
            root = self._directory()
            try:
                async for _ in self._changes(root, relocated, poll_seconds):
                    await self._rescan(root)
                    notify()
            except (OSError, RuntimeError) as error:
                log.warning("%s cannot be watched (%s); it is looked at every %g s", root, error, poll_seconds)
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(relocated.wait(), poll_seconds)
            await self._rescan(self._directory())
            notify()

    async def _rescan(self, root: Path | None) -> None:
        """Scans in a thread: the folder may be large, or on the other side of a network."""
        found = await asyncio.to_thread(_look, root)
        if root == self._directory():
            self._take(root, found)

    async def _changes(self, root: Path | None, relocated: asyncio.Event, poll_seconds: float) -> AsyncIterator[None]:
        """Yields after each change below `root`; ends when the folder came, went, or is another one."""
        identity = _identity(root)
        if root is None or identity is None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(relocated.wait(), None if root is None else poll_seconds)
            return
        import watchfiles  # a compiled module that only people with such a folder need

        watching = False
        # A long copy gives many changes; they are merged. It also answers once a second when there are none.
        async for changes in watchfiles.awatch(
            root, stop_event=relocated, step=100, debounce=400, rust_timeout=1000, yield_on_timeout=True
        ):
            if changes or not watching:
                # The first answer is the first proof that it watches: what came before that must be looked for.
                watching = True
                yield
            if _identity(root) != identity:
                return


def _look(root: Path | None) -> Found:
    return scan(root.absolute()) if root is not None else Found()


def _identity(folder: Path | None) -> tuple[int, int] | None:
    """Tells a folder from another one of the same name; None for what is no folder."""
    try:
        status = folder.stat() if folder is not None else None
    except OSError:
        return None
    return (status.st_dev, status.st_ino) if status is not None and stat.S_ISDIR(status.st_mode) else None
