"""Kokoro's network: numbers of phonemes in, sound out, by ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemonade.engines.kokoro.layout import Layout, voice_names
from lemonade.engines.kokoro.phonemes import vocabulary
from lemonade.errors import ModelLoadError

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from lemonade.engines.kokoro.voices import Blend

    Samples = npt.NDArray[np.float32]

#: Samples per second of what comes out.
RATE = 24_000
#: Phonemes that go in at once. Source: `max_position_embeddings` of the model's description, less one at each end.
MOST_PHONEMES = 510
#: Numbers that describe a voice, for each count of phonemes.
_STYLE = 256
#: Rates of speech between which the network keeps to what it is asked; beyond, its shortest sounds get no shorter and
#: its pauses no longer.
SLOWEST, FASTEST = 0.5, 1.5

#: Parts of the loudest sample below which there is silence at the ends.
_SILENCE = 0.01
#: Samples that are looked at together for it, and that stay around the sound.
_WINDOW, _MARGIN = 240, 720


class Stop:
    """Ends computations, from any thread and within milliseconds; those that begin later end at once, too."""

    def __init__(self) -> None:
        import onnxruntime

        self.options = onnxruntime.RunOptions()

    def set(self) -> None:
        self.options.terminate = True


class Network:
    """One model with its voices.

    Args:
        threads: that compute one piece.

    Raises:
        ModelLoadError: a file is not what it should be.
    """

    def __init__(self, layout: Layout, threads: int) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        # Threads that wait by spinning take the cores from everything else, and with two cores from one another.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # The library's arena keeps what the longest piece took for each thread that ever spoke one: more than a
        # gigabyte, and no gain in speed.
        options.enable_cpu_mem_arena = False
        onnxruntime.set_default_logger_severity(3)
        try:
            self._session = onnxruntime.InferenceSession(str(layout.model), options, ["CPUExecutionProvider"])
        except Exception as error:
            # The library's own exceptions have no common root that it names.
            raise ModelLoadError(f"ONNX Runtime cannot open {layout.model.name}: {error}") from error
        inputs = {one.name: one for one in self._session.get_inputs()}
        self._tokens = "input_ids" if "input_ids" in inputs else "tokens"
        if not {self._tokens, "style", "speed"} <= inputs.keys():
            raise ModelLoadError(f"{layout.model.name} is no Kokoro model: it takes {', '.join(inputs)}")
        self._types = {name: _numpy_type(one.type) for name, one in inputs.items()}
        self.vocabulary: Mapping[str, int] = vocabulary(layout.vocabulary)
        self.voices = voice_names(layout.voices)
        self._source = layout.voices
        self._styles: dict[str, Samples] = {}

    def speak(self, phonemes: str, voice: Blend, speed: float, stop: Stop | None = None) -> Samples:
        """The sound of up to `MOST_PHONEMES` phonemes, silence at both ends cut off. May be called from several
        threads at once.

        Args:
            speed: 1 is the voice's own.
            stop: makes it raise an exception of ONNX Runtime's once it is set.
        """
        import numpy as np

        numbers = [self.vocabulary[one] for one in phonemes if one in self.vocabulary]
        rate = min(max(speed, SLOWEST), FASTEST)
        feed = {
            self._tokens: np.array([[0, *numbers, 0]], dtype=self._types[self._tokens]),
            "style": self._style(voice, len(numbers)).astype(self._types["style"]),
            "speed": np.array([rate], dtype=self._types["speed"]),
        }
        sound = self._session.run(None, feed, stop and stop.options)[0].ravel().astype(np.float32)
        return _stretched(_trimmed(sound), speed / rate)

    def _style(self, voice: Blend, count: int) -> Samples:
        """The voice's description for so many phonemes, one row."""
        rows = [share * self._table(name)[min(count, MOST_PHONEMES) - 1] for name, share in voice.parts]
        mixed: Samples = sum(rows[1:], rows[0])
        return mixed.reshape(1, _STYLE)

    def _table(self, name: str) -> Samples:
        if name not in self._styles:
            self._styles[name] = _read_voice(self._source, name)
        return self._styles[name]


def _read_voice(source: Path, name: str) -> Samples:
    import numpy as np

    if source.is_dir():
        table = np.fromfile(source / f"{name}.bin", dtype="<f4")
    else:
        with np.load(source, allow_pickle=False) as archive:
            table = archive[name].astype(np.float32)
    if table.size != MOST_PHONEMES * _STYLE:
        raise ValueError(f"the voice {name} has {table.size} numbers, not {MOST_PHONEMES * _STYLE}")
    made: Samples = table.reshape(MOST_PHONEMES, _STYLE)
    return made


def _numpy_type(onnx: str) -> Any:
    import numpy as np

    types = {"tensor(float)": np.float32, "tensor(float16)": np.float16, "tensor(int32)": np.int32}
    return types.get(onnx, np.int64)


def _trimmed(sound: Samples) -> Samples:
    """The sound without the silence around it, which differs from piece to piece."""
    import numpy as np

    whole = len(sound) // _WINDOW * _WINDOW
    loudness = np.abs(sound[:whole]).reshape(-1, _WINDOW).max(axis=1)
    heard = np.flatnonzero(loudness > _SILENCE * loudness.max(initial=0.0))
    if not len(heard):
        return sound[:0]
    return sound[max(heard[0] * _WINDOW - _MARGIN, 0) : (heard[-1] + 1) * _WINDOW + _MARGIN]


def _stretched(sound: Samples, tempo: float) -> Samples:
    """The sound at another tempo and the same pitch."""
    if abs(tempo - 1) < 0.01 or not len(sound):
        return sound
    import av
    import numpy as np

    graph = av.filter.Graph()
    source = graph.add_abuffer(sample_rate=RATE, format="flt", layout="mono")
    stretch = graph.add("atempo", f"{tempo:.4f}")
    sink = graph.add("abuffersink")
    source.link_to(stretch)
    stretch.link_to(sink)
    graph.configure()
    frame = av.AudioFrame.from_ndarray(sound[None], format="flt", layout="mono")
    frame.sample_rate = RATE
    source.push(frame)
    source.push(None)
    parts: list[Samples] = []
    while True:
        try:
            out = sink.pull()
            assert isinstance(out, av.AudioFrame)
            parts.append(out.to_ndarray()[0])
        except (av.EOFError, av.BlockingIOError):
            return np.concatenate(parts) if parts else sound[:0]


def padded(sound: Samples, seconds: float) -> Samples:
    """The sound with silence behind it."""
    import numpy as np

    return np.concatenate([sound, np.zeros(int(seconds * RATE), dtype=np.float32)])
