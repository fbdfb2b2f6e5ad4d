"""faster-whisper as a library, in the engine's process. See `engines/worker.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from faster_whisper import WhisperModel
from faster_whisper.feature_extractor import FeatureExtractor

from lemonade.engines.audio.decode import RATE
from lemonade.engines.audio.live import hear, window
from lemonade.engines.audio.transcription import Segment, Task, Word, operations_of
from lemonade.engines.worker import Job, Operation
from lemonade.errors import InvalidArgument, LemonadeError, UnsupportedOperation

if TYPE_CHECKING:
    import numpy.typing as npt

#: Seconds in which something may be said.
SHORTEST = 0.1
#: Seconds after which the process ends with a job whose client has left, when the library does not come to the end of
#: a window: within one of a large model.
GRACE = 10.0
#: Frames of the spectrogram per second, and in a window. Source: the Whisper paper.
FRAMES_PER_SECOND, FRAMES = 100, 3000
#: Temperatures that are tried one after the other grow by this up to 1. Source: OpenAI's reference for Whisper.
WARMER = 0.2
#: Tokens of what was said before that the model can be given, and the temperature above which it is better not.
MEMORY, WILD = 223, 0.5


class Model(WhisperModel):  # type: ignore[misc]
    """The library's model, which can also look through a shorter window, and stop.

    Attributes:
        frames: of the window.
        check: called before each window; what it raises ends the work.
    """

    frames = FRAMES
    _made: Any = None
    _kept: Any = None

    def begin(self, frames: int, check: Callable[[], None]) -> None:
        self.frames = frames
        self.check = check
        self._kept = None

    def encode(self, features: npt.NDArray[np.float32]) -> Any:
        self.check()
        # The window in which the language was found is the first one that is written down.
        kept, self._kept = self._kept, None
        self._made = kept if kept is not None else super().encode(features[..., : self.frames])
        return self._made

    def detect_language(self, *args: Any, **more: Any) -> Any:
        found = super().detect_language(*args, **more)
        self._kept = self._made
        return found


class FasterWhisper:
    """A loaded model.

    Args:
        config: `model` (folder), `threads`, `compute_type`, `language` (or `auto`), `options` (what the library's
            `transcribe` is told with each request).

    Raises:
        LemonadeError: the folder holds no model that the library can open.
    """

    longest = 300.0

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._config = config
        self._said: list[int] = []
        try:
            self._model = Model(
                config["model"],
                device="cpu",
                compute_type=config["compute_type"],
                cpu_threads=config["threads"],
                local_files_only=True,
            )
        except Exception as error:  # noqa: BLE001 - the library and its own libraries raise what they like
            raise LemonadeError(f"faster-whisper cannot open {config['model']}: {error}") from None
        bands = self._model.model.n_mels
        if len(self._model.feature_extractor.mel_filters) != bands:
            # The file that says so is missing in some conversions.
            self._model.feature_extractor = FeatureExtractor(feature_size=bands)
        self._multilingual = bool(self._model.model.is_multilingual)

    def recognize(self, samples: npt.NDArray[np.float32], task: Task, job: Job, emit: Callable[[Segment], None]) -> str:
        if task.translate and not self._multilingual:
            raise UnsupportedOperation("This model understands English only; there is nothing to translate.")
        language = self._wanted(task.language)
        if len(samples) < SHORTEST * RATE:
            return language or ""
        return hear(lambda task, emit: self._run(samples, task, language, job, emit), task, emit)

    def _run(
        self,
        samples: npt.NDArray[np.float32],
        task: Task,
        language: str | None,
        job: Job,
        emit: Callable[[Segment], None],
    ) -> str:
        self._model.begin(int(window(len(samples) / RATE, task) * FRAMES_PER_SECOND), job.check)
        options = {
            # The library's five are worth the third that they take more, unless somebody waits for each word.
            **({"beam_size": 1} if task.live else {}),
            **self._config["options"],
            "language": language,
            "task": "translate" if task.translate else "transcribe",
            "word_timestamps": task.words,
            "initial_prompt": self._before(task),
            "temperature": _temperatures(task),
        }
        self._said = []
        with job.unstoppable(GRACE):
            segments, info = self._model.transcribe(samples, **options)
            for one in segments:
                job.check()
                if one.temperature <= WILD:
                    self._said = [*self._said, *one.tokens][-MEMORY:]
                emit(_segment(one))
        return str(info.language)

    def _wanted(self, language: str) -> str | None:
        """None when it has to be found out."""
        if not self._multilingual:
            if language not in ("auto", "en"):
                print(f"the model knows English only, not {language!r}", file=sys.stderr, flush=True)
            return "en"
        if language == "auto":
            language = self._config["language"]
        known = language in self._model.supported_languages
        # Models of different ages know different ones.
        if language != "auto" and not (known and self._model.hf_tokenizer.token_to_id(f"<|{language}|>")):
            raise InvalidArgument(f"'language' must be a code such as `en` or `de`, not {language!r}", param="language")
        return None if language == "auto" else language

    def _before(self, task: Task) -> list[int]:
        """The tokens that stand before what is said."""
        told = str(task.prompt or self._config["options"].get("initial_prompt") or "").strip()
        tokens = self._model.hf_tokenizer.encode(f" {told}", add_special_tokens=False).ids if told else []
        follows = task.continues and self._config["options"].get("condition_on_previous_text", True)
        return [*tokens, *self._said] if follows else list(tokens)


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """See `engines/worker.py`."""
    return operations_of(FasterWhisper(config))


def _temperatures(task: Task) -> list[float]:
    """Those that are tried until the text looks right."""
    if task.draft:
        return [task.temperature]
    count = int((1 - task.temperature) / WARMER + 1e-6)
    return [round(task.temperature + WARMER * step, 3) for step in range(count + 1)]


def _segment(one: Any) -> Segment:
    return Segment(
        start=one.start,
        end=one.end,
        text=one.text,
        tokens=list(one.tokens),
        temperature=one.temperature,
        avg_logprob=round(float(one.avg_logprob), 4),
        no_speech_prob=round(float(one.no_speech_prob), 4),
        words=[Word(word.word.strip(), float(word.start), float(word.end)) for word in one.words or ()],
    )
