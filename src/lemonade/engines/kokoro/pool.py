"""Workers that compute first what is due first."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from typing import Any


class Pool:
    """Threads and what they are to do.

    Args:
        workers: how many there are.
    """

    def __init__(self, workers: int) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="speaker")
        self._lock = threading.Lock()
        self._waiting: list[tuple[float, int, Future[Any], Callable[[], Any]]] = []
        self._numbers = count()

    def submit(self, due: float, work: Callable[[], Any]) -> Future[Any]:
        """Has something done, before all that is due later and has not begun.

        Args:
            due: on any clock that all use.
        """
        future: Future[Any] = Future()
        with self._lock:
            heapq.heappush(self._waiting, (due, next(self._numbers), future, work))
        self._threads.submit(self._do_one)
        return future

    def _do_one(self) -> None:
        with self._lock:
            _, _, future, work = heapq.heappop(self._waiting)
        if not future.set_running_or_notify_cancel():
            return
        try:
            made = work()
        except BaseException as error:  # noqa: BLE001 - whoever waits for it gets it
            future.set_exception(error)
        else:
            future.set_result(made)
