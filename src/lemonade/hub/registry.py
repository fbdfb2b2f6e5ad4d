"""What a place that models come from can do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import msgspec


class RemoteFile(msgspec.Struct, frozen=True):
    """One file of a repository.

    Attributes:
        path: relative to the repository, with `/`.
        size: bytes; -1 when the registry does not say.
        sha256: of the bytes, in hex; None for small files of git, which `etag` covers.
        etag: what the registry calls this content; for small files of git the object id (sha1 over a header and the
            bytes).
    """

    path: str
    size: int
    sha256: str | None = None
    etag: str | None = None


class Listing(msgspec.Struct, frozen=True):
    """A repository at one commit. `revision` is immutable: the same revision always has the same files."""

    registry: str
    repository: str
    revision: str
    files: tuple[RemoteFile, ...]


class Place(Protocol):
    """Where the bytes of a repository are put; `layout.Folder` is the one in the model cache."""

    @property
    def path(self) -> Path:
        """The folder of the repository."""

    def blob(self, file: RemoteFile) -> Path:
        """Where the verified bytes go, by one rename."""

    def incomplete(self, file: RemoteFile) -> Path:
        """Where they gather until then; on the same file system."""

    def validator(self, file: RemoteFile) -> Path:
        """Where it is noted which content the gathered bytes belong to."""

    def lock(self, file: RemoteFile) -> Path:
        """Which lock whoever fetches these bytes holds."""

    def discard(self, file: RemoteFile) -> None:
        """Removes what came of a file so far."""


class Watch(Protocol):
    """Who follows a transfer. Every method is called in the transfer's thread."""

    def check(self) -> None:
        """Called often; raises DownloadCancelled when the transfer is no longer wanted."""

    def on_stop(self, hang_up: Callable[[], None] | None) -> None:
        """What ends a wait for bytes, called in another thread as soon as the transfer is no longer wanted."""

    def begin(self, file: RemoteFile, size: int, already: int) -> None:
        """A file's bytes start to come: `size` in all (-1 unknown), `already` of them here from an earlier try."""

    def advance(self, here: int) -> None:
        """`here` bytes of the current file are on disk. May be lower than before when a transfer starts over."""


class Registry(Protocol):
    """A registry. All methods block and are called in worker threads; all raise `HubError`s."""

    name: str

    def listing(self, repository: str) -> Listing:
        """The repository's files at its newest commit.

        Raises:
            RepositoryNotFound, RepositoryGated, RegistryUnreachable, RegistryReplied, Offline
        """

    def fetch(self, listing: Listing, files: Sequence[RemoteFile], place: Place, watch: Watch) -> None:
        """Brings each file's bytes to `place.blob(file)`, verified; what came of an interrupted one stays for later.

        Raises:
            FileNotInRepository, IntegrityError, NotEnoughSpace, DownloadCancelled, RegistryUnreachable,
            RegistryReplied, RepositoryGated, Offline
        """
