"""One model's way from its registry into the cache: what is missing, whether it fits, the bytes, the publication.

Everything here blocks and runs in the download's own thread.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from lemonade.errors import FileNotInRepository, HubError, NotEnoughSpace
from lemonade.hub.gguf import has_magic
from lemonade.hub.layout import Folder
from lemonade.hub.progress import Meter
from lemonade.hub.registry import Listing, Registry, RemoteFile
from lemonade.hub.selection import select
from lemonade.hub.store import OPTIONAL_ROLES
from lemonade.hub.transfer import Digest, disk_error
from lemonade.model import Checkpoint, Model

_CHUNK = 1 << 20


@dataclass(slots=True)
class Part:
    """One repository's share in a download."""

    folder: Folder
    listing: Listing
    files: list[RemoteFile]
    missing: list[RemoteFile] = field(default_factory=list)


class Fetch:
    """Brings one model.

    Args:
        models: the model cache.
        registry: where the model comes from.
        free: bytes free on the disk of a folder.
    """

    def __init__(
        self, models: Path, model: Model, registry: Registry, meter: Meter, *, free: Callable[[Path], int]
    ) -> None:
        self._models = models
        self._model = model
        self._registry = registry
        self._meter = meter
        self._free = free
        self.parts: list[Part] = []

    def run(self, *, verify: bool) -> None:
        """Fetches what is missing; `verify` reads again what is here and fetches what turns out wrong.

        Raises:
            HubError: see `Registry`.
        """
        for repository, wanted in self._wanted().items():
            self._meter.check()
            listing = self._registry.listing(repository)
            self.parts.append(self._part(repository, listing, wanted))
        try:
            self._bring_all(verify=verify)
        except OSError as error:
            self._tidy()
            raise disk_error(error, error.filename or self._model.name, self._models) from error
        except HubError:
            self._tidy()
            raise

    def _bring_all(self, *, verify: bool) -> None:
        for part in self.parts:
            part.folder.prepare(part.listing)
            part.missing = [file for file in part.files if not self._is_here(part, file, verify=verify)]
        self._announce()
        self._check_space()
        for part in self.parts:
            self._bring(part)
        # Only now does anybody see the new state: a model whose parts do not belong together is no model.
        for part in self.parts:
            part.folder.publish(part.listing.revision)

    def _tidy(self) -> None:
        """After a failure: what came so far stays for the next attempt, an empty repository does not."""
        for part in self.parts:
            with suppress(OSError):
                part.folder.snapshot(part.listing.revision).rmdir()
            with suppress(OSError):
                part.folder.tidy()

    def withdraw(self) -> None:
        """Removes what this download brought and began."""
        for part in self.parts:
            if part.folder.path.exists():
                part.folder.withdraw(part.listing.revision, part.missing)

    def _wanted(self) -> dict[str, list[tuple[str, Checkpoint]]]:
        wanted: dict[str, list[tuple[str, Checkpoint]]] = {}
        for role, text in self._model.checkpoints.items():
            if role not in OPTIONAL_ROLES:
                checkpoint = Checkpoint.parse(text)
                wanted.setdefault(checkpoint.repository, []).append((role, checkpoint))
        return wanted

    def _part(self, repository: str, listing: Listing, wanted: list[tuple[str, Checkpoint]]) -> Part:
        by_path = {file.path: file for file in listing.files}
        names: dict[str, None] = {}
        for role, checkpoint in wanted:
            for name in select(list(by_path), checkpoint, role=role, recipe=self._model.recipe):
                names[name] = None
        if not names:
            raise FileNotInRepository(f"'{repository}' is empty.")
        return Part(Folder(self._models, self._registry.name, repository), listing, [by_path[name] for name in names])

    def _is_here(self, part: Part, file: RemoteFile, *, verify: bool) -> bool:
        place = part.folder.file(part.listing.revision, file.path)
        shown = part.folder.is_whole(part.listing.revision, file) and _looks_right(place, file)
        # Where the registry tells no size, only the hash says whether a file is whole.
        if shown and (not (verify or file.size < 0) or self._has_hash(place, file)):
            return True
        if place.exists() or place.is_symlink():
            # Its bytes are wrong, wherever the name leads; the blob that they come from is not to be trusted either.
            place.unlink()
            part.folder.blob(file).unlink(missing_ok=True)
            return False
        blob = part.folder.blob(file)
        if not blob.exists():
            return False
        # Another snapshot has these bytes, or another program fetched them without looking at their hash.
        if not self._has_hash(blob, file):
            blob.unlink()
            return False
        part.folder.place(part.listing.revision, file)
        return True

    def _has_hash(self, path: Path, file: RemoteFile) -> bool:
        digest = Digest(file)
        with path.open("rb") as source:
            while chunk := source.read(_CHUNK):
                self._meter.check()
                digest.update(chunk)
        return digest.is_right

    def _announce(self) -> None:
        files = [file for part in self.parts for file in part.files]
        missing = {(part.folder.path, file.path) for part in self.parts for file in part.missing}
        here = [file for part in self.parts for file in part.files if (part.folder.path, file.path) not in missing]
        partial = sum(_size(part.folder.incomplete(file)) for part in self.parts for file in part.missing)
        total = sum(max(file.size, 0) for file in files)
        self._meter.plan(len(files), total, sum(max(file.size, 0) for file in here) + partial)
        for file in here:
            self._meter.begin(file, file.size, file.size)

    def _check_space(self) -> None:
        needed = 0
        for part in self.parts:
            for blob, file in _distinct(part):
                if not blob.exists():
                    needed += max(file.size - _size(part.folder.incomplete(file)), 0)
        free = self._free(self._models)
        if needed > free:
            raise NotEnoughSpace(
                f"'{self._model.name}' needs {_gigabytes(needed)} more on the disk with {self._models}, which has "
                f"{_gigabytes(free)} free. Free some space, or choose another place with the setting models_dir."
            )

    def _bring(self, part: Part) -> None:
        files = [file for _, file in _distinct(part)]
        if files:
            self._registry.fetch(part.listing, files, part.folder, self._meter)
        for file in part.missing:
            part.folder.place(part.listing.revision, file)
        if any(file.size < 0 for file in part.files):
            # Verified bytes tell the size that the registry did not, so that a file cut short later is noticed.
            part.listing = _with_sizes(part)
            part.folder.prepare(part.listing)


def disk_free(folder: Path) -> int:
    """Bytes that can still be written where the folder is, or will be."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return shutil.disk_usage(folder).free


def repositories(model: Model) -> Mapping[str, None]:
    """The repositories that a model's files come from, in a fixed order."""
    return dict.fromkeys(sorted(Checkpoint.parse(text).repository for text in model.checkpoints.values()))


def _distinct(part: Part) -> Iterator[tuple[Path, RemoteFile]]:
    """The missing files, those with the same bytes once."""
    seen: set[Path] = set()
    for file in part.missing:
        blob = part.folder.blob(file)
        if blob not in seen:
            seen.add(blob)
            yield blob, file


def _with_sizes(part: Part) -> Listing:
    listing = part.listing
    sizes = {file.path: _size(part.folder.file(listing.revision, file.path)) for file in part.files}
    files = tuple(msgspec.structs.replace(file, size=sizes.get(file.path, file.size)) for file in listing.files)
    return msgspec.structs.replace(listing, files=files)


def _looks_right(path: Path, file: RemoteFile) -> bool:
    return not file.path.lower().endswith(".gguf") or has_magic(path)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _gigabytes(size: int) -> str:
    return f"{size / (1 << 30):.2f} GB" if size >= 1 << 27 else f"{size / (1 << 20):.1f} MB"
