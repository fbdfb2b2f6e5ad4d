"""whisper.cpp as a library, in the engine's process. See `engines/worker.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import _pywhispercpp as whisper
import numpy as np

from lemonade.engines.audio.decode import RATE
from lemonade.engines.audio.live import hear, window
from lemonade.engines.audio.transcription import Segment, Task, Word, operations_of
from lemonade.engines.worker import Job, Operation
from lemonade.errors import EngineError, InvalidArgument, LemonadeError, UnsupportedOperation

if TYPE_CHECKING:
    import numpy.typing as npt

#: Steps of the model per second. Source: the Whisper paper.
STEPS_PER_SECOND = 50
#: Seconds in which something may be said, and seconds that the library needs to hear anything at all.
SHORTEST, PADDED = 0.1, 1.1
#: Seconds after which the process ends with a job whose client has left, when the library does not come to a place
#: where it can stop: within one window of a large model.
GRACE = 10.0
#: Levels of the library's log.
WARN, ERROR = 3, 4
#: Languages that are written without spaces; a token is a word of theirs.
UNSPACED = frozenset({"zh", "ja", "th", "lo", "my", "yue", "km", "bo"})


class Whisper:
    """A loaded model.

    Args:
        config: `model` (path); `context`, `params` and `vad` (attributes of the library's parameters), `beams` and
            `best_of` (0 or None: the library's own).

    Raises:
        LemonadeError: the file is none that the library can open.
    """

    longest = 300.0

    def __init__(self, config: Mapping[str, Any]) -> None:
        failures: list[str] = []
        self._context: Any = None

        def log(level: int, text: str) -> None:
            if level in (WARN, ERROR):
                print(text.rstrip(), file=sys.stderr, flush=True)
            if level == ERROR and self._context is None:
                failures.append(text.strip())

        whisper.whisper_log_set(log)
        context = whisper.whisper_context_default_params()
        for name, value in config.get("context", {}).items():
            setattr(context, name, value)
        self._config = config
        self._context = whisper.whisper_init_from_file_with_params(config["model"], context)
        if failures:
            # What the library gives then is no context, and no question to it comes back.
            raise LemonadeError(
                f"whisper.cpp cannot read the model, which must be whole and in the ggml format: {failures[0]}"
            )
        self._multilingual = bool(whisper.whisper_is_multilingual(self._context))
        self._end = whisper.whisper_token_eot(self._context)

    def recognize(self, samples: npt.NDArray[np.float32], task: Task, job: Job, emit: Callable[[Segment], None]) -> str:
        if len(samples) < SHORTEST * RATE:
            return "" if task.language == "auto" else task.language
        hear(lambda task, emit: self._run(samples, task, job, emit), task, emit)
        return self._language()

    def _run(self, samples: npt.NDArray[np.float32], task: Task, job: Job, emit: Callable[[Segment], None]) -> None:
        params = self._params(task, len(samples) / RATE)
        told = 0
        failure: Exception | None = None

        def tell(*_: Any) -> None:
            nonlocal told, failure
            try:
                while told < whisper.whisper_full_n_segments(self._context):
                    emit(self._segment(told, task))
                    told += 1
            except Exception as error:  # noqa: BLE001 - the library in between knows no exceptions
                failure = error

        whisper.assign_abort_callback(params, lambda *_: failure is not None or job.cancelled)
        whisper.assign_new_segment_callback(params, tell)
        padded = np.zeros(max(len(samples), int(PADDED * RATE)), np.float32)
        padded[: len(samples)] = samples
        try:
            with job.unstoppable(GRACE):
                status = whisper.whisper_full(self._context, params, padded, padded.size)
        finally:
            whisper.clear_abort_callback(params)
            whisper.clear_new_segment_callback(params)
        job.check()
        if failure is not None:
            raise failure
        if status != 0:
            raise EngineError(f"whisper.cpp gave up with the status {status}.")

    def _params(self, task: Task, seconds: float) -> Any:
        beams = self._config.get("beams", 0)
        strategy = whisper.whisper_sampling_strategy
        chosen = strategy.WHISPER_SAMPLING_BEAM_SEARCH if beams > 1 else strategy.WHISPER_SAMPLING_GREEDY
        params = whisper.whisper_full_default_params(chosen)
        params.print_progress = False
        if beams > 1:
            params.beam_search = {"beam_size": beams, "patience": -1.0}
        if best_of := self._config.get("best_of"):
            params.greedy = {"best_of": best_of}
        for name, value in self._config.get("params", {}).items():
            setattr(params, name, value)
        if wishes := self._config.get("vad"):
            activity = params.vad_params
            for name, value in wishes.items():
                setattr(activity, name, value)
            params.vad_params = activity
        if task.translate and not self._multilingual:
            raise UnsupportedOperation("This model understands English only; there is nothing to translate.")
        params.language = self._wanted(task.language)
        params.translate = task.translate or params.translate
        if task.prompt:
            params.initial_prompt = task.prompt
        if task.temperature:
            params.temperature = task.temperature
        params.token_timestamps = task.words
        params.no_context = not task.continues
        if task.draft:
            params.temperature_inc = 0.0
        if task.live and not params.audio_ctx:
            params.audio_ctx = int(window(seconds, task) * STEPS_PER_SECOND)
        return params

    def _wanted(self, language: str) -> str:
        if not self._multilingual:
            if language not in ("auto", "en"):
                print(f"the model knows English only, not {language!r}", file=sys.stderr, flush=True)
            return "en"
        if language == "auto":
            language = self._config.get("params", {}).get("language", "auto")
        if language != "auto" and whisper.whisper_lang_id(language) < 0:
            raise InvalidArgument(f"'language' must be a code such as `en` or `de`, not {language!r}", param="language")
        # An empty one is looked for in the sound.
        return "" if language == "auto" else language

    def _language(self) -> str:
        if not self._multilingual:
            return "en"
        return str(whisper.whisper_lang_str(whisper.whisper_full_lang_id(self._context)))

    def _segment(self, index: int, task: Task) -> Segment:
        context = self._context
        count = whisper.whisper_full_n_tokens(context, index)
        tokens = [whisper.whisper_full_get_token_data(context, index, place) for place in range(count)]
        said = [token for token in tokens if token.id < self._end]
        return Segment(
            start=whisper.whisper_full_get_segment_t0(context, index) / 100,
            end=whisper.whisper_full_get_segment_t1(context, index) / 100,
            text=whisper.whisper_full_get_segment_text(context, index).decode("utf-8", "replace"),
            tokens=[token.id for token in tokens],
            temperature=task.temperature,
            avg_logprob=round(sum(token.plog for token in said) / len(said), 4) if said else 0.0,
            words=self._words(said) if task.words else [],
        )

    def _words(self, tokens: list[Any]) -> list[Word]:
        """Tokens put together up to the next space; characters may be spread over several tokens."""
        unspaced = self._language() in UNSPACED
        made: list[Word] = []
        text = b""
        for token in tokens:
            piece = whisper.whisper_token_to_bytes(self._context, token.id)
            begins = piece.startswith(b" ") or (unspaced and _is_whole(text))
            if made and not begins:
                text += piece
                made[-1].end = max(made[-1].end, token.t1 / 100)
            else:
                text = piece
                made.append(Word("", token.t0 / 100, token.t1 / 100))
            made[-1].word = text.decode("utf-8", "replace").strip()
        return [word for word in made if word.word]


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """See `engines/worker.py`."""
    return operations_of(Whisper(config))


def _is_whole(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
