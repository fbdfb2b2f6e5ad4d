from __future__ import annotations

import io
import struct
from typing import Any

import av
import numpy as np
import pytest

from lemonade.engines.audio.encode import FORMATS, encode, encoder, media_type, to_pcm, wav_header

RATE = 24_000
SECONDS = 2.4
MAGIC = {"mp3": (b"ID3", b"\xff\xf3"), "opus": (b"OggS",), "aac": (b"\xff\xf1",), "flac": (b"fLaC",), "wav": (b"RIFF",)}
#: What a format adds at its ends, in seconds.
SLACK = 0.1


def tone(seconds: float = SECONDS) -> Any:
    return (0.3 * np.sin(2 * np.pi * 440 * np.arange(int(RATE * seconds)) / RATE)).astype(np.float32)


def decoded(data: bytes) -> Any:
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
        sound = np.concatenate([frame.to_ndarray().reshape(frame.layout.nb_channels, -1) for frame in frames], axis=1)
        return sound, frames[0].sample_rate


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "pcm"])
@pytest.mark.parametrize("streamed", [False, True])
def test_what_is_written_can_be_read(name: str, streamed: bool) -> None:
    sound = tone()
    if streamed:
        made = encoder(name, RATE)
        pieces = [made.write(piece) for piece in np.array_split(sound, 4)]
        # Each piece can be heard before the next one is there.
        assert all(pieces)
        data = b"".join([*pieces, made.finish()])
    else:
        data = encode(np.array_split(sound, 3), name, RATE)
    assert data.startswith(MAGIC[name])
    found, rate = decoded(data)
    assert found.shape[1] / rate == pytest.approx(SECONDS, abs=SLACK)
    spectrum = np.abs(np.fft.rfft(found[0].astype(np.float64)))
    assert np.argmax(spectrum) * rate / found.shape[1] == pytest.approx(440, abs=3)


@pytest.mark.parametrize("name", ["flac", "wav"])
def test_nothing_is_lost_where_nothing_should_be(name: str) -> None:
    found, _ = decoded(encode([tone()], name, RATE))
    assert np.array_equal(found[0], np.frombuffer(to_pcm(tone()), "<i2"))


def test_the_header_of_a_whole_wav_says_how_long_it_is() -> None:
    data = encode([tone()], "wav", RATE)
    assert struct.unpack_from("<I", data, 4)[0] == len(data) - 8
    assert struct.unpack_from("<I", data, 40)[0] == len(data) - 44
    assert struct.unpack_from("<HHIIHH", data, 20) == (1, 1, RATE, RATE * 2, 2, 16)


def test_the_header_of_a_streamed_wav_does_not() -> None:
    made = encoder("wav", RATE)
    data = made.write(tone()) + made.finish()
    assert data[:44] == wav_header(RATE, 1, None)
    assert struct.unpack_from("<I", data, 40)[0] == 0xFFFFFFFF
    assert len(data) == 44 + len(to_pcm(tone()))
    assert encoder("wav", RATE).finish() == wav_header(RATE, 1, None)


def test_samples_that_are_too_loud_do_not_wrap() -> None:
    assert struct.unpack("<4h", to_pcm(np.array([2.0, 1.0, -1.0, -3.0], np.float32))) == (32767, 32767, -32767, -32767)


@pytest.mark.parametrize("name", list(FORMATS))
def test_two_channels(name: str) -> None:
    data = encode([np.stack([tone(0.5), 0 * tone(0.5)])], name, 48_000, channels=2)
    if name == "pcm":
        assert len(data) == 2 * 2 * 12_000
        return
    with av.open(io.BytesIO(data)) as container:
        assert container.streams.audio[0].channels == 2


def test_media_types() -> None:
    assert media_type("pcm", 24_000) == "audio/l16;rate=24000;endianness=little-endian"
    assert [media_type(name, 1) for name in ("mp3", "opus", "aac", "flac", "wav")] == [
        "audio/mpeg",
        "audio/opus",
        "audio/aac",
        "audio/flac",
        "audio/wav",
    ]
