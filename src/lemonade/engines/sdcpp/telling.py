"""A computation that tells of itself while it goes on: server-sent events out of a thread."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from lemonade.engines.worker import LOOK, Job
from lemonade.errors import EngineError, LemonadeError

#: Gives one event: its name behind the prefix, and what it says.
Tell = Callable[[str, dict[str, Any]], None]

#: Seconds in which a library that was asked to stop does so; after that it is stopped with its process.
STOPS_WITHIN = 10.0


def events(prefix: str, compute: Callable[[Tell], None]) -> Iterator[bytes]:
    """The events of a computation, as it tells of them. Returns, and is closed, only after it has ended.

    Raises:
        LemonadeError: the computation failed before it told of anything.
    """
    told: queue.SimpleQueue[tuple[str, dict[str, Any]] | BaseException | None] = queue.SimpleQueue()

    def run() -> None:
        try:
            compute(lambda name, fields: told.put((name, fields)))
        except BaseException as error:  # noqa: BLE001 - it is raised again where it can be told
            told.put(error)
        else:
            told.put(None)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    has_told = False
    try:
        while (item := told.get()) is not None:
            if isinstance(item, BaseException):
                if not has_told or not isinstance(item, Exception):
                    raise item
                yield _failure(item)
                return
            name, fields = item
            has_told = True
            yield _event(f"{prefix}.{name}", fields)
    finally:
        # Who does not listen any more has left, which stops the computation.
        thread.join()


@contextmanager
def stopped_with(job: Job, stop: Callable[[], None] | None) -> Iterator[None]:
    """Around a call into a library: when the client leaves, the call is stopped.

    Args:
        stop: asks the library to stop, from another thread; None if it cannot, and the process has to end.
    """
    if stop is None:
        with job.unstoppable():
            yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK):
            if job.cancelled:
                stop()
                if not over.wait(STOPS_WITHIN):
                    job.abandon()
                return

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def stamped(fields: dict[str, Any]) -> dict[str, Any]:
    return {"created_at": int(time.time()), **fields}


def _event(name: str, fields: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


def _failure(error: Exception) -> bytes:
    known = error if isinstance(error, LemonadeError) else EngineError(str(error) or type(error).__name__)
    return f"event: error\ndata: {json.dumps({'error': known.body()})}\n\n".encode()
