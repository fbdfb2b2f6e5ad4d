from __future__ import annotations

import io
import struct
from pathlib import Path

import av
import numpy as np
import pytest

from lemonade.engines.audio.decode import decode, duration, from_pcm
from lemonade.errors import InvalidArgument
from tests.recordings import RATE, Samples, encoded, pcm, wav


def tone(seconds: float = 1.0, rate: int = RATE, hertz: float = 440) -> Samples:
    return (0.5 * np.sin(2 * np.pi * hertz * np.arange(int(seconds * rate)) / rate)).astype(np.float32)


def read(folder: Path, data: bytes, **more: float) -> Samples:
    path = folder / "upload"
    path.write_bytes(data)
    return np.concatenate(list(decode(path, **more)))  # type: ignore[arg-type]


def pitch(samples: Samples) -> float:
    """Hz of the loudest tone."""
    return float(np.abs(np.fft.rfft(samples[: RATE // 2])).argmax() * 2)


def riff(
    data: bytes, *, kind: int = 1, channels: int = 1, rate: int = RATE, bits: int = 16, size: int | None = None
) -> bytes:
    """A WAV file that says of itself whatever it is told to."""
    head = struct.pack("<HHIIHH", kind, channels, rate, rate * channels * bits // 8, channels * bits // 8, bits)
    size = len(data) if size is None else size
    body = b"WAVEfmt " + struct.pack("<I", len(head)) + head + b"data" + struct.pack("<I", size) + data
    return b"RIFF" + struct.pack("<I", min(len(body) if size == len(data) else size, 0xFFFFFFFF)) + body


@pytest.mark.parametrize(
    ("container", "codec", "rate", "form"),
    [
        ("wav", "pcm_u8", RATE, "u8"),
        ("wav", "pcm_s16le", 44_100, "s16"),
        ("wav", "pcm_s24le", 48_000, "s32"),
        ("wav", "pcm_s32le", RATE, "s32"),
        ("wav", "pcm_f32le", 22_050, "flt"),
        ("wav", "pcm_f64le", RATE, "dbl"),
        ("wav", "pcm_alaw", 8_000, "s16"),
        ("wav", "pcm_mulaw", 8_000, "s16"),
        ("w64", "pcm_s16le", RATE, "s16"),
        ("aiff", "pcm_s16be", RATE, "s16"),
        ("mp3", "libmp3lame", 44_100, "fltp"),
        ("ipod", "aac", 44_100, "fltp"),
        ("mp4", "aac", 48_000, "fltp"),
        ("adts", "aac", RATE, "fltp"),
        ("flac", "flac", RATE, "s16"),
        ("ogg", "libopus", 48_000, "flt"),
        ("webm", "libopus", 48_000, "flt"),
    ],
)
@pytest.mark.parametrize("layout", ["mono", "stereo"])
def test_every_usual_file_becomes_the_same_samples(
    tmp_path: Path, container: str, codec: str, rate: int, form: str, layout: str
) -> None:
    if container == "ipod" and layout == "stereo":
        pytest.skip("the same as mp4")
    written = encoded(tone(), container, codec, rate=rate, layout=layout, form=form)
    samples = read(tmp_path, written)
    assert samples.dtype == np.float32
    assert len(samples) / RATE == pytest.approx(1.0, abs=0.15)
    assert pitch(samples[2000:]) == 440
    loudness = float(np.sqrt(np.square(samples[2000:12000]).mean()))
    # FFmpeg makes stereo of mono 3 dB quieter.
    assert loudness == pytest.approx(0.354 if layout == "mono" else 0.25, rel=0.15)


@pytest.mark.parametrize("channels", [1, 3, 7, 12, 64])
def test_channels_are_mixed_wherever_they_belong(tmp_path: Path, channels: int) -> None:
    interleaved = np.repeat(np.frombuffer(pcm(tone()), "<i2"), channels).tobytes()
    assert read(tmp_path, riff(interleaved, channels=channels)) == pytest.approx(tone(), abs=1e-3)


def test_opposite_channels_cancel_out_and_different_ones_both_are_heard(tmp_path: Path) -> None:
    low, high = tone(hertz=200), tone(hertz=1000)
    both = np.stack([low, high], axis=1)
    mixed = read(tmp_path, riff(pcm(both.ravel()), channels=2))
    assert mixed == pytest.approx((low + high) / 2, abs=1e-3)
    opposite = np.stack([low, -low], axis=1)
    assert np.abs(read(tmp_path, riff(pcm(opposite.ravel()), channels=2))).max() < 1e-3


def test_no_tone_above_half_the_rate_comes_back_as_another(tmp_path: Path) -> None:
    high = tone(rate=48_000, hertz=11_000)
    assert np.abs(read(tmp_path, wav(high, 48_000))[1000:-1000]).max() < 0.01


@pytest.mark.parametrize("size", [0, 7, 0xFFFFFFFF])
def test_a_size_that_is_no_truth_is_not_believed(tmp_path: Path, size: int) -> None:
    """Programs that write into a pipe do not know the size when they write the head."""
    if size == 7:
        assert len(read(tmp_path, riff(pcm(tone()), size=size))) < RATE
    else:
        assert read(tmp_path, riff(pcm(tone()), size=size)) == pytest.approx(tone(), abs=1e-3)


def test_a_file_that_was_cut_off_gives_what_there_is(tmp_path: Path) -> None:
    assert len(read(tmp_path, riff(pcm(tone()))[:-16_001])) == pytest.approx(RATE / 2, abs=RATE * 0.1)
    mp3 = encoded(tone(5), "mp3", "libmp3lame", form="fltp")
    assert 1 < len(read(tmp_path, mp3[: len(mp3) // 2])) / RATE < 4


def test_titles_may_be_written_in_any_way(tmp_path: Path) -> None:
    """Older programs write them in the encoding of their country."""
    title = "Grüße".encode("latin-1") + b"\0"
    info = b"INFOINAM" + struct.pack("<I", len(title)) + title
    data = riff(pcm(tone()))
    assert len(read(tmp_path, data + b"LIST" + struct.pack("<I", len(info)) + info)) == RATE


def test_damage_in_the_middle_costs_what_is_damaged(tmp_path: Path) -> None:
    mp3 = bytearray(encoded(tone(5), "mp3", "libmp3lame", form="fltp"))
    middle = len(mp3) // 2
    mp3[middle : middle + 2000] = bytes(2000)
    assert 3.5 < len(read(tmp_path, bytes(mp3))) / RATE < 5.5


def test_what_is_no_number_is_silence(tmp_path: Path) -> None:
    wild = np.array([np.nan, np.inf, -np.inf, 0.5] * 1000, "<f4")
    samples = read(tmp_path, riff(wild.tobytes(), kind=3, bits=32))
    assert np.isfinite(samples).all()
    assert samples.max() <= 0.6


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"RIFF",
        b"hello " * 100,
        b"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nfile:///etc/hostname\n#EXT-X-ENDLIST\n",
        b"ffconcat version 1.0\nfile 'other'\n",
        b"v=0\no=- 0 0 IN IP4 127.0.0.1\nm=audio 9 RTP/AVP 0\n",
        riff(b""),
        riff(pcm(tone(0.1)), rate=0),
        riff(pcm(tone(0.1)), rate=1),
        riff(pcm(tone(0.1)), channels=0),
        riff(pcm(tone(0.1)), channels=1000),
        riff(pcm(tone(0.1)), kind=0x5555),
    ],
)
def test_what_is_no_sound_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="file") as caught:
        read(tmp_path, data)
    assert caught.value.param == "file"


def test_a_list_of_other_files_does_not_open_them(tmp_path: Path) -> None:
    (tmp_path / "other.mp3").write_bytes(encoded(tone(), "mp3", "libmp3lame", form="fltp"))
    playlist = f"#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\n{tmp_path / 'other.mp3'}\n#EXT-X-ENDLIST\n"
    with pytest.raises(InvalidArgument, match="no sound file"):
        read(tmp_path, playlist.encode())


def test_a_picture_has_no_sound(tmp_path: Path) -> None:
    video = io.BytesIO()
    with av.open(video, "w", format="matroska") as file:
        stream = file.add_stream("mpeg4", rate=1)
        assert isinstance(stream, av.VideoStream)
        stream.width = stream.height = 32
        file.mux(stream.encode(av.VideoFrame(32, 32, "yuv420p")))
        file.mux(stream.encode(None))
    with pytest.raises(InvalidArgument, match="no sound in it"):
        read(tmp_path, video.getvalue())


def test_an_endless_file_ends_at_the_bound(tmp_path: Path) -> None:
    """Ten minutes of silence in a few kilobytes."""
    small = encoded(np.zeros(600 * RATE, np.float32), "flac", "flac")
    assert len(small) < 200_000
    path = tmp_path / "long"
    path.write_bytes(small)
    came = 0
    with pytest.raises(InvalidArgument, match="longer than"):
        for block in decode(path, longest=60):
            came += len(block)
    assert came <= 60 * RATE


def test_a_long_file_comes_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "long"
    path.write_bytes(wav(np.zeros(60 * RATE, np.float32)))
    assert max(len(block) for block in decode(path)) < RATE
    assert duration(path) == pytest.approx(60)
    path.write_bytes(b"nothing")
    assert duration(path) is None


def test_raw_sound_of_any_rate() -> None:
    assert from_pcm(pcm(tone())) == pytest.approx(tone(), abs=1e-3)
    assert len(from_pcm(pcm(tone()) + b"x")) == RATE
    assert pitch(from_pcm(pcm(tone(rate=24_000)), 24_000)) == 440
    assert len(from_pcm(b"", 24_000)) == 0
    with pytest.raises(InvalidArgument, match="rate"):
        from_pcm(b"", 5)
