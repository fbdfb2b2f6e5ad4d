"""Whether a provider is asked at all: after a row of failures it is left alone for a while."""

from __future__ import annotations

import time
from collections.abc import Callable

#: Failures in a row after which a provider counts as down.
THRESHOLD = 3
#: Seconds for which it is left alone then; doubled each time that it is still down.
FIRST_PAUSE = 5.0
LONGEST_PAUSE = 60.0
#: Statuses of a proxy in front of a provider that is down.
DOWN = frozenset({502, 503, 504})


class Circuit:
    """Counts what becomes of the requests to one provider.

    After a pause one request is let through to see; the others wait for what becomes of it.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._pause = FIRST_PAUSE
        self._until = 0.0

    def wait(self) -> float:
        """Seconds until the next request is let through; 0 lets this one through."""
        if self._failures < THRESHOLD:
            return 0.0
        left = self._until - self._clock()
        if left > 0:
            return left
        # This one goes to see. Until its end, or for as long as a pause, the others are told to wait.
        self._until = self._clock() + self._pause
        return 0.0

    def failed(self) -> None:
        """It could not be reached, or did not answer."""
        self._failures += 1
        if self._failures == THRESHOLD:
            self._until = self._clock() + self._pause
        elif self._failures > THRESHOLD:
            self._pause = min(2 * self._pause, LONGEST_PAUSE)
            self._until = self._clock() + self._pause

    def answered(self) -> None:
        """It answered, whatever it said."""
        self._failures = 0
        self._pause = FIRST_PAUSE
