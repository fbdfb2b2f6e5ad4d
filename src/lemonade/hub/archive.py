"""Unpacking what others packed.

An archive is read through before a byte of it is written, and refused whole when one entry is not what it should be:
outside of the folder, a way out of it, a device, two of one name, more than it may hold.
"""

from __future__ import annotations

import gzip
import os
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Literal

import msgspec

from lemonade.errors import ArchiveRefused
from lemonade.hub.layout import is_safe

#: Bytes that everything in one archive may have, unpacked; the largest engines have less than 3 GB.
MAX_SIZE = 8 * 1024**3
MAX_ENTRIES = 20_000
#: Links that may lead to each other before a file comes; libraries have two (`libx.so`, `libx.so.1`).
_MAX_LINKS = 8
#: Bytes that one read of a tar header may take. The format lets a header claim gigabytes, which compress to nothing.
_MAX_READ = 1 << 20
_CHUNK = 1 << 18

_GZIP, _ZIP = b"\x1f\x8b", b"PK\x03\x04"


class Entry(msgspec.Struct, frozen=True):
    """One thing in an archive.

    Attributes:
        name: its path in the archive, as it will be below the folder.
        kind: a `link` is one to another entry, whose name is `target`.
    """

    name: str
    kind: Literal["file", "folder", "link"]
    size: int = 0
    is_program: bool = False
    target: str = ""


def unpack(
    archive: Path, folder: Path, *, check: Callable[[], None] = lambda: None, max_size: int = MAX_SIZE
) -> list[Path]:
    """Unpacks a `.tar.gz` or `.zip`, told apart by their first bytes, into a folder.

    A single folder around everything is left out. Of what the archive says of owners, times and rights only this
    counts: whether a file is a program. A file that is there already stays as it is.

    Args:
        check: called often; what it raises ends the work.

    Returns:
        The files and links that were made.

    Raises:
        ArchiveRefused: nothing was written.
        OSError: from writing.
    """
    with _reader(archive, max_size) as reader:
        entries = list(_bounded(archive, reader.entries(), max_size, check))
    _examine(archive, entries)
    around = _around(entries)
    made: list[Path] = []
    folder.mkdir(parents=True, exist_ok=True)
    with _reader(archive, max_size) as reader:
        for entry, source in reader.contents():
            path = _place(folder, entry.name, around)
            if path is None or entry.kind == "link" or path.exists():
                continue
            if source is None:
                path.mkdir(parents=True, exist_ok=True)
                continue
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("xb") as target:
                while chunk := source.read(_CHUNK):
                    check()
                    target.write(chunk)
            path.chmod(0o755 if entry.is_program else 0o644)
            made.append(path)
    for entry in entries:
        if entry.kind == "link":
            made += _link(folder, entry, around)
    return made


def _bounded(archive: Path, entries: Iterator[Entry], max_size: int, check: Callable[[], None]) -> Iterator[Entry]:
    total = 0
    for number, entry in enumerate(entries):
        check()
        total += entry.size
        if number >= MAX_ENTRIES:
            raise _refused(archive, f"more than {MAX_ENTRIES} entries")
        if total > max_size:
            raise _refused(archive, f"more than {max_size // 10**6} MB when unpacked")
        yield entry


def _examine(archive: Path, entries: list[Entry]) -> None:
    """Refuses names that lead out, meet, or lie below something that is no folder."""
    if not entries:
        raise _refused(archive, "no entry")
    kinds: dict[str, Entry] = {}
    for entry in entries:
        if not is_safe(entry.name):
            raise _refused(archive, f"an entry with the name {entry.name[:200]!r}, which leads out of its folder")
        # Some file systems do not tell A from a.
        if kinds.setdefault(entry.name.casefold(), entry) is not entry:
            raise _refused(archive, f"two entries of the name {entry.name!r}")
    for entry in entries:
        parts = entry.name.casefold().split("/")
        for depth in range(1, len(parts)):
            above = kinds.get("/".join(parts[:depth]))
            if above is not None and above.kind != "folder":
                raise _refused(archive, f"the entry {entry.name!r} below {above.name!r}, which is no folder")
    exact = {entry.name: entry for entry in entries}
    for entry in entries:
        end: Entry | None = entry
        for _ in range(_MAX_LINKS):
            if end is None or end.kind != "link":
                break
            end = exact.get(end.target)
        if entry.kind == "link" and (end is None or end.kind != "file"):
            raise _refused(archive, f"the link {entry.name!r}, which leads to no file of the archive")


def _around(entries: list[Entry]) -> str:
    """The one folder that everything lies in, with a slash, or nothing."""
    tops = {entry.name.partition("/")[0] for entry in entries}
    alone = len(tops) == 1 and all("/" in entry.name or entry.kind == "folder" for entry in entries)
    return f"{tops.pop()}/" if alone else ""


def _place(folder: Path, name: str, around: str) -> Path | None:
    inner = name.removeprefix(around)
    return None if f"{inner}/" == around else folder.joinpath(*inner.split("/"))


def _link(folder: Path, entry: Entry, around: str) -> list[Path]:
    path, target = _place(folder, entry.name, around), _place(folder, entry.target, around)
    if path is None or target is None or os.path.lexists(path):
        return []
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        path.symlink_to(os.path.relpath(target, path.parent))
    except (OSError, NotImplementedError):
        # Windows lets only some people make links.
        shutil.copyfile(target, path)
    return [path]


class _Tar:
    def __init__(self, path: Path, tar: tarfile.TarFile) -> None:
        self._path = path
        self._tar = tar

    def entries(self) -> Iterator[Entry]:
        for member in self._tar:
            if entry := self._entry(member):
                yield entry

    def contents(self) -> Iterator[tuple[Entry, IO[bytes] | None]]:
        for member in self._tar:
            if entry := self._entry(member):
                yield entry, self._tar.extractfile(member) if entry.kind == "file" else None

    def _entry(self, member: tarfile.TarInfo) -> Entry | None:
        name = _cleaned(member.name)
        if member.isdir():
            return Entry(name, "folder") if name not in ("", ".") else None
        if member.issym():
            target = os.path.normpath(f"{name.rpartition('/')[0]}/./{member.linkname}").replace("\\", "/")
            is_absolute = member.linkname.startswith(("/", "\\")) or ":" in member.linkname
            return Entry(name, "link", target="" if is_absolute else target.removeprefix("/"))
        if member.islnk():
            return Entry(name, "link", target=_cleaned(member.linkname))
        if not member.isreg() or member.issparse():
            raise _refused(self._path, f"the entry {name[:200]!r}, which is neither a file, a folder nor a link")
        return Entry(name, "file", member.size, bool(member.mode & 0o111))


class _Zip:
    def __init__(self, path: Path, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._archive = archive

    def entries(self) -> Iterator[Entry]:
        for info in self._archive.infolist():
            yield self._entry(info)

    def contents(self) -> Iterator[tuple[Entry, IO[bytes] | None]]:
        for info in self._archive.infolist():
            entry = self._entry(info)
            if entry.kind == "folder":
                yield entry, None
            else:
                with self._archive.open(info) as source:
                    yield entry, source

    def _entry(self, info: zipfile.ZipInfo) -> Entry:
        # The name as it stands in the file: the library has made slashes of backslashes, and cut it at a NUL.
        name = _cleaned(info.orig_filename)
        if info.is_dir():
            return Entry(name, "folder")
        mode = info.external_attr >> 16
        if info.flag_bits & 1 or (stat.S_IFMT(mode) and not stat.S_ISREG(mode)):
            raise _refused(self._path, f"the entry {name[:200]!r}, which is encrypted or no file")
        return Entry(name, "file", info.file_size, bool(mode & 0o111) or name.lower().endswith((".exe", ".dll")))


class _Gunzip:
    """What gzip unpacks, with an end: neither a header nor the whole may be as large as it claims."""

    def __init__(self, path: Path, source: gzip.GzipFile, limit: int) -> None:
        self._path = path
        self._source = source
        self._limit = limit

    def read(self, count: int = -1) -> bytes:
        if count < 0 or count > _MAX_READ:
            raise _refused(self._path, "a header of more than a megabyte")
        return self._source.read(count)

    def seek(self, to: int, whence: int = os.SEEK_SET) -> int:
        if whence != os.SEEK_SET or to > self._limit:
            raise _refused(self._path, f"more than {self._limit // 10**6} MB when unpacked")
        return self._source.seek(to)

    def tell(self) -> int:
        return self._source.tell()


@contextmanager
def _reader(path: Path, max_size: int) -> Iterator[_Tar | _Zip]:
    try:
        with path.open("rb") as file:
            start = file.read(4)
            file.seek(0)
            if start.startswith(_GZIP):
                with gzip.GzipFile(fileobj=file) as unzipped:
                    # Beside the bytes of the files there are headers and padding.
                    limit = max_size + MAX_ENTRIES * 4096
                    source = _Gunzip(path, unzipped, limit)
                    with tarfile.open(fileobj=source, mode="r:") as tar:  # type: ignore[call-overload]
                        yield _Tar(path, tar)
            elif start == _ZIP:
                with zipfile.ZipFile(file) as archive:
                    yield _Zip(path, archive)
            else:
                raise _refused(path, "something that is neither .tar.gz nor .zip")
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile) as error:
        raise _refused(path, f"something that cannot be read ({error})") from error
    except (ValueError, RuntimeError, NotImplementedError, UnicodeError, OverflowError) as error:
        raise _refused(path, f"something that cannot be read ({error})") from error


def _cleaned(name: str) -> str:
    """Without the `./` that tar writes before each name, and the `/` behind folders; `..` and the rest stay to see."""
    while name.startswith("./"):
        name = name[2:]
    return name.removesuffix("/")


def _refused(archive: Path, what: str) -> ArchiveRefused:
    return ArchiveRefused(f"The archive {archive.name} is not unpacked: it holds {what}.")
