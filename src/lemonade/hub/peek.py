"""Reading one small file of a repository without putting it into the cache."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from lemonade.hub.registry import Listing, Registry, RemoteFile


def peek(registry: Registry, listing: Listing, file: RemoteFile) -> bytes:
    """The verified bytes of a file. Blocks; raises what `Registry.fetch` raises."""
    with tempfile.TemporaryDirectory(prefix="lemonade-") as folder:
        place = _Aside(Path(folder))
        registry.fetch(listing, [file], place, _Nobody())
        return place.blob(file).read_bytes()


class _Aside:
    """A `Place` for one file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def blob(self, file: RemoteFile) -> Path:
        return self.path / "blob"

    def incomplete(self, file: RemoteFile) -> Path:
        return self.path / "incomplete"

    def validator(self, file: RemoteFile) -> Path:
        return self.path / "validator"

    def lock(self, file: RemoteFile) -> Path:
        return self.path / "lock"

    def discard(self, file: RemoteFile) -> None:
        self.incomplete(file).unlink(missing_ok=True)
        self.validator(file).unlink(missing_ok=True)


class _Nobody:
    """A `Watch` of somebody who does not look."""

    def check(self) -> None:
        pass

    def on_stop(self, hang_up: Callable[[], None] | None) -> None:
        pass

    def begin(self, file: RemoteFile, size: int, already: int) -> None:
        pass

    def advance(self, here: int) -> None:
        pass
