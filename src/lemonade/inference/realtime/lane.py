"""In which order the sessions of one model come to its engine, which does one thing at a time.

What a client waits for goes before what is only shown meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator

#: Begins an interim transcription, or answers None if it is not wanted any more.
Begin = Callable[[], "asyncio.Task[None] | None"]


class Lane:
    """The way to one model. At most one interim transcription is under way, and none while a final one is due.

    Attributes:
        pace: seconds that the engine takes for a draft of a second of audio, as it did lately; 0 before the first.
    """

    def __init__(self) -> None:
        self.pace = 0.0
        self._finals = 0
        self._interim: asyncio.Task[None] | None = None
        self._waiting: dict[object, Begin] = {}

    def note(self, seconds: float, audio: float, *, draft: bool) -> None:
        """The engine took so many seconds for so many seconds of audio. A final text takes more work than a draft, so
        it only shows that the engine is quicker than was thought."""
        pace = seconds / audio
        if not self.pace:
            self.pace = pace
        else:
            self.pace = (self.pace + pace) / 2 if draft else min(self.pace, pace)

    @contextlib.contextmanager
    def final(self) -> Iterator[None]:
        """While a final transcription is due. An interim one that is under way gives way."""
        self._finals += 1
        if self._interim is not None:
            self._interim.cancel()
        try:
            yield
        finally:
            self._finals -= 1
            self._go_on()

    def wish(self, who: object, begin: Begin) -> None:
        """Has an interim transcription begin as soon as there is room; of one session one wish at a time."""
        self._waiting.setdefault(who, begin)
        self._go_on()

    def withdraw(self, who: object) -> None:
        self._waiting.pop(who, None)

    def _go_on(self) -> None:
        while not self._finals and self._interim is None and self._waiting:
            who = next(iter(self._waiting))
            task = self._waiting.pop(who)()
            if task is not None:
                self._interim = task
                task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._interim = None
        self._go_on()
