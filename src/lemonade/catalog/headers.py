"""Facts from the headers of model files, read once per file and state of the file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

import msgspec

from lemonade import __version__
from lemonade.hub.gguf import Header, InvalidGGUF, read_header
from lemonade.settings import write_json

log = logging.getLogger("lemonade.catalog")

#: Of a file: time of change in ns, and size in bytes.
Stamp = tuple[int, int]


class _Kept(msgspec.Struct):
    """What a daemon leaves to the next one, if that reads the same facts."""

    reader: str
    headers: dict[str, tuple[Stamp, Header]]


_READER = f"{__version__} {' '.join(Header.__struct_fields__)}"


class Headers:
    """GGUF headers by path; one is read again when the file's size or time of change differs.

    Args:
        file: where they are kept for the next daemon. Reading one takes a while: most of it is a vocabulary that has
            to be passed over.
    """

    def __init__(self, facts: Callable[[Path], os.stat_result | None], file: Path | None = None) -> None:
        self._facts = facts
        self._file = file
        self._known: dict[Path, tuple[Stamp, Header | None]] | None = None
        self._is_new = False

    def of(self, path: Path | None) -> Header | None:
        """The header, or None for what is no readable GGUF file."""
        if path is None or path.suffix.lower() != ".gguf":
            return None
        if self._known is None:
            self._known = self._load()
        facts = self._facts(path)
        if facts is None:
            self._known.pop(path, None)
            return None
        stamp = (facts.st_mtime_ns, facts.st_size)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        header: Header | None = None
        try:
            header = read_header(path)
        except (InvalidGGUF, OSError) as error:
            log.warning("The header of %s cannot be read: %s", path, error)
        self._known[path] = (stamp, header)
        self._is_new = True
        return header

    def save(self) -> None:
        """Keeps what has been read since the last time. Best effort: without it, it is read again."""
        if not self._is_new or self._file is None or self._known is None:
            return
        self._is_new = False
        kept = {
            str(path): (stamp, header)
            for path, (stamp, header) in self._known.items()
            if header is not None and path.exists()
        }
        try:
            write_json(self._file, msgspec.to_builtins(_Kept(_READER, kept)))
        except (OSError, ValueError) as error:
            log.debug("%s cannot be written: %s", self._file, error)

    def _load(self) -> dict[Path, tuple[Stamp, Header | None]]:
        try:
            kept = msgspec.json.decode(self._file.read_bytes(), type=_Kept) if self._file is not None else None
        except (OSError, msgspec.MsgspecError):
            return {}
        if kept is None or kept.reader != _READER:
            return {}
        return {Path(path): (stamp, header) for path, (stamp, header) in kept.headers.items()}
