"""Texts to sound: which pieces there are, what is computed when, and what silence is between."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lemonade.engines.kokoro.network import MOST_PHONEMES, padded
from lemonade.engines.kokoro.sentences import AFTER_CLAUSE, Piece, halves, split
from lemonade.engines.kokoro.text import spoken
from lemonade.errors import InvalidArgument

if TYPE_CHECKING:
    from lemonade.engines.kokoro.network import Network, Samples
    from lemonade.engines.kokoro.phonemes import Phonemizer
    from lemonade.engines.kokoro.voices import Blend


@dataclass(frozen=True, slots=True)
class Utterance:
    """What is computed in one go.

    Attributes:
        pause: seconds of silence behind it, at a rate of 1.
    """

    phonemes: str
    pause: float


class Speaker:
    """Speaks several texts at once: their pieces take turns, so that a listener who takes an hour holds nobody up.

    Args:
        workers: pieces that are computed at the same time.
    """

    def __init__(self, network: Network, phonemizer: Phonemizer, workers: int) -> None:
        self._network = network
        self._phonemizer = phonemizer
        self._workers = workers
        self._pool = ThreadPoolExecutor(workers, thread_name_prefix="speaker")

    def speak(self, text: str, voice: Blend, speed: float, check: Callable[[], None]) -> Iterator[Samples]:
        """The sound, a piece at a time, each with the silence behind it. No more pieces are computed ahead than there
        are workers: a listener who is slow, or leaves, costs no more than these.

        Args:
            check: called between pieces; what it raises ends the speech.

        Raises:
            InvalidArgument: at the first piece, when nothing in the text has a sound.
        """
        rest = self.utterances(text, voice.language)
        ahead: deque[tuple[Future[Samples], float]] = deque()
        found = False
        try:
            while True:
                while len(ahead) < self._workers and (one := next(rest, None)) is not None:
                    found = True
                    ahead.append((self._pool.submit(self._network.speak, one.phonemes, voice, speed), one.pause))
                if not ahead:
                    break
                future, pause = ahead.popleft()
                sound = future.result()
                check()
                yield padded(sound, pause / speed)
        finally:
            for future, _ in ahead:
                future.cancel()
        if not found:
            raise InvalidArgument("'input' holds nothing that can be spoken.", param="input")

    def utterances(self, text: str, language: str) -> Iterator[Utterance]:
        """What is to be computed for a text, in order."""
        for piece in split(spoken(text, language)):
            yield from self._fitting(piece, language)

    def _fitting(self, piece: Piece, language: str) -> Iterator[Utterance]:
        phonemes = self._phonemizer(piece.text, language)
        if len(phonemes) <= MOST_PHONEMES:
            if phonemes:
                yield Utterance(phonemes, piece.pause)
            return
        two = halves(piece.text)
        if two is None:
            yield Utterance(phonemes[:MOST_PHONEMES], piece.pause)
            return
        yield from self._fitting(Piece(two[0], AFTER_CLAUSE), language)
        yield from self._fitting(Piece(two[1], piece.pause), language)
