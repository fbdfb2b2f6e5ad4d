"""One download, as those see it who wait for it or look at it."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Literal

from lemonade.errors import LemonadeError
from lemonade.hub.progress import Meter, Progress
from lemonade.model import Model

Status = Literal["downloading", "paused", "cancelled", "completed", "error"]

#: What a collection consists of, asked on the loop once its own files are here.
Parts = Callable[[], Awaitable[list[Model]]]


@dataclass(frozen=True, slots=True)
class Work:
    """What a job brings that is no model.

    Attributes:
        kind: the job's `type` on the wire, and what its id begins with.
        name: what it is called there.
        again: what a person does to go on after a pause, as a sentence.
        run: brings it; called in the worker's thread, raises LemonadeErrors.
        withdraw: removes what came of it; called in the worker's thread.
        arrived: called on the loop when it is here.
    """

    kind: str
    name: str
    again: str
    run: Callable[[Meter], None]
    withdraw: Callable[[], None]
    arrived: Callable[[], None]


class Job:
    """One download. Its surface belongs to the loop's thread; only `_post` and `_stop` are touched by the worker.

    Attributes:
        id: `model:NAME`, or `KIND:NAME` of other work.
        model: what is downloaded; for a collection, its parts come with it. None for other work.
        name: what is downloaded, as the wire calls it.
        work: what is downloaded when it is no model.
        upgrade: whether what is here is compared with the registry.
        error: why it failed; None as long as it has not.
    """

    def __init__(self, what: Model | Work, *, upgrade: bool = False, parts: Parts | None = None) -> None:
        self.model = what if isinstance(what, Model) else None
        self.work = what if isinstance(what, Work) else None
        if isinstance(what, Work):
            self.kind, self.name, self._again = what.kind, what.name, what.again
        else:
            self.kind, self._again = "model", "Pull the model again to go on."
            self.name = what.name if what.origin == "builtin" else what.canonical
        self.id = f"{self.kind}:{self.name}"
        self.upgrade = upgrade
        self.parts = parts
        self.error: LemonadeError | None = None
        self._status: Status = "downloading"
        self._progress = Progress()
        self._running = True
        self._ended = asyncio.Event()
        self._ended_at = 0.0
        self._stop: str | None = None
        self._meter: Meter | None = None
        self._withdraw: Callable[[], None] | None = None
        self._subscribers: list[deque[tuple[Progress, bool]]] = []
        self._news = asyncio.Event()

    @property
    def status(self) -> Status:
        return self._status

    @property
    def running(self) -> bool:
        """Whether the worker is at it; a job that was told to stop runs until the worker has noticed."""
        return self._running

    @property
    def progress(self) -> Progress:
        return self._progress

    def snapshot(self) -> dict[str, Any]:
        """The keys of `GET /v1/downloads`."""
        progress = self._progress
        facts: dict[str, Any] = {
            "id": self.id,
            "type": self.kind,
            "model_name": self.name,
            "status": self._status,
            "running": self._running,
            "file": progress.file,
            "file_index": progress.file_index,
            "total_files": progress.total_files,
            "bytes_downloaded": progress.bytes_downloaded,
            "bytes_total": progress.bytes_total,
            "total_download_size": progress.total_download_size,
            "bytes_previously_downloaded": progress.bytes_previously_downloaded,
            "completed_files_bytes": progress.completed_files_bytes,
            "cumulative_bytes_downloaded": progress.cumulative_bytes_downloaded,
            "overall_bytes_downloaded": progress.cumulative_bytes_downloaded,
            "percent": progress.percent,
            "complete": self._status == "completed",
            "rate": round(progress.rate),
            "remaining": None if progress.remaining is None else round(progress.remaining, 1),
        }
        if self.error is not None:
            facts["error"] = self.error.message
            if self.error.code is not None:
                facts["code"] = self.error.code
        return facts

    async def events(self) -> AsyncIterator[Progress]:
        """What happens from now on, beginning with how it stands. A slow reader misses moments, never a file.

        Leaving does not end the download. The last one has `complete=True`.

        Raises:
            HubError: the download's, after the last progress.
        """
        mine: deque[tuple[Progress, bool]] = deque([(self._progress, False)])
        self._subscribers.append(mine)
        try:
            while True:
                news = self._news
                while mine:
                    progress, _ = mine.popleft()
                    yield progress
                if self._ended.is_set() and not mine:
                    break
                await news.wait()
        finally:
            self._subscribers.remove(mine)
        self._raise()

    async def wait(self) -> None:
        """Returns when it is here, or raises when nothing is done for it any more.

        Raises:
            HubError: the download's; DownloadCancelled when it was cancelled or paused.
        """
        await self._ended.wait()
        self._raise()

    def cancel(self) -> None:
        """Ends the job and removes what came so far; a paused one as well."""
        if not self._running and self._status == "paused":
            self._status = "cancelled"
            if self._withdraw is not None:
                # It ended once; for as long as its bytes are being removed it runs again.
                self._running, self._ended = True, asyncio.Event()
                self._withdraw()
        self._end_by("cancelled", f"The download of '{self.name}' was cancelled.")

    def pause(self) -> None:
        """Ends the job and keeps what came so far; another `start` goes on from there."""
        self._end_by("paused", f"The download of '{self.name}' was paused. {self._again}")

    def _end_by(self, status: Status, reason: str) -> None:
        is_open = self._status == "downloading" or (self._status == "paused" and status == "cancelled")
        if self._running and is_open:
            self._status = status
            self._stop = reason
            if self._meter is not None:
                self._meter.stop()
            self._wake()

    def _raise(self) -> None:
        if self.error is not None:
            raise self.error.with_traceback(None)

    # Called on the loop, for the worker.

    def _take(self, progress: Progress, edge: bool) -> None:
        self._progress = progress
        for waiting in self._subscribers:
            if waiting and not waiting[-1][1]:
                waiting.pop()
            waiting.append((progress, edge))
        self._wake()

    def _finish(self, error: LemonadeError | None) -> None:
        self._running = False
        self._ended_at = time.monotonic()
        if error is None:
            # The last byte came before the wish to stop.
            self._status = "completed"
        else:
            self.error = error
            if self._status == "downloading":
                self._status = "error"
        self._ended.set()
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()
