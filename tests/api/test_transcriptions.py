"""`POST /v1/audio/transcriptions` and `/translations` from outside, on a real Whisper model."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import whisper
from tests.daemon import Answer, Daemon
from tests.recordings import BEGINNING, RATE, encoded, speech, wav, word_error_rate

pytestmark = [pytest.mark.real, pytest.mark.slow]

TRANSCRIPTIONS = "/v1/audio/transcriptions"
BOUNDARY = "----of-a-test"


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    uploads = str(tmp_path_factory.mktemp("uploads"))
    # A window of ten seconds is enough for the recordings here, and takes a third of the time.
    config = {"whispercpp": {"args": "--threads 1 --audio-ctx 512"}}
    one = Daemon(tmp_path_factory.mktemp("daemon"), config=config, env={"TMPDIR": uploads})
    one.add_model("text")
    with one:
        register(one, "tiny", whisper.tiny_en())
        yield one


def register(daemon: Daemon, name: str, model: Path) -> None:
    body = {"model_name": f"user.{name}", "recipe": "whispercpp", "checkpoint": str(model)}
    assert daemon.post("/v1/models/register", body).status == 200


def part(name: str, value: bytes | str, filename: str | None = None) -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    head += f'; filename="{filename}"' if filename is not None else ""
    data = value if isinstance(value, bytes) else value.encode()
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"


def ask(daemon: Daemon, *parts: bytes, path: str = TRANSCRIPTIONS) -> Answer:
    body = b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    return daemon.post(path, body, headers=headers, timeout=170)


def transcribe(daemon: Daemon, sound: bytes, filename: str = "a.wav", **fields: str) -> Answer:
    fields = {"model": "tiny", **fields}
    return ask(daemon, part("file", sound, filename), *(part(name, value) for name, value in fields.items()))


@pytest.fixture(scope="module")
def sound() -> bytes:
    return wav(speech())


def heard(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json()["text"])


def test_json(world: Daemon, sound: bytes) -> None:
    answer = transcribe(world, sound)
    assert word_error_rate(heard(answer), BEGINNING) == 0
    assert answer.json()["usage"] == {"type": "duration", "seconds": 5.0}
    entry = world.entry("tiny")
    assert (entry["type"], entry["recipe"], entry["device"]) == ("transcription", "whispercpp", "cpu")


def test_verbose_json_with_words(world: Daemon, sound: bytes) -> None:
    parts = [part("timestamp_granularities[]", one) for one in ("word", "segment")]
    answer = ask(
        world,
        part("model", "tiny"),
        part("response_format", "verbose_json"),
        part("language", "en"),
        *parts,
        part("file", sound, "a.wav"),
    ).json()
    assert (answer["task"], answer["language"], answer["duration"]) == ("transcribe", "english", 5.0)
    (segment, *_) = answer["segments"]
    assert segment["tokens"] and segment["avg_logprob"] < 0 and segment["compression_ratio"] > 0.5
    assert word_error_rate(" ".join(word["word"] for word in answer["words"]), BEGINNING) == 0
    times = [(word["start"], word["end"]) for word in answer["words"]]
    assert all(0 <= start <= end <= 5 for start, end in times)
    assert times == sorted(times)


def test_subtitles_and_text(world: Daemon, sound: bytes) -> None:
    answer = transcribe(world, sound, response_format="srt")
    assert answer.headers["content-type"].startswith("text/plain")
    assert answer.body.startswith(b"1\n00:00:0")
    text = transcribe(world, sound, response_format="text").body.decode()
    assert word_error_rate(text, BEGINNING) == 0 and text.endswith("\n")


def test_a_stream(world: Daemon, sound: bytes) -> None:
    answer = transcribe(world, sound, stream="true")
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, done = answer.body.decode().removesuffix("\n\n").split("\n\n")
    assert done == "data: [DONE]"
    decoded = [json.loads(line.removeprefix("data: ")) for line in events if line.startswith("data: ")]
    assert decoded[-1]["type"] == "transcript.text.done"
    deltas = [one["delta"] for one in decoded[:-1]]
    assert "".join(deltas) == decoded[-1]["text"]
    assert word_error_rate(decoded[-1]["text"], BEGINNING) == 0


@pytest.mark.parametrize(
    ("container", "codec", "rate", "layout", "form"),
    [
        ("wav", "pcm_mulaw", 8_000, "mono", "s16"),
        ("wav", "pcm_s24le", 44_100, "stereo", "s32"),
        ("mp3", "libmp3lame", 44_100, "stereo", "fltp"),
        ("webm", "libopus", 48_000, "mono", "flt"),
        ("adts", "aac", 44_100, "mono", "fltp"),
    ],
)
def test_other_files_are_understood_as_well(
    world: Daemon, container: str, codec: str, rate: int, layout: str, form: str
) -> None:
    data = encoded(speech(), container, codec, rate=rate, layout=layout, form=form)
    # Two points of a few words are none.
    assert word_error_rate(heard(transcribe(world, data, "upload")), BEGINNING) == 0


@pytest.mark.parametrize("seconds", [0.05, 1, 5])
def test_silence_is_empty(world: Daemon, seconds: float) -> None:
    assert heard(transcribe(world, wav(np.zeros(int(seconds * RATE), np.float32)))) == ""


def test_noise_is_no_sentence(world: Daemon) -> None:
    noise = (np.random.default_rng(0).standard_normal(5 * RATE) * 0.05).astype(np.float32)
    assert len(heard(transcribe(world, wav(noise))).split()) <= 3


def test_errors(world: Daemon, sound: bytes) -> None:
    file, model = part("file", sound, "a.wav"), part("model", "tiny")
    cases: list[tuple[list[bytes], int, str | None, str | None]] = [
        ([model], 400, "missing_argument", "file"),
        ([file], 400, "missing_argument", "model"),
        ([], 400, "missing_argument", "file"),
        ([file, part("model", "no-such-model")], 404, "model_not_found", "model"),
        ([file, part("model", "text")], 400, None, "model"),
        ([file, model, part("response_format", "docx")], 400, "invalid_argument", "response_format"),
        ([part("response_format", "docx")], 400, "invalid_argument", "response_format"),
        ([file, model, part("temperature", "warm")], 400, "invalid_argument", "temperature"),
        ([file, model, part("temperature", "1.5")], 400, "invalid_argument", "temperature"),
        ([file, model, part("temperature", "nan")], 400, "invalid_argument", "temperature"),
        ([file, model, part("language", "klingon")], 400, "invalid_argument", "language"),
        ([file, model, part("stream", "true"), part("response_format", "srt")], 400, "invalid_argument", "stream"),
        ([part("file", b"", "a.wav"), model], 400, "invalid_argument", "file"),
        ([part("file", b"Dear diary", "a.wav"), model], 400, "invalid_argument", "file"),
        ([part("file", wav(np.zeros(0, np.float32)), "a.wav"), model], 400, "invalid_argument", "file"),
        ([part("file", "a text"), model], 400, "invalid_argument", "file"),
    ]
    for parts, status, code, param in cases:
        answer = ask(world, *parts)
        assert (answer.status, answer.error.get("code"), answer.error.get("param")) == (status, code, param), parts
    refused = world.post(TRANSCRIPTIONS, {"model": "tiny"})
    assert (refused.status, refused.error["message"]) == (400, "The request body must be multipart/form-data.")
    kind = ask(world, file, part("model", "text")).error
    assert kind["type"] == "unsupported_operation"


def test_a_failure_in_a_stream_is_told_before_it_begins(world: Daemon) -> None:
    answer = transcribe(world, b"Dear diary", stream="true")
    assert (answer.status, answer.error["param"]) == (400, "file")


def test_a_model_of_one_language_does_not_translate(world: Daemon, sound: bytes) -> None:
    answer = ask(world, part("file", sound, "a.wav"), part("model", "tiny"), path="/v1/audio/translations")
    assert (answer.status, answer.error["type"]) == (400, "unsupported_operation")


def test_who_hangs_up_is_not_worked_for(world: Daemon, sound: bytes) -> None:
    """Half an hour of speech; the next request does not wait for it."""
    heard(transcribe(world, sound))
    long = wav(np.tile(speech(40), 45))
    body = part("model", "tiny") + part("file", long, "a.wav") + f"--{BOUNDARY}--\r\n".encode()
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection.request("POST", TRANSCRIPTIONS, body, headers)
    time.sleep(1)
    pid = world.entry("tiny")["pid"]
    connection.close()
    assert word_error_rate(heard(transcribe(world, sound)), BEGINNING) == 0
    assert world.entry("tiny")["pid"] == pid


def test_nothing_is_left_of_an_upload(world: Daemon, sound: bytes) -> None:
    heard(transcribe(world, sound))
    transcribe(world, b"Dear diary")
    ask(world, part("file", sound, "a.wav"))
    # It goes right after the answer.
    deadline = time.monotonic() + 10
    while (left := list(Path(world.env["TMPDIR"]).iterdir())) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def test_a_model_of_many_languages_finds_the_language_and_translates(world: Daemon, sound: bytes) -> None:
    register(world, "base", whisper.base())
    verbose = transcribe(world, sound, model="base", response_format="verbose_json").json()
    assert verbose["language"] == "english"
    assert word_error_rate(verbose["text"], BEGINNING) == 0
    fields = (part("model", "base"), part("response_format", "verbose_json"))
    translated = ask(world, part("file", sound, "a.wav"), *fields, path="/v1/audio/translations").json()
    assert (translated["task"], translated["language"]) == ("translate", "english")
    assert word_error_rate(translated["text"], BEGINNING) < 0.2


def test_a_file_that_is_no_model_is_named_as_such(world: Daemon, sound: bytes, tmp_path: Path) -> None:
    broken = tmp_path / "ggml-broken.bin"
    broken.write_bytes(whisper.tiny_en().read_bytes()[:1_000_000])
    register(world, "broken", broken)
    answer = transcribe(world, sound, model="broken")
    assert (answer.status, answer.error["code"]) == (500, "model_load_error")
    assert "whole and in the ggml format" in answer.error["message"]
