"""Facts from the headers of model files, read once per file and state of the file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

from lemonade.hub.gguf import Header, InvalidGGUF, read_header

log = logging.getLogger("lemonade.catalog")


class Headers:
    """GGUF headers by path; one is read again when the file's size or time of change differs."""

    def __init__(self, facts: Callable[[Path], os.stat_result | None]) -> None:
        self._facts = facts
        self._known: dict[Path, tuple[tuple[int, int], Header | None]] = {}

    def of(self, path: Path | None) -> Header | None:
        """The header, or None for what is no readable GGUF file."""
        if path is None or path.suffix.lower() != ".gguf":
            return None
        status = self._facts(path)
        if status is None:
            self._known.pop(path, None)
            return None
        stamp = (status.st_mtime_ns, status.st_size)
        known = self._known.get(path)
        if known is not None and known[0] == stamp:
            return known[1]
        header: Header | None = None
        try:
            header = read_header(path)
        except (InvalidGGUF, OSError) as error:
            log.warning("The header of %s cannot be read: %s", path, error)
        self._known[path] = (stamp, header)
        return header
