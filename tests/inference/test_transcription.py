"""The way of a transcript from an engine's lines to the client, without an engine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import EngineReplied, EngineSilent, UnsupportedOperation
from lemonade.inference.transcription import Segment, Transcribing, Transcript, Wish, Word, check_model, rendered
from lemonade.model import Model

SEGMENT = {
    "id": 0,
    "seek": 0,
    "start": 0.0,
    "end": 1.5,
    "text": " Hello",
    "tokens": [1, 2],
    "temperature": 0.0,
    "avg_logprob": -0.1,
    "compression_ratio": 0.8,
    "no_speech_prob": 0.0,
}
SECOND = {**SEGMENT, "id": 1, "start": 1.5, "end": 3.0, "text": " world."}
WHOLE = {"text": "Hello world.", "language": "en", "duration": 3.0, "segments": [SEGMENT, SECOND], "words": []}
LINES = b"".join(
    json.dumps(line).encode() + b"\n" for line in ({"segment": SEGMENT}, {"segment": SECOND}, {"transcript": WHOLE})
)


class Reply:
    def __init__(self, status: int, body: bytes, size: int) -> None:
        self.status = status
        self.closed = False
        self._pieces = [body[at : at + size] for at in range(0, len(body), size)]

    async def chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""

    async def read(self, limit: int | None = None) -> bytes:
        return b"".join(self._pieces)

    def close(self) -> None:
        self.closed = True


class Lease:
    """A lease, its connection, its resident and its launch in one."""

    name = "whisper.cpp"

    def __init__(self, body: bytes = LINES, *, status: int = 200, size: int = 1 << 20) -> None:
        self.connection = self.resident = self.launch = self
        self.reply = Reply(status, body, size)
        self.asked: dict[str, Any] = {}
        self.touched = 0

    async def request(self, method: str, path: str, body: bytes, headers: Mapping[str, str]) -> Reply:
        assert (method, path) == ("POST", "/transcribe?stream=1")
        self.asked = json.loads(body)
        return self.reply

    def touch(self) -> None:
        self.touched += 1


class Sink:
    def __init__(self) -> None:
        self.started = False
        self.data = b""
        self.ended = False

    async def start(self) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        self.data += data

    async def end(self, data: bytes = b"") -> None:
        self.data += data
        self.ended = True

    async def reply(self, body: bytes) -> None:
        raise AssertionError

    @property
    def events(self) -> list[Any]:
        assert self.data.endswith(b"data: [DONE]\n\n")
        lines = [one.removeprefix(b"data: ") for one in self.data.split(b"\n\n")[:-2]]
        return [json.loads(line) for line in lines]


async def run(work: Transcribing, lease: Lease) -> None:
    await work.run(lease)  # type: ignore[arg-type]
    assert lease.reply.closed


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
async def test_lines_may_be_cut_anywhere(size: int) -> None:
    lease = Lease(size=size)
    work = Transcribing(Path("/tmp/upload"), Wish(language="de", prompt="x", temperature=0.5, words=True))
    await run(work, lease)
    assert work.transcript.text == "Hello world."
    assert not work.passed_on
    assert lease.touched >= 1
    assert lease.asked == {
        "path": "/tmp/upload",
        "language": "de",
        "prompt": "x",
        "temperature": 0.5,
        "translate": False,
        "words": True,
    }


async def test_a_stream_of_events() -> None:
    sink = Sink()
    work = Transcribing(Path("x"), Wish(), sink)
    await run(work, Lease())
    assert sink.events == [
        {"type": "transcript.text.delta", "delta": "Hello"},
        {"type": "transcript.text.delta", "delta": " world."},
        {"type": "transcript.text.done", "text": "Hello world."},
    ]
    assert work.passed_on and sink.ended


async def test_a_verbose_stream_tells_times() -> None:
    sink = Sink()
    await run(Transcribing(Path("x"), Wish(), sink, lambda transcript: {"duration": transcript.duration}), Lease())
    assert sink.events[0] == {"type": "transcript.text.delta", "delta": "Hello", "start": 0.0, "end": 1.5}
    assert sink.events[-1] == {"type": "transcript.text.done", "text": "Hello world.", "duration": 3.0}


async def test_an_engine_that_refuses_is_quoted() -> None:
    error = {
        "error": {"message": "no sound", "type": "invalid_request_error", "code": "invalid_argument", "param": "file"}
    }
    work = Transcribing(Path("x"), Wish(), Sink())
    with pytest.raises(EngineReplied, match="no sound") as caught:
        await run(work, Lease(json.dumps(error).encode(), status=400))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "invalid_argument", "file")
    assert not work.passed_on


@pytest.mark.parametrize(
    ("body", "error"),
    [(b"", EngineSilent), (LINES[: len(LINES) // 3], EngineSilent), (b"{}\nnonsense\n", EngineReplied)],
)
async def test_an_answer_that_is_none(body: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        await run(Transcribing(Path("x"), Wish()), Lease(body))


TRANSCRIPT = Transcript(
    "Hallo.", "de", 2.0, [Segment(0, 0, 0.5, 1.5, " Hallo.", [7], 0.0, -0.1, 0.8, 0.0)], [Word("Hallo.", 0.5, 1.5)]
)


def test_answers() -> None:
    assert rendered(TRANSCRIPT, "text") == (b"Hallo.\n", b"text/plain; charset=utf-8")
    assert rendered(TRANSCRIPT, "srt")[0] == b"1\n00:00:00,500 --> 00:00:01,500\nHallo.\n\n"
    assert rendered(TRANSCRIPT, "vtt")[0].startswith(b"WEBVTT\n\n00:00:00.500")
    body, media_type = rendered(TRANSCRIPT, "json")
    assert json.loads(body) == {"text": "Hallo.", "usage": {"type": "duration", "seconds": 2.0}}
    assert media_type == b"application/json"


def test_verbose_answers() -> None:
    plain = json.loads(rendered(TRANSCRIPT, "verbose_json")[0])
    assert (plain["task"], plain["language"], plain["duration"]) == ("transcribe", "german", 2.0)
    assert plain["segments"][0]["text"] == " Hallo."
    assert "words" not in plain
    words = json.loads(rendered(TRANSCRIPT, "verbose_json", ["word"])[0])
    assert words["words"] == [{"word": "Hallo.", "start": 0.5, "end": 1.5}]
    assert "segments" not in words
    both = json.loads(rendered(TRANSCRIPT, "verbose_json", ["word", "segment"], translated=True)[0])
    assert both["segments"] and both["words"]
    assert (both["task"], both["language"]) == ("translate", "english")


def test_models_that_do_not_transcribe() -> None:
    check_model(Model(name="W", recipe="whispercpp", labels=("transcription",)))
    with pytest.raises(UnsupportedOperation, match="transcription not supported by llamacpp"):
        check_model(Model(name="L", recipe="llamacpp", labels=("chat",)))
    with pytest.raises(UnsupportedOperation, match="translation"):
        check_model(Model(name="L", recipe="llamacpp", labels=("chat",)), translate=True)
