"""Sound files of every usual kind, as samples that a model of speech takes.

Runs in engines' processes only: whoever sends a file decides what FFmpeg has to read, and a crash in there costs one
model, not the daemon.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemonade.errors import InvalidArgument

if TYPE_CHECKING:
    import av
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

#: Hz, as all models of speech here take it.
RATE = 16_000
#: What people send, as they know it.
ACCEPTED = "wav, mp3, m4a, mp4, aac, flac, ogg, opus, webm, mkv, aiff, caf, wma, amr"
#: FFmpeg's readers that may open a file. The others are left out on purpose: playlists, and lists of pictures or of
#: parts, would have it open further files and addresses.
_READERS = "wav,w64,mp3,mov,aac,flac,ogg,matroska,aiff,caf,asf,amr,ac3,eac3,au,ape,wv,avi,mpeg,mpegts,tta"
#: Hz between which a rate is taken for one; WAV headers can say anything.
_RATES = (1_000, 768_000)
_CHANNELS = 64
#: The value just above the loudest one, by the type of the samples; floats come scaled.
_FULL_SCALE = {"uint8": 1 << 7, "int16": 1 << 15, "int32": 1 << 31, "int64": 1 << 63}
#: Seconds of sound that are decoded of one file. A compressed file of silence can unpack to years.
LONGEST = 24 * 3600.0


def decode(path: Path, *, rate: int = RATE, longest: float = LONGEST) -> Iterator[Samples]:
    """The samples of a file, mixed to one channel, a block at a time as they are decoded.

    What is damaged inside is left out, and sizes that a header claims are not believed, as players do it.

    Args:
        rate: of the samples that come out, in Hz.
        longest: seconds of sound after which the file is refused.

    Raises:
        InvalidArgument: it is no sound, or holds none, or too much of it.
    """
    import av

    try:
        container = _opened(path)
    except (av.FFmpegError, ValueError):
        raise _refused(f"is no sound file that can be read; accepted are {ACCEPTED}") from None
    with container:
        if not container.streams.audio:
            raise _refused("has no sound in it")
        stream = container.streams.audio[0]
        _check(stream)
        left = int(longest * rate)
        found = False
        for block in _mixed(container, stream, rate):
            found = True
            left -= len(block)
            if left < 0:
                raise _refused(f"is longer than {longest / 3600:g} hours")
            yield block
        if not found:
            raise _refused("holds no samples")


def duration(path: Path) -> float | None:
    """Seconds that a file claims to last, None when it does not say. To show progress only: it may be wrong."""
    import av

    try:
        with _opened(path) as container:
            return container.duration / av.time_base if container.duration and container.duration > 0 else None
    except (av.FFmpegError, ValueError):
        return None


def from_pcm(data: bytes, rate: int = RATE, *, wanted: int = RATE) -> Samples:
    """Samples of raw sound: 16 bits each, signed, little-endian, one channel. An odd last byte is left out.

    Args:
        rate: of the raw sound, in Hz.
        wanted: of what comes out.

    Raises:
        InvalidArgument: nothing has such a rate.
    """
    import av
    import numpy as np

    low, high = _RATES
    if not low <= rate <= high:
        raise InvalidArgument(f"'rate' must be from {low} to {high} samples per second, not {rate}.", param="rate")
    samples = np.frombuffer(memoryview(data)[: len(data) & ~1], "<i2").astype(np.float32) / np.float32(32768)
    if rate == wanted or not len(samples):
        return samples
    frame = av.AudioFrame.from_ndarray(samples[None], format="fltp", layout="mono")
    frame.sample_rate = rate
    resampler = av.AudioResampler(format="fltp", layout="mono", rate=wanted)
    pieces = [*resampler.resample(frame), *resampler.resample(None)]
    return np.concatenate([piece.to_ndarray()[0] for piece in pieces])


def _opened(path: Path) -> av.container.InputContainer:
    import av

    # Up to version 18 a title that is no UTF-8 fails, unless this is said; later ones do not take it.
    more: Any = {"metadata_errors": "replace"} if int(av.__version__.partition(".")[0]) < 19 else {}
    opened: av.container.InputContainer = av.open(str(path), options={"format_whitelist": _READERS}, **more)
    return opened


def _check(stream: av.AudioStream) -> None:
    if stream.codec_context is None:
        raise _refused("is encoded in a way that is not known here")
    low, high = _RATES
    if not low <= stream.rate <= high:
        raise _refused(f"claims {stream.rate} samples per second; from {low} to {high} can be read")
    if not 1 <= stream.channels <= _CHANNELS:
        raise _refused(f"claims {stream.channels} channels; up to {_CHANNELS} can be read")


def _mixed(container: av.container.InputContainer, stream: av.AudioStream, rate: int) -> Iterator[Samples]:
    import av

    resampler: av.AudioResampler | None = None
    came = 0

    def drain(frame: av.AudioFrame | None) -> Iterator[Samples]:
        for piece in resampler.resample(frame) if resampler is not None else ():
            if piece.samples:
                yield piece.to_ndarray()[0]

    for frame in _frames(container, stream):
        mixed = av.AudioFrame.from_ndarray(_mono(frame)[None], format="fltp", layout="mono")
        mixed.sample_rate = frame.sample_rate
        if frame.sample_rate != came:
            # Streams may change in the middle, as those of a radio do.
            yield from drain(None)
            resampler = av.AudioResampler(format="fltp", layout="mono", rate=rate)
            came = frame.sample_rate
        yield from drain(mixed)
    yield from drain(None)


def _mono(frame: av.AudioFrame) -> Samples:
    """The mean of a frame's channels, from -1 to 1. FFmpeg's own mixer crashes on channels whose places it is not
    told, of which a WAV file may claim any number."""
    import numpy as np

    data = frame.to_ndarray()
    if frame.format.is_packed:
        data = data.reshape(-1, frame.layout.nb_channels).T
    scale = _FULL_SCALE.get(data.dtype.name, 1)
    mean = data.mean(axis=0, dtype=np.float64 if data.dtype.itemsize > 2 else np.float32)
    if data.dtype == np.uint8:
        mean = mean - 128
    made: Samples = np.divide(mean, scale).astype(np.float32)
    # A file may say anything, and a model makes of one NaN nothing but NaN.
    made[~np.isfinite(made)] = 0
    return made


def _frames(container: av.container.InputContainer, stream: av.AudioStream) -> Iterator[av.AudioFrame]:
    """What can be decoded, in its order; damaged packets are skipped."""
    import av

    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets)
        except StopIteration:
            return
        except av.FFmpegError:
            # The rest of the file is not what it began as.
            return
        try:
            yield from packet.decode()
        except av.FFmpegError:
            continue


def _refused(why: str) -> InvalidArgument:
    return InvalidArgument(f"The sound in 'file' cannot be used: it {why}.", param="file")
