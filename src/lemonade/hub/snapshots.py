"""What of a repository is on disk, read cheaply: the catalog asks for hundreds of models at once.

Answers are kept with the modification times that they were read under. A time that is only seconds old proves nothing
(file systems tick coarsely), so an answer read that early is not kept.
"""

# ruff: noqa: PTH116, PTH119, PTH208 - a path object costs more than the look at the disk, and there are thousands of looks.

from __future__ import annotations

import os
import stat
import threading
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
#: What tells one state of a file or folder from another; None for what is not there.
Sign = tuple[int, int, int] | None


class Witness(msgspec.Struct, frozen=True):
    """What a look has seen. As long as all of it is still so, another look would find the same.

    Attributes:
        folders: names of repositories in the cache, and whether they were there.
        paths: files and folders, and the state in which they were.
    """

    folders: tuple[tuple[str, bool], ...]
    paths: tuple[tuple[str, Sign], ...]


class Watching:
    """Notes what is looked at. `blind()` says that something was that it cannot tell changes of."""

    def __init__(self) -> None:
        self.folders: dict[str, bool] = {}
        self.paths: dict[str, os.stat_result | None] = {}
        self._blind = False

    def blind(self) -> None:
        self._blind = True

    def witness(self) -> Witness | None:
        """None when nothing less than another look can tell whether something has changed."""
        newest = max((facts.st_mtime_ns for facts in self.paths.values() if facts is not None), default=0)
        if self._blind or not _is_settled(newest):
            return None
        return Witness(tuple(self.folders.items()), tuple((path, _sign(facts)) for path, facts in self.paths.items()))


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
        self._facts: dict[str, os.stat_result | None] | None = None
        # Of each thread its own: downloads look at the cache from theirs.
        self._local = threading.local()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        """Around several questions of one moment: the same thing on the disk is looked at once for all of them."""
        self._at_once = None
        self._at_once, self._facts = self._folders(), {}
        try:
            yield
        finally:
            self._at_once = self._facts = None

    @contextmanager
    def watching(self) -> Iterator[Watching]:
        """Around a look that shall leave a witness."""
        self._local.watching = watching = Watching()
        try:
            yield watching
        finally:
            self._local.watching = None

    def holds(self, witness: Witness) -> bool:
        """Whether everything is still as it was seen."""
        folders = self._folders()
        for name, there in witness.folders:
            if (name in folders) is not there:
                return False
        return all(_sign(self.facts(path)) == sign for path, sign in witness.paths)

    def facts(self, path: str) -> os.stat_result | None:
        """The system's facts of a file or folder, links followed; None for what cannot be looked at."""
        kept = self._facts
        if kept is not None and path in kept:
            facts = kept[path]
        else:
            try:
                facts = os.stat(path)
            except OSError:
                facts = None
            if kept is not None:
                kept[path] = facts
        watching: Watching | None = getattr(self._local, "watching", None)
        if watching is not None:
            watching.paths[path] = facts
        return facts

    def find(self, folder: str, checkpoint: Checkpoint, *, role: str, recipe: str) -> Found | None:
        """The first snapshot, the current one first, in which everything that the checkpoint requires is whole."""
        there = folder in self._folders()
        watching: Watching | None = getattr(self._local, "watching", None)
        if watching is not None:
            watching.folders[folder] = there
        if not there:
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
        facts = self.facts(path)
        if facts is None or not stat.S_ISREG(facts.st_mode):
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
        if kept is not None and self._stamp(tuple(path for path, _ in kept[0])) == kept[0]:
            return kept[1]  # type: ignore[return-value]
        folders: list[str] = []
        contents = Contents(dict.fromkeys(sorted(_walk(snapshot, "", folders)), -1), False)
        self._remember(key, self._stamp(tuple(folders)), contents)
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
            if not self.is_model_file(file):
                return False
            facts = self.facts(file)
            if facts is None or (wanted >= 0 and facts.st_size != wanted):
                return False
        return True

    def _keep(self, key: tuple[str, ...], paths: tuple[str, ...], read: Callable[[], T]) -> T | None:
        """What `read` answers, read anew when a path's time changed; None when a path is missing."""
        stamp = self._stamp(paths)
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
        if _is_settled(max((time_ns for _, time_ns in stamp), default=0)):
            self._kept[key] = (stamp, value)
        else:
            self._kept.pop(key, None)

    def _stamp(self, paths: tuple[str, ...]) -> Stamp:
        """The modification times, one for each path that exists."""
        return tuple((path, facts.st_mtime_ns) for path in paths if (facts := self.facts(path)) is not None)


def _is_unfinished(names: dict[str, int], selection: Selection) -> bool:
    """Whether the original's marks say that what was selected is still coming."""
    folders = {name.rpartition("/")[0] for name in selection.required}
    if selection.primary is not None and selection.primary not in selection.required:
        folders.add(selection.primary)
    if any((f"{folder}/{_ORIGINAL_MANIFEST}" if folder else _ORIGINAL_MANIFEST) in names for folder in folders):
        return True
    return any(f"{name}{_ORIGINAL_PARTIAL}" in names for name in selection.required)


def _sign(facts: os.stat_result | None) -> Sign:
    return None if facts is None else (facts.st_mtime_ns, facts.st_size, facts.st_ino)


def _is_settled(time_ns: int) -> bool:
    """Whether a change from now on would give another modification time than this one."""
    return time.time_ns() - time_ns > _SETTLED * 1e9


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
