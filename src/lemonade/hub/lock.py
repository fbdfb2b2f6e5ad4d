"""One fetcher at a time, across threads and programs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lemonade.hub.registry import Watch

#: Seconds between two looks at whether the wait is still wanted.
_PATIENCE = 0.5


@contextmanager
def alone(lock: Path, watch: Watch) -> Iterator[None]:
    """Holds the lock file that huggingface_hub holds for the same bytes, so that it and we never fetch them at once.

    Raises:
        DownloadCancelled: while waiting.
    """
    from filelock import FileLock, Timeout

    lock.parent.mkdir(parents=True, exist_ok=True)
    held = FileLock(lock, mode=0o664)
    while True:
        watch.check()
        try:
            held.acquire(timeout=_PATIENCE)
        except Timeout:
            continue
        except NotImplementedError:
            # Some network file systems have no locks. Two fetchers at once cost time there, never right bytes.
            pass
        break
    try:
        yield
    finally:
        held.release()
