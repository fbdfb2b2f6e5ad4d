"""Recordings as text: what an engine is asked, and its answer in the forms that clients want."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from lemonade.errors import EngineReplied, EngineSilent, UnsupportedOperation
from lemonade.inference import languages
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import DONE, MAX_ERROR, Heartbeat, Sink
from lemonade.inference.subtitles import srt, vtt

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease
    from lemonade.system.metrics import Measurement

ResponseFormat = Literal["json", "verbose_json", "text", "srt", "vtt"]
Granularity = Literal["word", "segment"]

JSON = b"application/json"
PLAIN = b"text/plain; charset=utf-8"


class Word(msgspec.Struct):
    """Times in seconds."""

    word: str
    start: float
    end: float


class Segment(msgspec.Struct):
    """Something that was said without a longer pause, with the fields that OpenAI documents; times in seconds."""

    id: int
    seek: int
    start: float
    end: float
    text: str
    tokens: list[int]
    temperature: float
    avg_logprob: float
    compression_ratio: float
    no_speech_prob: float


class Transcript(msgspec.Struct):
    """All that was said.

    Attributes:
        language: a code, `""` when nothing was said.
        duration: of the recording, in seconds.
    """

    text: str
    language: str
    duration: float
    segments: list[Segment]
    words: list[Word]


class _Line(msgspec.Struct):
    """What the engine sends: segments as they are known, and in the end the whole."""

    segment: Segment | None = None
    transcript: Transcript | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """How a recording is to be transcribed.

    Attributes:
        language: a code, or `auto`.
        translate: into English.
        words: with the times of the words.
    """

    language: str = languages.AUTO
    prompt: str = ""
    temperature: float = 0.0
    translate: bool = False
    words: bool = False


def check_model(model: Model, *, translate: bool = False) -> None:
    """Asked before the model is loaded.

    Raises:
        UnsupportedOperation: it does not turn speech into text.
    """
    if model.mode != "transcription":
        what = "translation" if translate else "transcription"
        raise UnsupportedOperation(f"Audio {what} not supported by {model.recipe}", param="model")


class Transcribing:
    """The work of one recording.

    Args:
        path: of the recording, which the engine reads itself.
        sink: gets each segment as an event as soon as it is known, and at the end the whole; None when only the whole
            is wanted.
        verbose: makes the last event's further fields of the transcript, if the events are to have any.
    """

    measurement: Measurement | None = None

    def __init__(
        self,
        path: Path,
        wish: Wish,
        sink: Sink | None = None,
        verbose: Callable[[Transcript], dict[str, Any]] | None = None,
    ) -> None:
        self._body = msgspec.json.encode({"path": str(path), **asdict(wish)})
        self._sink = sink
        self._verbose = verbose
        self._transcript: Transcript | None = None
        self.passed_on = False

    @property
    def transcript(self) -> Transcript:
        """The answer, once the work is done."""
        assert self._transcript is not None
        return self._transcript

    async def run(self, lease: Lease) -> None:
        if self._sink is None:
            async for _ in self._segments(lease):
                pass
            return
        with Heartbeat(self._sink) as heart:
            async for segment in self._segments(lease):
                delta = segment.text if self.passed_on else segment.text.lstrip()
                times = {"start": segment.start, "end": segment.end} if self._verbose else {}
                await self._send(self._sink, heart, {"type": "transcript.text.delta", "delta": delta, **times})
            more = self._verbose(self.transcript) if self._verbose else {}
            done = {"type": "transcript.text.done", "text": self.transcript.text, **more}
            await self._send(self._sink, heart, done)
        await self._sink.end(DONE)

    async def _send(self, sink: Sink, heart: Heartbeat, event: dict[str, Any]) -> None:
        await heart.settle()
        heart.reset()
        if not sink.started:
            await sink.start()
        self.passed_on = True
        await sink.write(b"data: " + msgspec.json.encode(event) + b"\n\n")

    async def _segments(self, lease: Lease) -> AsyncIterator[Segment]:
        """The segments as the engine sends them. It is always asked for a stream: what comes shows that a long
        recording is being worked on."""
        engine = lease.resident.launch.name
        headers = {"content-type": JSON.decode()}
        reply = await lease.connection.request("POST", "/transcribe?stream=1", self._body, headers)
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), engine)
            held = b""
            while chunk := await reply.chunk():
                lease.touch()
                *lines, held = (held + chunk).split(b"\n")
                for line in map(_read, lines):
                    if line.segment is not None:
                        yield line.segment
                    if line.transcript is not None:
                        self._transcript = line.transcript
        finally:
            reply.close()
        if self._transcript is None:
            raise EngineSilent(f"{engine} closed its answer before the recording was transcribed.")


def _read(line: bytes) -> _Line:
    try:
        return msgspec.json.decode(line, type=_Line)
    except msgspec.MsgspecError as error:
        raise EngineReplied(f"The engine's answer lacks what it must have: {error}.", status=502) from None


def rendered(
    transcript: Transcript, form: ResponseFormat, granularities: Sequence[Granularity] = (), *, translated: bool = False
) -> tuple[bytes, bytes]:
    """The body of the answer, and its media type."""
    if form == "text":
        return f"{transcript.text}\n".encode(), PLAIN
    if form == "srt":
        return srt(transcript.segments).encode(), PLAIN
    if form == "vtt":
        return vtt(transcript.segments).encode(), PLAIN
    if form == "verbose_json":
        return msgspec.json.encode(verbose(transcript, granularities, translated=translated)), JSON
    return msgspec.json.encode({"text": transcript.text, "usage": _usage(transcript)}), JSON


def verbose(
    transcript: Transcript, granularities: Sequence[Granularity] = (), *, translated: bool = False
) -> dict[str, Any]:
    """The fields of `verbose_json`."""
    made: dict[str, Any] = {
        "task": "translate" if translated else "transcribe",
        "language": "english" if translated else languages.name(transcript.language),
        "duration": transcript.duration,
        "text": transcript.text,
    }
    if "segment" in granularities or not granularities:
        made["segments"] = transcript.segments
    if "word" in granularities:
        made["words"] = transcript.words
    return {**made, "usage": _usage(transcript)}


def _usage(transcript: Transcript) -> dict[str, Any]:
    return {"type": "duration", "seconds": transcript.duration}
