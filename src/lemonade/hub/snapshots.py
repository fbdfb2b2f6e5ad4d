"""What of a repository is on disk, read cheaply: the catalog asks for hundreds of models at once.

Answers are kept with the modification times that they were read under. A time that is only seconds old proves nothing
(file systems tick coarsely), so an answer read that early is not kept.
"""

# ruff: noqa: PTH116, PTH119, PTH208 - a path object costs more than the look at the disk, and there are thousands of looks.

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import msgspec

from lemonade.errors import FileNotInRepository
from lemonade.hub.gguf import has_magic
from lemonade.hub.layout import INCOMPLETE, is_id, is_safe
from lemonade.hub.registry import Listing
from lemonade.hub.selection import Selection, choose
from lemonade.model import Checkpoint

#: Seconds after which a modification time can be trusted; FAT counts in steps of two.
_SETTLED = 3.0

#: The original's marks of a download that has not ended: beside the files of the snapshot, and beside one file.
_ORIGINAL_MANIFEST = ".download_manifest.json"
_ORIGINAL_PARTIAL = ".partial"
_MARKS = (_ORIGINAL_PARTIAL, INCOMPLETE, _ORIGINAL_MANIFEST)

T = TypeVar("T")
Stamp = tuple[tuple[str, int], ...]


class Contents(msgspec.Struct, frozen=True):
    """The names in a snapshot: those that the registry listed where we know, else those on disk.

    `sizes` has -1 where any size will do.
    """

    sizes: dict[str, int]
    listed: bool


class Found(msgspec.Struct, frozen=True):
    """A checkpoint that is complete on disk."""

    snapshot: str
    selection: Selection

    @property
    def primary(self) -> Path:
        return Path(self.snapshot, self.selection.primary or "")


class Snapshots:
    """The snapshots of all repositories in one model cache."""

    def __init__(self, models: Path) -> None:
        self._models = str(models)
        self._kept: dict[tuple[str, ...], tuple[Stamp, object]] = {}
        self._selections: dict[tuple[str, str, str, str], tuple[Contents, Selection | None]] = {}
        self._magic: dict[str, tuple[int, int, int]] = {}
        self._at_once: frozenset[str] | None = None
        self._facts: dict[str, os.stat_result] | None = None

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Around several questions of one moment: the same thing on the disk is looked at once for all of them."""
        self._at_once = None
        self._at_once, self._facts = self._folders(), {}
        try:
            yield
        finally:
            self._at_once = self._facts = None

    def facts(self, path: str) -> os.stat_result:
        """The system's facts of a file, links followed.

        Raises:
            OSError
        """
        known = self._facts.get(path) if self._facts is not None else None
        if known is None:
            known = os.stat(path)
            if self._facts is not None:
                self._facts[path] = known
        return known

    def find(self, folder: str, checkpoint: Checkpoint, *, role: str, recipe: str) -> Found | None:
        """The first snapshot, the current one first, in which everything that the checkpoint requires is whole."""
        if folder not in self._folders():
            return None
        path = f"{self._models}/{folder}"
        for snapshot in self.of(path):
            contents = self.contents(path, snapshot)
            selection = self._selection(contents, (snapshot, checkpoint.variant, role, recipe), checkpoint)
            if selection is not None and self._is_whole(snapshot, contents, selection):
                return Found(snapshot, selection)
        return None

    def of(self, path: str) -> list[str]:
        """The snapshots of the repository at `path`, the current one first, then the newest.

        None as long as no commit counts: `refs/main` is written last.
        """
        refs, parent = f"{path}/refs/main", f"{path}/snapshots"

        def read() -> list[str]:
            with open(refs, encoding="ascii", errors="replace") as file:
                current = file.read(256).strip()
            with os.scandir(parent) as entries:
                times = {entry.name: entry.stat().st_mtime_ns for entry in entries if entry.is_dir()}
            if not is_id(current) or current not in times:
                return []
            others = sorted((name for name in times if name != current), key=lambda name: -times[name])
            return [f"{parent}/{name}" for name in (current, *others)]

        return self._keep(("snapshots", path), (refs, parent), read) or []

    def contents(self, path: str, snapshot: str) -> Contents:
        """The names that the snapshot has, or should have."""
        note = f"{path}/.lemonade/{os.path.basename(snapshot)}.json"

        def read() -> Contents | None:
            with open(note, "rb") as file:
                try:
                    listing = msgspec.json.decode(file.read(), type=Listing)
                except msgspec.MsgspecError:
                    return None
            return Contents({file.path: file.size for file in listing.files if is_safe(file.path)}, True)

        return self._keep(("listing", note), (note,), read) or self._tree(snapshot)

    def names(self, snapshot: str) -> list[str]:
        """All files on disk in a snapshot, links to files included, with `/`; links to folders are not followed."""
        return list(self._tree(snapshot).sizes)

    def is_model_file(self, path: str) -> bool:
        """Whether a file is there and, if its name says GGUF, begins like one."""
        try:
            facts = self.facts(path)
        except OSError:
            return False
        if not stat.S_ISREG(facts.st_mode):
            return False
        if not path.lower().endswith(".gguf"):
            return True
        key = (facts.st_ino, facts.st_size, facts.st_mtime_ns)
        if self._magic.get(path) != key:
            if not has_magic(Path(path)):
                self._magic.pop(path, None)
                return False
            self._magic[path] = key
        return True

    def _folders(self) -> frozenset[str]:
        if self._at_once is not None:
            return self._at_once

        def read() -> frozenset[str]:
            return frozenset(os.listdir(self._models))

        return self._keep(("folders",), (self._models,), read) or frozenset()

    def _tree(self, snapshot: str) -> Contents:
        key = ("tree", snapshot)
        kept = self._kept.get(key)
        if kept is not None and _stamp(tuple(path for path, _ in kept[0])) == kept[0]:
            return kept[1]  # type: ignore[return-value]
        folders: list[str] = []
        contents = Contents(dict.fromkeys(sorted(_walk(snapshot, "", folders)), -1), False)
        self._remember(key, _stamp(tuple(folders)), contents)
        return contents

    def _selection(
        self, contents: Contents, key: tuple[str, str, str, str], checkpoint: Checkpoint
    ) -> Selection | None:
        kept = self._selections.get(key)
        if kept is not None and kept[0] is contents:
            return kept[1]
        names = [name for name in contents.sizes if not name.endswith(_MARKS)]
        _, _, role, recipe = key
        try:
            selection: Selection | None = choose(names, checkpoint, role=role, recipe=recipe)
        except FileNotInRepository:
            selection = None
        self._selections[key] = (contents, selection)
        return selection

    def _is_whole(self, snapshot: str, contents: Contents, selection: Selection) -> bool:
        if selection.primary is None or not selection.required:
            return False
        if not contents.listed and _is_unfinished(contents.sizes, selection):
            return False
        for name in selection.required:
            file = f"{snapshot}/{name}"
            wanted = contents.sizes.get(name, -1)
            if not self.is_model_file(file) or (wanted >= 0 and self.facts(file).st_size != wanted):
                return False
        return True

    def _keep(self, key: tuple[str, ...], paths: tuple[str, ...], read: Callable[[], T]) -> T | None:
        """What `read` answers, read anew when a path's time changed; None when a path is missing."""
        stamp = _stamp(paths)
        if len(stamp) < len(paths):
            return None
        kept = self._kept.get(key)
        if kept is not None and kept[0] == stamp:
            return kept[1]  # type: ignore[return-value]
        try:
            value = read()
        except OSError:
            return None
        self._remember(key, stamp, value)
        return value

    def _remember(self, key: tuple[str, ...], stamp: Stamp, value: object) -> None:
        newest = max((time_ns for _, time_ns in stamp), default=0)
        if time.time_ns() - newest > _SETTLED * 1e9:
            self._kept[key] = (stamp, value)
        else:
            self._kept.pop(key, None)


def _is_unfinished(names: dict[str, int], selection: Selection) -> bool:
    """Whether the original's marks say that what was selected is still coming."""
    folders = {name.rpartition("/")[0] for name in selection.required}
    if selection.primary is not None and selection.primary not in selection.required:
        folders.add(selection.primary)
    if any((f"{folder}/{_ORIGINAL_MANIFEST}" if folder else _ORIGINAL_MANIFEST) in names for folder in folders):
        return True
    return any(f"{name}{_ORIGINAL_PARTIAL}" in names for name in selection.required)


def _stamp(paths: tuple[str, ...]) -> Stamp:
    """The modification times, one for each path that exists."""
    times = []
    for path in paths:
        try:
            times.append((path, os.stat(path).st_mtime_ns))
        except OSError:
            continue
    return tuple(times)


def _walk(folder: str, prefix: str, folders: list[str]) -> list[str]:
    folders.append(folder)
    names: list[str] = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    names += _walk(entry.path, f"{prefix}{entry.name}/", folders)
                else:
                    names.append(prefix + entry.name)
    except OSError:
        pass
    return names
