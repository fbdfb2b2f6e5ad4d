"""What all engines for speech share, with one that hears what it is told to."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lemonade.engines.audio.transcription import Segment, Task, Word, is_circular, operations_of
from lemonade.engines.worker import Cancelled, Job, Reply
from lemonade.errors import EngineError, InvalidArgument
from tests.recordings import RATE, Samples, pcm, wav


class Script:
    """Hears the segments of `says` in every stretch."""

    longest = 10.0

    def __init__(self, *says: Segment) -> None:
        self.says = says
        self.tasks: list[Task] = []
        self.lengths: list[int] = []
        self.thread: threading.Thread | None = None
        self.before_each: Callable[[], None] = lambda: None

    def recognize(self, samples: Samples, task: Task, job: Job, emit: Callable[[Segment], None]) -> str:
        self.thread = threading.current_thread()
        self.tasks.append(task)
        self.lengths.append(len(samples))
        for one in self.says:
            self.before_each()
            job.check()
            emit(Segment(one.start, one.end, one.text, words=[Word(w.word, w.start, w.end) for w in one.words]))
        return "de"


@pytest.fixture
def client() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        yield ours, theirs


def job(client: tuple[socket.socket, socket.socket], body: bytes, **query: str) -> Job:
    return Job(query, {}, body, client[1])


def noise(seconds: float) -> Samples:
    return (np.random.default_rng(0).standard_normal(int(seconds * RATE)) * 0.1).astype(np.float32)


def transcribe(script: Script, client: Any, path: Path, **task: Any) -> dict[str, Any]:
    asked = json.dumps({"path": str(path), **task}).encode()
    answer: dict[str, Any] = operations_of(script)["/transcribe"](job(client, asked))
    return answer


@pytest.fixture
def recording(tmp_path: Path) -> Path:
    path = tmp_path / "upload"
    path.write_bytes(wav(noise(25)))
    return path


def test_a_long_recording_is_heard_in_stretches(
    client: Any, recording: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script(Segment(0.5, 2.0, " Hallo ", words=[Word("Hallo", 0.5, 2.0)]))
    answer = transcribe(script, client, recording, prompt="x", temperature=0.4)
    assert answer["text"] == "Hallo Hallo Hallo"
    assert answer["language"] == "de"
    assert answer["duration"] == 25
    assert [one["id"] for one in answer["segments"]] == [0, 1, 2]
    starts = [one["start"] for one in answer["segments"]]
    assert starts[0] == 0.5
    assert starts[1] - 0.5 == pytest.approx(script.lengths[0] / RATE, abs=0.001)
    assert answer["segments"][1]["seek"] == round((starts[1] - 0.5) * 100)
    assert [one["start"] for one in answer["words"]] == starts
    # The language is looked for once, and the text goes on where it was.
    assert [(task.language, task.continues) for task in script.tasks] == [("auto", False), ("de", True), ("de", True)]
    assert all(task.prompt == "x" and task.temperature == 0.4 for task in script.tasks)
    assert "of 25 s" in capfd.readouterr().err


def test_silence_is_not_even_given_to_the_model(client: Any, tmp_path: Path) -> None:
    script = Script(Segment(0, 1, "Thank you."))
    path = tmp_path / "upload"
    path.write_bytes(wav(np.zeros(3 * RATE, np.float32)))
    answer = transcribe(script, client, path)
    assert (answer["text"], answer["segments"], answer["duration"]) == ("", [], 3)
    assert script.tasks == []


def test_what_is_said_in_silence_is_left_out(client: Any, tmp_path: Path) -> None:
    """Models end a recording with sentences that nobody said."""
    path = tmp_path / "upload"
    path.write_bytes(wav(np.concatenate([noise(2), np.zeros(3 * RATE, np.float32)])))
    script = Script(Segment(0, 2, " Hello."), Segment(2.1, 4.9, " Thanks for watching!"))
    assert transcribe(script, client, path)["text"] == "Hello."


@pytest.mark.parametrize("text", [" [BLANK_AUDIO]", "[ Silence ]", "(silence)", " ", "*no speech*"])
def test_marks_of_silence_are_left_out(client: Any, recording: Path, text: str) -> None:
    assert transcribe(Script(Segment(0, 1, text)), client, recording)["segments"] == []


def test_times_stay_within_the_recording(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(wav(noise(2)))
    answer = transcribe(Script(Segment(0, 30, "Hello", words=[Word("Hello", 0, 30)])), client, path)
    assert answer["segments"][0]["end"] == answer["words"][0]["end"] == 2


def test_quiet_parts_and_repetition_are_measured(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "upload"
    path.write_bytes(wav(np.concatenate([noise(2), noise(2) * np.float32(0.005)])))
    again = "again and " * 30
    answer = transcribe(Script(Segment(0, 2, "Hello"), Segment(1, 3, "and"), Segment(0, 2, again)), client, path)
    first, second, third = answer["segments"]
    assert first["no_speech_prob"] < 0.05
    assert second["no_speech_prob"] == pytest.approx(0.5, abs=0.05)
    assert third["compression_ratio"] > 2.4 > first["compression_ratio"]
    assert is_circular(again) and not is_circular("Hello")


def lines(script: Script, client: Any, path: Path) -> Iterator[dict[str, Any]]:
    reply = operations_of(script)["/transcribe"](job(client, json.dumps({"path": str(path)}).encode(), stream="1"))
    assert isinstance(reply, Reply) and reply.media_type == "application/x-ndjson"
    assert not isinstance(reply.body, bytes)
    for line in reply.body:
        assert line.endswith(b"\n")
        yield json.loads(line)


def test_a_stream_gives_segments_while_the_model_works(client: Any, recording: Path) -> None:
    script = Script(Segment(0, 1, " one"), Segment(1, 2, " two"))
    go_on = threading.Semaphore(1)
    script.before_each = lambda: go_on.acquire(timeout=10) and None
    came = lines(script, client, recording)
    assert next(came)["segment"]["text"] == " one"
    go_on.release(10)
    rest = list(came)
    assert [one["segment"]["id"] for one in rest[:-1]] == [1, 2, 3, 4, 5]
    assert rest[-1]["transcript"]["text"] == "one two one two one two"


def test_a_stream_raises_what_the_model_raises(client: Any, tmp_path: Path, recording: Path) -> None:
    (tmp_path / "none").write_bytes(b"no sound")
    with pytest.raises(InvalidArgument):
        next(lines(Script(), client, tmp_path / "none"))

    def fail() -> None:
        raise EngineError("broken")

    script = Script(Segment(0, 1, "x"))
    script.before_each = fail
    with pytest.raises(EngineError, match="broken"):
        next(lines(script, client, recording))


def test_the_work_ends_when_the_client_leaves(client: Any, recording: Path) -> None:
    script = Script(Segment(0, 1, "x"))
    script.before_each = client[0].close
    with pytest.raises(Cancelled):
        transcribe(script, client, recording)
    assert len(script.tasks) == 1


def test_a_stream_that_nobody_reads_any_more_ends_its_work(client: Any, recording: Path) -> None:
    script = Script(Segment(0, 1, "x"))
    came = lines(script, client, recording)
    next(came)
    client[0].close()
    came.close()
    assert script.thread is not None and not script.thread.is_alive()


def test_raw_sound(client: Any) -> None:
    script = Script(Segment(0, 1, " Hallo"))
    answer = operations_of(script)["/pcm"](
        job(client, pcm(noise(1.5)), rate="24000", language="en", prompt="Names: Ada")
    )
    assert answer["text"] == "Hallo"
    assert answer["duration"] == 1
    assert script.tasks == [Task(language="en", prompt="Names: Ada", live=True)]
    operations_of(script)["/pcm"](job(client, pcm(noise(1)), draft="1"))
    assert script.tasks[-1].draft
    assert operations_of(script)["/pcm"](job(client, b""))["text"] == ""
    with pytest.raises(InvalidArgument, match="'rate'"):
        operations_of(script)["/pcm"](job(client, b"", rate="fast"))
