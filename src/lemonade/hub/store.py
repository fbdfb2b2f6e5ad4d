"""Which models are here, where, how large, and how they go away again."""

from __future__ import annotations

import contextlib
import functools
import os
import shutil
import stat
from collections.abc import Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

import msgspec

from lemonade.errors import FileNotInRepository, InvalidArgument
from lemonade.hub.layout import Folder, folder_name
from lemonade.hub.registry import Listing
from lemonade.hub.selection import SHARD, choose
from lemonade.hub.snapshots import Found, Snapshots, Watching, Witness
from lemonade.model import Checkpoint, Model

#: Roles that an engine can do without: they are never fetched for it and never missed.
OPTIONAL_ROLES = frozenset({"npu_cache"})


class Look(NamedTuple):
    """What of a model is on the disk.

    Attributes:
        located: for each role the file or folder that an engine is given; None for one that is not whole.
        size: bytes on disk of all roles; a file that serves two roles counts once.
        witness: for `Store.holds`; None when only another look can tell whether something has changed.
    """

    located: dict[str, Path | None]
    size: int
    witness: Witness | None


class Store:
    """The model cache on disk. Every answer is the disk's at that moment; asking is cheap."""

    def __init__(self, models: Path) -> None:
        self.models = models
        self._snapshots = Snapshots(models)

    def locate(self, model: Model) -> dict[str, Path | None]:
        """For each role the file or folder that an engine is given; None for one that is not whole."""
        return {role: self._path(model, role) for role in model.checkpoints}

    def is_downloaded(self, model: Model) -> bool:
        """Whether every role that the model needs is here and whole. False for a model without checkpoints."""
        roles = [role for role in model.checkpoints if role not in OPTIONAL_ROLES]
        return bool(roles) and all(self._path(model, role) is not None for role in roles)

    def size(self, model: Model) -> int:
        """Bytes on disk of all roles; a file that serves two roles counts once."""
        return self.look(model).size

    def look(self, model: Model) -> Look:
        """What `locate` and `size` answer, in one look at the disk."""
        with self._snapshots.watching() as watching:
            located, size = self._look(model, watching)
            return Look(located, size, watching.witness())

    def holds(self, witness: Witness) -> bool:
        """Whether nothing has changed since the look that left this witness."""
        return self._snapshots.holds(witness)

    def _look(self, model: Model, watching: Watching) -> tuple[dict[str, Path | None], int]:
        located: dict[str, Path | None] = {}
        sizes: dict[tuple[int, int], int] = {}
        for role in model.checkpoints:
            if model.is_local or model.source == "local_upload":
                located[role] = path = self._local_path(model, role)
                if path is not None and path.is_dir():
                    # What grows or shrinks deep inside shows in no time of the folder.
                    watching.blind()
                names = [str(path) for path in self._files(model, role)]
            else:
                found = self._find(model, role)
                located[role] = found.primary if found else None
                chosen = (*found.selection.required, *found.selection.extras) if found else ()
                names = [f"{found.snapshot}/{name}" for name in chosen] if found else []
            for name in names:
                if facts := self._snapshots.facts(name):
                    sizes[facts.st_dev, facts.st_ino] = facts.st_size
        return located, sum(sizes.values())

    def facts(self, path: Path) -> os.stat_result | None:
        """The system's facts of a model's file; None for what cannot be looked at."""
        return self._snapshots.facts(str(path))

    def at_once(self) -> AbstractContextManager[None]:
        """Around looks at many models without a pause between them: which repositories there are is read once."""
        return self._snapshots.at_once()

    def files(self, model: Model) -> list[Path]:
        """Every file that the complete roles of a model use, those beside the weights included."""
        return [path for role in model.checkpoints for path in self._files(model, role)]

    def folders(self, model: Model) -> list[Folder]:
        """The repositories that a model's files come from; none for local files."""
        if model.source:
            return []
        found = []
        for repository in _repositories(model):
            with contextlib.suppress(InvalidArgument):
                found.append(Folder(self.models, model.registry, repository))
        return found

    def delete(self, model: Model, keep: Iterable[Model]) -> None:
        """Frees what no model of `keep` uses.

        A repository that none of them names goes as a whole, with everything that was ever begun in it; of a shared one
        only this model's files go. Files that lie where the user put them stay.
        """
        if model.is_local:
            return
        others = [other for other in keep if other.canonical != model.canonical and not other.is_local]
        if model.source == "local_upload":
            self._delete_upload(model, others)
            return
        for repository in _repositories(model):
            try:
                folder = Folder(self.models, model.registry, repository)
            except InvalidArgument:
                continue
            sharers = [
                other for other in others if other.registry == model.registry and repository in _repositories(other)
            ]
            if sharers:
                self._delete_files(folder, repository, model, sharers)
            else:
                folder.remove()

    def _path(self, model: Model, role: str) -> Path | None:
        if model.is_local or model.source == "local_upload":
            return self._local_path(model, role)
        found = self._find(model, role)
        return found.primary if found else None

    def _find(self, model: Model, role: str) -> Found | None:
        checkpoint, folder = _resolve(model.registry, model.checkpoints[role])
        if folder is None:
            return None
        return self._snapshots.find(folder, checkpoint, role=role, recipe=model.recipe)

    def _files(self, model: Model, role: str) -> list[Path]:
        if not model.is_local and model.source != "local_upload":
            found = self._find(model, role)
            if found is None:
                return []
            selection = found.selection
            return [Path(found.snapshot, name) for name in (*selection.required, *selection.extras)]
        path = self._local_path(model, role)
        if path is None:
            return []
        return [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]

    # Files that lie where the user, or an upload, put them.

    def _local_path(self, model: Model, role: str) -> Path | None:
        text = model.checkpoints[role]
        if not text or "\0" in text:
            return None
        path = self._local_base(model) / text
        if model.source == "local_upload" and not self._is_inside(path):
            return None
        if self._is_folder(path):
            return self._in_local_folder(path, model.recipe, role)
        return path if all(self._snapshots.is_model_file(str(part)) for part in shards(path)) else None

    def _local_base(self, model: Model) -> Path:
        """What a path that is not absolute is relative to: the model's own folder, or the cache for an upload."""
        if model.source == "local_upload":
            return self.models
        main = Path(model.checkpoint)
        return main if self._is_folder(main) else main.parent

    def _is_folder(self, path: Path) -> bool:
        facts = self._snapshots.facts(str(path))
        return facts is not None and stat.S_ISDIR(facts.st_mode)

    def _in_local_folder(self, folder: Path, recipe: str, role: str) -> Path | None:
        if recipe != "llamacpp" and role == "main":
            return folder
        names = self._snapshots.names(str(folder))
        try:
            primary = choose(names, Checkpoint(folder.name), role=role, recipe=recipe).primary
        except FileNotInRepository:
            return None
        path = folder / primary if primary else None
        return path if path and self._snapshots.is_model_file(str(path)) else None

    def _is_inside(self, path: Path) -> bool:
        return Path(os.path.normpath(path)).is_relative_to(self.models)

    def _delete_upload(self, model: Model, others: list[Model]) -> None:
        used = {_top(text) for other in others if other.source == "local_upload" for text in other.checkpoints.values()}
        for text in model.checkpoints.values():
            top = _top(text)
            # Uploads have a folder each, made by the daemon; nothing else is ever removed on their account.
            if top.startswith("models--") and top not in used:
                _remove_tree(self.models / top)

    # One model's files in a repository that others use as well.

    def _delete_files(self, folder: Folder, repository: str, model: Model, sharers: list[Model]) -> None:
        ours = self._used(folder, model, repository)
        theirs = {
            file for other in sharers if self.is_downloaded(other) for file in self._used(folder, other, repository)
        }
        folder.unlink(sorted(ours - theirs))
        self._delete_partials(folder, repository, model, sharers)
        folder.tidy()

    def _used(self, folder: Folder, model: Model, repository: str) -> set[Path]:
        """The files of a repository, over all snapshots, that a model's checkpoints mean."""
        used: set[Path] = set()
        for snapshot in folder.snapshots():
            names = self._snapshots.names(str(snapshot))
            used |= {snapshot / name for name in _meant(names, model, repository)}
        return used

    def _delete_partials(self, folder: Folder, repository: str, model: Model, sharers: list[Model]) -> None:
        for note in (folder.path / ".lemonade").glob("*.json"):
            try:
                listing = msgspec.json.decode(note.read_bytes(), type=Listing)
            except (OSError, msgspec.MsgspecError):
                continue
            names = [file.path for file in listing.files]
            theirs = {name for other in sharers for name in _meant(names, other, repository)}
            ours = _meant(names, model, repository) - theirs
            for file in listing.files:
                if file.path in ours and (file.sha256 or file.etag):
                    folder.discard(file)


@functools.lru_cache(maxsize=1 << 16)
def _resolve(registry: str, text: str) -> tuple[Checkpoint, str | None]:
    """A checkpoint and the name of its folder; None for one that no registry can have (`gemma3:4b`, a path)."""
    checkpoint = Checkpoint.parse(text)
    try:
        return checkpoint, folder_name(registry, checkpoint.repository)
    except InvalidArgument:
        return checkpoint, None


def _meant(names: list[str], model: Model, repository: str) -> set[str]:
    meant: set[str] = set()
    for role, text in model.checkpoints.items():
        checkpoint = Checkpoint.parse(text)
        if checkpoint.repository == repository:
            with contextlib.suppress(FileNotInRepository):
                selection = choose(names, checkpoint, role=role, recipe=model.recipe)
                meant |= {*selection.required, *selection.extras}
    return meant


def shards(path: Path) -> list[Path]:
    """The file; if its name is that of a shard, all the parts that the name says there are."""
    shard = SHARD.match(path.name)
    if shard is None:
        return [path]
    at, count = shard.start("number"), int(shard["count"])
    return [path.with_name(f"{path.name[:at]}{number:05}{path.name[at + 5 :]}") for number in range(1, count + 1)]


def _repositories(model: Model) -> list[str]:
    return list(dict.fromkeys(Checkpoint.parse(text).repository for text in model.checkpoints.values() if text))


def _top(text: str) -> str:
    return text.replace("\\", "/").partition("/")[0]


def _remove_tree(path: Path) -> None:
    if path.is_symlink():
        path.unlink()
    elif path.is_dir():
        shutil.rmtree(path)
