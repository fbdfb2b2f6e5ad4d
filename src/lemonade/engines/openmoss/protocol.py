"""What a moss-tts-server is asked and answers: OpenAI's `POST /v1/audio/speech`, with additions of its own.

`voice` is an instruction in free words, `reference_wav_b64` a recording whose voice is taken. It writes `wav` and
`pcm`, and streams `pcm` only, with the rate and the channels in `X-MOSS-Sample-Rate` and `X-MOSS-Channels`.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

PROGRAM = "moss-tts-server"
PATH = "/v1/audio/speech"
#: The media type of its samples: 16 bits, signed, little-endian, channels side by side.
PCM = "audio/pcm"
#: What a voice says that is made up from a description, so that it can be heard.
SAMPLE = "Hello there. This is how I sound when I read a sentence or two to you, calmly and clearly."


@dataclass(frozen=True, slots=True)
class Sound:
    """Samples of 16 bits, channels side by side; `rate` is per second."""

    rate: int
    channels: int
    data: bytes


def read_wav(body: bytes) -> Sound:
    """A WAV file of 16 bits per sample, whatever its header says of its length.

    Raises:
        ValueError: it is none.
    """
    if body[:4] != b"RIFF" or body[8:12] != b"WAVE":
        raise ValueError("it does not begin like one")
    at, form = 12, None
    while at + 8 <= len(body):
        name, size = struct.unpack_from("<4sI", body, at)
        at += 8
        if name == b"fmt " and at + 16 <= len(body):
            form = struct.unpack_from("<HHIIHH", body, at)
        if name == b"data":
            break
        at += size + size % 2
    else:
        raise ValueError("it has no samples")
    if form is None or form[5] != 16 or not form[1] or not form[2]:
        raise ValueError("its samples do not have 16 bits")
    frame = 2 * form[1]
    data = body[at : at + size]
    return Sound(rate=form[2], channels=form[1], data=data[: len(data) // frame * frame])


def headers(rate: int, channels: int) -> list[tuple[bytes, bytes]]:
    """What tells a client how to play samples."""
    return [(b"x-moss-sample-rate", b"%d" % rate), (b"x-moss-channels", b"%d" % channels)]
