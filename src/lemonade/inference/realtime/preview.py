"""What an open turn says so far.

A preview never makes anyone wait: one is asked for only when nothing else is due, and it covers a few seconds of audio,
however long the turn is. What lies further back is asked for once, at a quiet place, and kept.
"""

from __future__ import annotations

import array
import asyncio
import logging
import sys
from collections.abc import Awaitable, Callable
from operator import mul
from typing import TYPE_CHECKING

from lemonade.errors import LemonadeError
from lemonade.inference.realtime.buffer import AudioBuffer

if TYPE_CHECKING:
    from lemonade.inference.realtime.transcriber import Speech, Transcriber
    from lemonade.model import Model

logger = logging.getLogger("lemonade.inference.realtime")

#: Milliseconds of a turn before its first preview. Of less, engines make up words.
FIRST_MS = 900
#: Milliseconds of new audio from one preview to the next.
EVERY_MS = 1000
#: Milliseconds without voice after which the turn may be about to end, and its final text due.
PAUSE_MS = 200
#: Seconds that a preview may take. A longer one lags behind what is said, and holds up the final text.
SLOW = 1.5
#: Milliseconds of audio of one preview, and those that an engine has to manage in that time for long turns to have any.
LONGEST_MS = 20_000
SHORTEST_MS = 3_000
#: Where in its audio a piece may end that is not asked for again: at the quietest part between these shares of it.
CUT_FROM = 0.5
CUT_TO = 0.8
#: Milliseconds of such a part.
CUT_MS = 100


class Preview:
    """The previews of one turn.

    Args:
        buffer: holds the turn's audio from `turn_start` on.
        speech: makes a request of audio.
        find: the model; raises LemonadeError.
        show: takes the whole text so far, when it has changed.
    """

    def __init__(
        self,
        buffer: AudioBuffer,
        speech: Callable[[bytes], Speech],
        find: Callable[[], Model],
        transcriber: Transcriber,
        show: Callable[[str], Awaitable[None]],
    ) -> None:
        self._buffer = buffer
        self._speech = speech
        self._find = find
        self._transcriber = transcriber
        self._show = show
        self._kept = ""
        self._kept_to = buffer.turn_start
        self._next = buffer.turn_start + self._samples(FIRST_MS)
        self._shown = ""
        self._task: asyncio.Task[None] | None = None
        self._over = False

    def consider(self) -> None:
        """Asks for a preview if it is time for one."""
        if self._over or self._task is not None or self._buffer.heard < self._next or self._pausing:
            return
        try:
            lane = self._transcriber.lane(self._find())
        except LemonadeError:
            # The final text will tell of it.
            self._over = True
            return
        longest = self._longest(lane.pace)
        if longest < SHORTEST_MS and self._buffer.heard - self._kept_to > self._samples(longest):
            self._over = True
        else:
            lane.wish(self, self._begin)

    def end(self) -> asyncio.Task[None] | None:
        """No more previews. Answers the one that is being given up, if there is one."""
        self._over = True
        if self._task is not None:
            self._task.cancel()
        return self._task

    @property
    def _pausing(self) -> bool:
        return self._buffer.pause_ms >= PAUSE_MS

    def _begin(self) -> asyncio.Task[None] | None:
        if self._over or self._pausing:
            return None
        self._task = asyncio.create_task(self._run())
        self._task.add_done_callback(self._done)
        return self._task

    def _done(self, task: asyncio.Task[None]) -> None:
        # A task that was cancelled before its first step has run nothing of its own.
        self._task = None
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("a preview", exc_info=error)
            self._over = True

    async def _run(self) -> None:
        before, heard = self._next, self._buffer.heard
        try:
            self._next = heard + self._samples(EVERY_MS)
            model = self._find()
            lane = self._transcriber.lane(model)
            longest = self._longest(lane.pace)
            if heard - self._kept_to > self._samples(longest):
                cut = self._quiet_place(self._samples(longest))
                text = await self._transcriber.interim(model, self._piece(cut))
                self._kept, self._kept_to = _joined(self._kept, text), cut
            text = await self._transcriber.interim(model, self._piece(self._buffer.heard))
            text = _joined(self._kept, text)
            # Half of the engine's time is left to what is not shown only.
            work = lane.pace * (self._buffer.heard - self._kept_to)
            self._next = max(self._next, heard + round(2 * work))
            if text and text != self._shown:
                self._shown = text
                await self._show(text)
        except asyncio.CancelledError:
            # Somebody's final text was due; the next one may come at once.
            self._next = before
            raise
        except LemonadeError as error:
            logger.debug("no preview: %s", error.message)
            self._over = True

    def _piece(self, end: int) -> Speech:
        return self._speech(self._buffer.copy(self._kept_to, end))

    @staticmethod
    def _longest(pace: float) -> int:
        """Milliseconds of audio that one preview may have."""
        return min(LONGEST_MS, round(SLOW * 1000 / pace)) if pace else LONGEST_MS

    def _quiet_place(self, longest: int) -> int:
        """Where a piece of at most so many samples may end, as between two words as can be."""
        start = self._kept_to + round(longest * CUT_FROM)
        audio = array.array("h", self._buffer.copy(start, self._kept_to + round(longest * CUT_TO)))
        if sys.byteorder == "big":
            audio.byteswap()
        step = self._samples(CUT_MS)
        parts = range(0, len(audio) - step, step)
        quietest = min(parts, key=lambda at: sum(map(mul, audio[at : at + step], audio[at : at + step])))
        return start + quietest + step // 2

    def _samples(self, milliseconds: int) -> int:
        return milliseconds * self._buffer.rate // 1000


def _joined(before: str, after: str) -> str:
    return f"{before} {after}".strip()
