"""Samples as sound files, whole or piece by piece as they are made.

Runs in engines' processes; the table of formats is all that the daemon reads of it.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

#: The size of what has no end yet, as players of streams know it.
_UNKNOWN_SIZE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class Format:
    """One way to write sound.

    Attributes:
        media_type: the `Content-Type`; `{rate}` stands for the samples per second.
        container: FFmpeg's name of the file format, `""` for what is written here.
        codec: FFmpeg's name of the encoder.
        sample: FFmpeg's name of the samples that the encoder takes.
        bit_rate: bits per second of one channel, 0 where nothing is lost.
        streamed: options of the container when nobody can go back in it. They let a piece out as soon as it is there.
    """

    media_type: str
    container: str = ""
    codec: str = ""
    sample: str = "s16"
    bit_rate: int = 0
    streamed: tuple[tuple[str, str], ...] = ()


#: The formats of OpenAI's API by their names there. The media types are the specification's.
FORMATS = {
    "mp3": Format("audio/mpeg", "mp3", "libmp3lame", "s16p", 128_000, (("write_xing", "0"),)),
    "opus": Format("audio/opus", "ogg", "libopus", "s16", 64_000, (("page_duration", "200000"),)),
    "aac": Format("audio/aac", "adts", "aac", "fltp", 96_000),
    "flac": Format("audio/flac", "flac", "flac", "s16"),
    "wav": Format("audio/wav"),
    "pcm": Format("audio/l16;rate={rate};endianness=little-endian"),
}


class Encoder(Protocol):
    """Makes a file of the samples that it is given."""

    def write(self, samples: Samples) -> bytes:
        """What of the file is ready. Samples go from -1 to 1, in one row or one row per channel."""
        ...

    def finish(self) -> bytes:
        """The rest."""
        ...


def media_type(name: str, rate: int) -> str:
    """The `Content-Type` of a format."""
    return FORMATS[name].media_type.format(rate=rate)


def encoder(name: str, rate: int, *, channels: int = 1) -> Encoder:
    """An encoder whose output can be played while it comes.

    Args:
        name: of the format, a key of `FORMATS`.
        rate: samples per second.
        channels: 1 or 2.
    """
    if FORMATS[name].container:
        return _Muxer(FORMATS[name], rate, channels, _Pipe())
    return _Plain(wav_header(rate, channels, None) if name == "wav" else b"")


def encode(pieces: Iterable[Samples], name: str, rate: int, *, channels: int = 1) -> bytes:
    """A whole file, whose header says how long it is. The arguments are those of `encoder`; what has been encoded of
    the pieces is let go, so that an hour of speech needs no more memory than its file."""
    form = FORMATS[name]
    if not form.container:
        data = b"".join(map(to_pcm, pieces))
        return wav_header(rate, channels, len(data)) + data if name == "wav" else data
    whole = io.BytesIO()
    muxer = _Muxer(form, rate, channels, whole)
    for piece in pieces:
        muxer.write(piece)
    muxer.finish()
    return whole.getvalue()


def to_pcm(samples: Samples) -> bytes:
    """16 bits each, signed, little-endian, channels side by side. What is too loud is cut off."""
    import numpy as np

    return (np.clip(samples.T, -1, 1) * 32767).round().astype("<i2").tobytes()


def wav_header(rate: int, channels: int, size: int | None) -> bytes:
    """The head of a WAV file of 16 bits per sample.

    Args:
        size: bytes of samples behind it, None when that is not known yet.
    """
    whole, data = (_UNKNOWN_SIZE, _UNKNOWN_SIZE) if size is None else (36 + size, size)
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * channels * 2, channels * 2, 16)
    return (
        b"RIFF"
        + struct.pack("<I", whole)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", data)
    )


class _Plain:
    """Samples as they are, behind a header."""

    def __init__(self, header: bytes) -> None:
        self._header = header

    def write(self, samples: Samples) -> bytes:
        header, self._header = self._header, b""
        return header + to_pcm(samples)

    def finish(self) -> bytes:
        header, self._header = self._header, b""
        return header


class _Pipe:
    """A file that can only be written to, so that FFmpeg does not go back to what has left."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _Muxer:
    """An encoder of FFmpeg's."""

    def __init__(self, form: Format, rate: int, channels: int, file: _Pipe | io.BytesIO) -> None:
        import av

        self._form = form
        self._file = file
        self._layout = "stereo" if channels == 2 else "mono"
        self._rate = rate
        options = dict(form.streamed) if isinstance(file, _Pipe) else {}
        self._container = av.open(file, "w", format=form.container, container_options={**options, "flush_packets": "1"})
        stream = self._container.add_stream(form.codec, rate=rate, layout=self._layout)
        assert isinstance(stream, av.AudioStream)
        self._stream = stream
        if form.bit_rate:
            self._stream.bit_rate = form.bit_rate * channels
        self._written = 0

    def write(self, samples: Samples) -> bytes:
        import av
        import numpy as np

        rows = samples.reshape(-1, samples.shape[-1])
        data = np.clip(rows, -1, 1)
        if self._form.sample != "fltp":
            data = (data * 32767).round().astype(np.int16)
        if not self._form.sample.endswith("p"):
            data = data.T.reshape(1, -1)
        frame = av.AudioFrame.from_ndarray(np.ascontiguousarray(data), format=self._form.sample, layout=self._layout)
        frame.sample_rate = self._rate
        frame.pts = self._written
        frame.time_base = Fraction(1, self._rate)
        self._written += frame.samples
        for packet in self._stream.encode(frame):
            self._container.mux(packet)
        return self._taken()

    def finish(self) -> bytes:
        for packet in self._stream.encode(None):
            self._container.mux(packet)
        self._container.close()
        return self._taken()

    def _taken(self) -> bytes:
        return self._file.take() if isinstance(self._file, _Pipe) else b""
