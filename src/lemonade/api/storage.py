"""Failures of the daemon's own files, told to the client."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lemonade.api.endpoint import ErrorRow
from lemonade.errors import StorageError

STORAGE_ERROR = ErrorRow(500, "internal_error", "A file cannot be read or written; the message says which and why.")


@contextmanager
def storing() -> Iterator[None]:
    """Around whatever reads or writes files.

    Raises:
        StorageError: instead of an OSError.
    """
    try:
        yield
    except OSError as error:
        reason = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        raise StorageError(f"This could not be stored: {reason}") from error
