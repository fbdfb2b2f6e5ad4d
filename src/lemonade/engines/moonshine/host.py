"""Moonshine's library, in the engine's process. See `engines/worker.py`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from moonshine_voice.errors import MoonshineError
from moonshine_voice.moonshine_api import ModelArch
from moonshine_voice.transcriber import Transcriber

from lemonade.engines.audio.decode import RATE
from lemonade.engines.audio.transcription import Segment, Task, Word, operations_of
from lemonade.engines.worker import Job, Operation
from lemonade.errors import EngineError, LemonadeError, UnsupportedOperation

if TYPE_CHECKING:
    import numpy.typing as npt

#: Seconds after which the process ends with a job whose client has left. The library cannot be stopped, and is quick
#: to load.
GRACE = 2.0
#: The same for a piece of live speech, which is short: those who speak on would have to wait for a new process.
LIVE_GRACE = 20.0
#: Seconds that the library is given at least; what is shorter is followed by silence. Of a few hundredths that it takes
#: for voice its model makes a failure.
SHORTEST = 1.0


class Moonshine:
    """A loaded model.

    Args:
        config: `model` (folder), `arch` (number of the architecture), `language` (a code), `words` (whether the model
            knows when each word was said), `options` (the library's own).

    Raises:
        LemonadeError: the folder holds no model that the library can open.
    """

    longest = 60.0

    def __init__(self, config: Mapping[str, Any]) -> None:
        self._language = config["language"]
        self._knows_words = config["words"]
        # The samples of each line would be handed back, one Python number each.
        options = {"return_audio_data": "false", **config["options"]}
        if self._knows_words:
            options["word_timestamps"] = "true"
        try:
            self._transcriber = Transcriber(config["model"], ModelArch(config["arch"]), options=options)
        except (MoonshineError, ValueError) as error:
            raise LemonadeError(f"Moonshine cannot open {config['model']}: {error}") from None

    def recognize(self, samples: npt.NDArray[np.float32], task: Task, job: Job, emit: Callable[[Segment], None]) -> str:
        if task.translate:
            raise UnsupportedOperation("Moonshine models do not translate; Whisper models do.")
        if task.words and not self._knows_words:
            raise UnsupportedOperation(
                "This model does not know when each word was said; ask for segments, or use a Whisper model."
            )
        if task.language not in ("auto", self._language) and not task.continues:
            print(f"the model knows {self._language!r} only, not {task.language!r}", file=sys.stderr, flush=True)
        padded = np.pad(samples, (0, max(int(SHORTEST * RATE) - len(samples), 0)))
        try:
            with job.unstoppable(LIVE_GRACE if task.live else GRACE):
                heard = self._transcriber.transcribe_without_streaming(padded.tolist(), RATE)
        except MoonshineError as error:
            raise EngineError(f"Moonshine gave up: {error}") from None
        ends = (*(line.start_time for line in heard.lines[1:]), float("inf"))
        # There is no line where no voice was found; then there is an end too many.
        for line, end in zip(heard.lines, ends, strict=False):
            emit(
                Segment(
                    start=line.start_time,
                    # A line is given a little of the sound around it, which is the next one's already.
                    end=min(line.start_time + line.duration, end),
                    text=f" {line.text.strip()}",
                    words=[Word(word.word.strip(), word.start, word.end) for word in line.words or ()],
                )
            )
        return str(self._language)


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """See `engines/worker.py`."""
    return operations_of(Moonshine(config))
