"""Real speech for tests, and what to make of it.

The recordings are read aloud from books that are in the public domain; they come with Moonshine's package.
"""

from __future__ import annotations

import importlib.util
import io
import re
import wave
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import numpy.typing as npt

from lemonade.engines.audio.decode import decode

Samples = npt.NDArray[np.float32]

RATE = 16_000
#: What is said in the first seconds of `two_cities`.
BEGINNING = "it was the best of times it was the worst of times"
#: What is said in all of it.
TWO_CITIES = """
    It was the best of times, it was the worst of times, it was the age of wisdom, it was the age of foolishness, it was
    the epoch of belief, it was the epoch of incredulity, it was the season of light, it was the season of darkness, it
    was the spring of hope, it was the winter of despair, we had everything before us, we had nothing before us, we were
    all going direct to heaven, we were all going direct the other way, in short, the period was so far like the present
    period, that some of its noisiest authorities insisted on its being received, for good or for evil, in the
    superlative degree of comparison only.
"""


def recording(name: str = "two_cities") -> Path:
    """A file of the package, 48 kHz mono."""
    spec = importlib.util.find_spec("moonshine_voice")
    assert spec is not None and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0]) / "assets" / f"{name}.wav"


def speech(seconds: float = 5.0, *, begin: float = 0.0, name: str = "two_cities") -> Samples:
    """Some seconds of it at 16 kHz."""
    whole = np.concatenate(list(decode(recording(name))))
    return whole[int(begin * RATE) : int((begin + seconds) * RATE)]


def pcm(samples: Samples) -> bytes:
    """16 bits, little-endian."""
    return np.round(np.clip(samples, -1, 1) * 32767).astype("<i2").tobytes()


def wav(samples: Samples, rate: int = RATE) -> bytes:
    """A WAV file."""
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(rate)
        file.writeframes(pcm(samples))
    return made.getvalue()


def encoded(
    samples: Samples, container: str, codec: str, *, rate: int = RATE, layout: str = "mono", form: str = "s16"
) -> bytes:
    """A file of another kind, as FFmpeg writes it.

    Args:
        form: how the encoder takes samples, in FFmpeg's words.
    """
    made = io.BytesIO()
    with av.open(made, "w", format=container) as file:
        stream = file.add_stream(codec, rate=rate)
        assert isinstance(stream, av.AudioStream)
        stream.layout = layout
        frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
        frame.sample_rate = RATE
        resampler = av.AudioResampler(format=form, layout=layout, rate=rate)
        written = 0
        for piece in (*resampler.resample(frame), *resampler.resample(None)):
            # Without times the last part of a long recording gets that of the one before, which MP4 does not take.
            piece.pts, piece.time_base = written, Fraction(1, rate)
            written += piece.samples
            file.mux(stream.encode(piece))
        file.mux(stream.encode(None))
    return made.getvalue()


def words(text: str) -> list[str]:
    """For comparison: small letters, no punctuation."""
    return re.findall(r"[a-z0-9']+", text.lower())


def word_error_rate(heard: str, said: str) -> float:
    """Words that are wrong, missing or too many, as a part of those that were said."""
    one, other = words(heard), words(said)
    row = list(range(len(other) + 1))
    for at, word in enumerate(one, 1):
        before, row[0] = row[0], at
        for place, wanted in enumerate(other, 1):
            before, row[place] = row[place], min(row[place] + 1, row[place - 1] + 1, before + (word != wanted))
    return row[-1] / len(other)
