"""Texts to sound: which pieces there are, what is computed when, and what silence is between."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lemonade.engines.kokoro.network import MOST_PHONEMES, Stop, padded
from lemonade.engines.kokoro.pool import Pool
from lemonade.engines.kokoro.sentences import LONGEST, Piece, cut, length, split
from lemonade.engines.kokoro.text import spoken
from lemonade.errors import InvalidArgument

if TYPE_CHECKING:
    from lemonade.engines.kokoro.network import Network, Samples
    from lemonade.engines.kokoro.phonemes import Phonemizer
    from lemonade.engines.kokoro.voices import Blend


#: Seconds between two looks at whether the listener is still there.
LOOK = 0.1
#: How much longer a piece may be for what is heard before it, for each core: so much faster than it plays does a slow
#: one compute it.
GROWTH = 0.25
#: About the seconds that a phoneme sounds.
PHONEME = 0.053
#: Phonemes that are computed at once. There are more in a piece only where an estimate was wrong.
MOST = 2 * LONGEST


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is computed in one go.

    Attributes:
        pause: seconds of silence behind it, at a rate of 1.
    """

    phonemes: str
    pause: float


class Speaker:
    """Speaks several texts at once: first the piece whose listener runs out of sound first, so that nobody waits for
    what somebody else hears in an hour.

    Args:
        workers: pieces that are computed at the same time.
    """

    def __init__(self, network: Network, phonemizer: Phonemizer, workers: int) -> None:
        self._network = network
        self._phonemizer = phonemizer
        self._workers = workers
        self._pool = Pool(workers)

    def speak(
        self, text: str, voice: Blend, speed: float, check: Callable[[], None], *, soon: bool = False
    ) -> Iterator[Samples]:
        """The sound, a piece at a time, each with the silence behind it. No more pieces are computed ahead than there
        are workers: a listener who is slow costs no more than these, and one who leaves nothing any more.

        Args:
            check: called often; what it raises ends the speech.
            soon: whether somebody listens already. The first pieces are shorter then.

        Raises:
            InvalidArgument: at the first piece, when nothing in the text has a sound, or it cannot be read.
        """
        self._phonemizer.check(text, voice.language)
        rest = self.utterances(text, voice.language, soon=soon)
        ahead: deque[tuple[Future[Samples], float]] = deque()
        stop = Stop()
        #: When the listener has heard all that was asked for.
        due = time.monotonic()
        found = False
        try:
            while True:
                while len(ahead) < self._workers and (one := next(rest, None)) is not None:
                    found = True
                    work = partial(self._network.speak, one.phonemes, voice, speed, stop)
                    ahead.append((self._pool.submit(due, work), one.pause))
                    due += (len(one.phonemes) * PHONEME + one.pause) / speed
                    check()
                if not ahead:
                    break
                future, pause = ahead.popleft()
                while not wait((future,), LOOK).done:
                    check()
                yield padded(future.result(), pause / speed)
        finally:
            stop.set()
            for future, _ in ahead:
                future.cancel()
        if not found:
            raise InvalidArgument("'input' holds nothing that can be spoken.", param="input")

    def utterances(self, text: str, language: str, *, soon: bool = False) -> Iterator[Utterance]:
        """What is to be computed for a text, in order."""
        growth = GROWTH * min(self._workers, 2) if soon else None
        for piece in split(spoken(text, language), growth):
            yield from self._fitting(piece, language)

    def _fitting(self, piece: Piece, language: str) -> Iterator[Utterance]:
        phonemes = self._phonemizer(piece.text, language)
        if len(phonemes) <= MOST:
            if phonemes:
                yield Utterance(phonemes, piece.pause)
            return
        head, tail, gap = cut(piece.text, length(piece.text) // 2)
        if not tail:
            yield Utterance(phonemes[:MOST_PHONEMES], piece.pause)
            return
        yield from self._fitting(Piece(head, gap), language)
        yield from self._fitting(Piece(tail, piece.pause), language)
