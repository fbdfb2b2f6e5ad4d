"""What went wrong lately, so that a client that repeats itself does not start a hopeless engine again and again."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from lemonade.errors import LemonadeError, ModelLoadError, ModelNotFound

#: Seconds for which a failed start answers for the next ones: SDKs repeat a failed call after 0.5 s and about 1 s.
REMEMBERED = 2.0
#: So many deaths within so many seconds, with no answer to anybody in between, make a crash loop; then no start until
#: the oldest of them has aged.
CRASHES = 5
CRASH_WINDOW = 60.0


class Failures:
    """Failed starts and sudden deaths, by model.

    Args:
        clock: seconds, only growing.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[float, LemonadeError]] = {}
        self._crashes: dict[str, deque[tuple[float, str]]] = {}

    def failed(self, key: str, error: LemonadeError) -> None:
        """A start failed. Errors that a retry may cure are not remembered, nor is that the model is gone: it costs
        nothing to see, and ends when the model is back."""
        if not error.retry and not isinstance(error, ModelNotFound):
            self._failed[key] = (self._clock() + REMEMBERED, error)

    def crashed(self, key: str, how: str) -> None:
        """A process that was ready ended by itself; `how` says so, with the engine's last words."""
        self._crashes.setdefault(key, deque(maxlen=CRASHES)).append((self._clock(), how))

    def answered(self, key: str) -> None:
        """The engine works: one request that kills it must not lock out all others."""
        if self._crashes:
            self._crashes.pop(key, None)

    def forget(self, key: str) -> None:
        """Somebody asks expressly: try again."""
        self._failed.pop(key, None)
        self._crashes.pop(key, None)

    def check(self, key: str, name: str) -> None:
        """Raises what a start of this model would most probably end with, if there is reason to think so."""
        now = self._clock()
        if failure := self._failed.get(key):
            until, error = failure
            if now < until:
                raise error.with_traceback(None)
            del self._failed[key]
        if crashes := self._crashes.get(key):
            oldest, how = crashes[0][0], crashes[-1][1]
            if now - crashes[-1][0] > CRASH_WINDOW:
                del self._crashes[key]
            elif len(crashes) == CRASHES and now - oldest <= CRASH_WINDOW:
                raise ModelLoadError(
                    f"Failed to load model '{name}': its engine ended by itself {CRASHES} times within "
                    f"{CRASH_WINDOW:g} s, so it is not started again for {CRASH_WINDOW - (now - oldest):.0f} s. {how}",
                    requested=name,
                )
