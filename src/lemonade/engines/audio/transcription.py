"""What the processes of all engines for speech to text answer: `/transcribe` for files, `/pcm` for raw sound.

An engine gives a `Recognizer`; `operations_of` makes the rest of it.
"""

from __future__ import annotations

import dataclasses
import json
import queue
import re
import threading
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from lemonade.engines.audio.decode import RATE, decode, duration, from_pcm
from lemonade.engines.audio.stretches import FRAME, SILENCE, levels, stretches
from lemonade.engines.worker import Job, Operation, Reply, progress
from lemonade.errors import InvalidArgument

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Samples = npt.NDArray[np.float32]

#: What models write for sound in which nothing is said.
_NOTHING = re.compile(r"\W*(blank[_ ]audio|silence|no (speech|audio|sound))\W*", re.IGNORECASE)
#: Compression of a text beyond which its model has gone round in circles. Source: OpenAI's reference for Whisper.
CIRCULAR = 2.4
#: How much quieter than the loud frames of its stretch a frame of speech may be.
_QUIET = 0.03


@dataclass(slots=True)
class Word:
    """Attributes:
    start, end: seconds from the beginning of the recording.
    """

    word: str
    start: float
    end: float


@dataclass(slots=True)
class Segment:
    """Something that was said without a longer pause.

    Attributes:
        start, end: seconds from the beginning of the recording.
        seek: where the stretch that the model was given begins, in hundredths of a second.
        tokens: of the model's vocabulary; empty when the engine does not tell.
        avg_logprob: natural logarithm, mean over the tokens.
        compression_ratio: of the text by zlib; high when the model has gone round in circles.
        no_speech_prob: from 0 to 1, that nothing is said in it. When the engine does not tell (None), it becomes the
            part of the segment that is much quieter than speech around it.
    """

    start: float
    end: float
    text: str
    tokens: list[int] = field(default_factory=list)
    temperature: float = 0.0
    avg_logprob: float = 0.0
    words: list[Word] = field(default_factory=list)
    id: int = 0
    seek: int = 0
    compression_ratio: float = 0.0
    no_speech_prob: float | None = None

    def fields(self) -> dict[str, Any]:
        """As OpenAI documents a segment; the words stand elsewhere."""
        made = dataclasses.asdict(self)
        del made["words"]
        return made


@dataclass(frozen=True, slots=True)
class Task:
    """How a recording is to be transcribed.

    Attributes:
        language: a code of two or three letters, or `auto`.
        translate: into English.
        words: with the times of the words.
        live: somebody waits for the text of a few seconds; the model may be given no more than them to look at.
        draft: the text is soon replaced by a better one: what only makes it better now and then is left out.
        continues: the sound goes on where the last one ended.
    """

    language: str = "auto"
    prompt: str = ""
    temperature: float = 0.0
    translate: bool = False
    words: bool = False
    live: bool = False
    draft: bool = False
    continues: bool = False


class Recognizer(Protocol):
    """A loaded model.

    Attributes:
        longest: seconds of sound that it is given at once.
    """

    longest: float

    def recognize(self, samples: Samples, task: Task, job: Job, emit: Callable[[Segment], None]) -> str:
        """Calls `emit` with each segment as it is known, times counted from the first sample; gives the code of the
        language. Raises Cancelled when the client has left."""
        ...


@dataclass(slots=True)
class Transcript:
    """All that was said.

    Attributes:
        duration: of the recording, in seconds.
    """

    language: str
    duration: float = 0.0
    segments: list[Segment] = field(default_factory=list)

    def fields(self) -> dict[str, Any]:
        return {
            "text": "".join(segment.text for segment in self.segments).strip(),
            "language": self.language,
            "duration": round(self.duration, 3),
            "segments": [segment.fields() for segment in self.segments],
            "words": [dataclasses.asdict(word) for segment in self.segments for word in segment.words],
        }


def operations_of(recognizer: Recognizer) -> dict[str, Operation]:
    """`/transcribe` takes a JSON object with `path` and the fields of a `Task`, and answers with a transcript; with
    `?stream=1` in lines of JSON, `{"segment": …}` for each segment as it is known and `{"transcript": …}` at the end.

    `/pcm` takes raw sound (see `from_pcm`) with the query `rate`, `language` and `prompt`; with
    `draft=1` for a text that another one will replace.
    """

    def transcribe(job: Job) -> Any:
        asked = job.json()
        path = Path(asked.pop("path"))
        task = Task(**asked)
        if job.query.get("stream") == "1":
            return Reply(_lines(recognizer, path, task, job), "application/x-ndjson")
        return _transcribed(recognizer, path, task, job, lambda segment: None).fields()

    def pcm(job: Job) -> Any:
        rate = job.query.get("rate", str(RATE))
        if not rate.isdecimal():
            raise InvalidArgument(f"'rate' must be a whole number of samples per second, not {rate!r}.", param="rate")
        task = Task(
            language=job.query.get("language") or "auto",
            prompt=job.query.get("prompt", ""),
            live=True,
            draft=job.query.get("draft") == "1",
        )
        transcript = Transcript(_known(task))
        _add(recognizer, transcript, from_pcm(job.body, int(rate)), task, job, lambda segment: None)
        return transcript.fields()

    return {"/transcribe": transcribe, "/pcm": pcm}


def _lines(recognizer: Recognizer, path: Path, task: Task, job: Job) -> Iterator[bytes]:
    """The engine calls back with its segments, from a thread of its own so that they can leave meanwhile."""
    came: queue.SimpleQueue[Segment | Transcript | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            came.put(_transcribed(recognizer, path, task, job, came.put))
        except BaseException as error:  # noqa: BLE001 - it is raised by the reader
            came.put(error)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        while not isinstance(one := came.get(), Transcript):
            if isinstance(one, BaseException):
                raise one
            yield json.dumps({"segment": one.fields()}, ensure_ascii=False).encode() + b"\n"
        yield json.dumps({"transcript": one.fields()}, ensure_ascii=False).encode() + b"\n"
    finally:
        worker.join()


def _transcribed(
    recognizer: Recognizer, path: Path, task: Task, job: Job, tell: Callable[[Segment], None]
) -> Transcript:
    transcript = Transcript(_known(task))
    claimed = duration(path)

    def blocks() -> Iterator[Samples]:
        for block in decode(path):
            job.check()
            yield block

    for begin, samples in stretches(blocks(), recognizer.longest):
        if begin:
            of = f" of {claimed:.0f}" if claimed else ""
            progress(f"transcribed {begin:.0f}{of} s")
        _add(recognizer, transcript, samples, task, job, tell)
        if transcript.segments:
            # What was found out at the beginning holds for the rest, and is not looked for again.
            task = dataclasses.replace(task, language=transcript.language, continues=True)
    return transcript


def _known(task: Task) -> str:
    return "" if task.language == "auto" else task.language


def _add(
    recognizer: Recognizer,
    transcript: Transcript,
    samples: Samples,
    task: Task,
    job: Job,
    tell: Callable[[Segment], None],
) -> None:
    """Recognizes a stretch that follows what is in the transcript already."""
    begin = transcript.duration
    loudness = levels(samples)
    transcript.duration += len(samples) / RATE
    if not len(loudness) or loudness.max() < SILENCE:
        return
    speech = float(sorted(loudness)[int(len(loudness) * 0.95)])

    def emit(segment: Segment) -> None:
        part = loudness[int(segment.start / FRAME) : max(int(segment.end / FRAME), int(segment.start / FRAME) + 1)]
        if not segment.text.strip() or _NOTHING.fullmatch(segment.text) or (len(part) and part.max() < SILENCE):
            return
        segment.text = segment.text.rstrip()
        if segment.no_speech_prob is None:
            segment.no_speech_prob = round(float((part < speech * _QUIET).mean()), 4) if len(part) else 0.0
        segment.compression_ratio = round(_ratio(segment.text), 4)
        segment.id = len(transcript.segments)
        segment.seek = round(begin * 100)
        timed: list[Segment | Word] = [segment, *segment.words]
        for one in timed:
            one.start = round(min(begin + one.start, transcript.duration), 3)
            one.end = round(min(begin + one.end, transcript.duration), 3)
        transcript.segments.append(segment)
        tell(segment)

    transcript.language = recognizer.recognize(samples, task, job, emit)


def is_circular(text: str) -> bool:
    """Whether a model has repeated itself: such text is easy to compress."""
    return _ratio(text) > CIRCULAR


def _ratio(text: str) -> float:
    data = text.encode()
    return len(data) / len(zlib.compress(data))
