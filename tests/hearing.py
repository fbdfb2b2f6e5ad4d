"""Somebody who listens to speech and writes down what he hears: Whisper, English only."""

from __future__ import annotations

import re
from typing import Any

import av
import numpy as np

from tests.whisper import tiny_en

#: Sentences of everyday words, as people dictate them to see whether a line is good.
SENTENCES = (
    "The quick brown fox jumps over the lazy dog near the river.",
    "The birch canoe slid on the smooth planks.",
    "The weather tomorrow will be sunny with a light breeze from the west.",
    "Please remember to bring your passport and a warm coat for the journey.",
    "A small group of students gathered in the library to discuss the new project.",
    "The old lighthouse keeper told stories about ships and storms.",
    "Our train leaves from the last platform in a quarter of an hour.",
    "He poured a cup of coffee and opened the morning newspaper.",
    "The museum is closed on Mondays but open every other day of the week.",
    "They walked slowly along the beach and watched the sun go down.",
    "Scientists have discovered a new species of bird in the mountains.",
    "The price of bread went up again because the harvest was poor.",
    "My sister plays the violin in a famous orchestra in the city.",
    "You can find the answer at the bottom of the next page.",
    "The doctor asked him to drink more water and to sleep longer.",
    "Every window in the house was open to let the cool air in.",
    "The children laughed when the little dog chased its own tail.",
    "We should finish the report before the end of the month.",
    "The river runs through a green valley between two high hills.",
    "Thank you for listening, and have a pleasant evening at home.",
)

_RATE = 16_000


class Listener:
    """One loaded model."""

    def __init__(self) -> None:
        from pywhispercpp.model import Model

        quiet: dict[str, Any] = {"print_progress": False, "print_realtime": False, "redirect_whispercpp_logs_to": None}
        self._model = Model(str(tiny_en()), n_threads=1, **quiet)

    def hear(self, pcm: bytes, rate: int = 24_000) -> str:
        """The words in samples of 16 bits on one channel."""
        frame = av.AudioFrame.from_ndarray(np.frombuffer(pcm, "<i2")[None], format="s16", layout="mono")
        frame.sample_rate = rate
        resampler = av.AudioResampler("flt", "mono", _RATE)
        parts = [piece.to_ndarray()[0] for piece in (*resampler.resample(frame), *resampler.resample(None))]
        # It wants a second at least, and some silence to know that nothing follows.
        sound = np.concatenate([*parts, np.zeros(_RATE // 2, np.float32)])
        return " ".join(segment.text for segment in self._model.transcribe(sound)).strip()


def word_errors(said: str, heard: str) -> tuple[int, int]:
    """How many words have to be changed, added or left out to get from one to the other, and how many were said."""
    wanted, found = _words(said), _words(heard)
    row = list(range(len(found) + 1))
    for number, word in enumerate(wanted, 1):
        diagonal, row[0] = row[0], number
        for at, other in enumerate(found, 1):
            diagonal, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, diagonal + (word != other))
    return row[-1], len(wanted)


def _words(text: str) -> list[str]:
    return re.sub(r"[^a-z' ]", " ", text.lower()).split()
