"""OpenMOSS models through the daemon, with a program that speaks the protocol and makes tones."""

from __future__ import annotations

import base64
import http.client
import io
import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest

from lemonade.engines.audio.encode import wav_header
from lemonade.engines.openmoss.protocol import PROGRAM, SAMPLE
from tests.daemon import Daemon
from tests.engines import fake_moss

FAKE = Path(fake_moss.__file__)
RECORDING = base64.b64encode(wav_header(24_000, 1, 4) + bytes(4)).decode()


@pytest.fixture(scope="module")
def moss(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    folder = tmp_path_factory.mktemp("moss")
    program = folder / PROGRAM
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    program.chmod(0o755)
    daemon = Daemon(folder / "daemon", config={"openmoss": {"vulkan_bin": str(folder)}})
    file = daemon.models / "voice.bin"
    file.write_bytes(b"weights")
    with daemon:
        definition = {"model_name": "user.voice", "recipe": "openmoss", "checkpoint": str(file)}
        answer = daemon.post("/v1/models/register", definition)
        assert answer.status == 200, answer.body
        yield daemon


def speak(daemon: Daemon, text: str = "Hello.", **more: Any) -> Any:
    return daemon.post("/v1/audio/speech", {"model": "voice", "input": text, **more})


def record(daemon: Daemon) -> Any:
    address = str(daemon.entry("voice")["backend_url"]).removesuffix("/v1")
    with urllib.request.urlopen(f"{address}/fake/record", timeout=10) as answer:
        return json.load(answer)


def pitch(pcm: bytes) -> int:
    """Hz of a tone with 48000 frames per second on two channels."""
    left = np.frombuffer(pcm, "<i2")[::2].astype(float)
    return round(np.argmax(np.abs(np.fft.rfft(left))) * fake_moss.RATE / len(left))


def test_wav_is_usual(moss: Daemon) -> None:
    answer = speak(moss)
    assert (answer.status, answer.headers["content-type"]) == (200, "audio/wav")
    with av.open(io.BytesIO(answer.body)) as container:
        stream = container.streams.audio[0]
        assert (stream.rate, stream.channels) == (48_000, 2)
    assert len(answer.body) == 44 + 4 * fake_moss.FRAMES
    assert pitch(answer.body[44:]) == 220


def test_samples_come_with_what_a_player_must_know(moss: Daemon) -> None:
    for more in ({"response_format": "pcm"}, {"stream": True}, {"stream_format": "audio", "response_format": "pcm"}):
        answer = speak(moss, **more)
        assert (answer.status, answer.headers["content-type"]) == (200, "audio/pcm")
        assert (answer.headers["x-moss-sample-rate"], answer.headers["x-moss-channels"]) == ("48000", "2")
        assert pitch(answer.body) == 220
    assert len(answer.body) == 3 * 4 * fake_moss.FRAMES


def test_the_program_is_asked_as_it_wants_to_be(moss: Daemon) -> None:
    speak(moss, voice="a calm, deep voice", speed=1.5, seed=7, ref_text=None, instructions="of no effect")
    found = record(moss)
    assert found["asked"][-1] == {
        "seed": 7,
        "input": "Hello.",
        "voice": "a calm, deep voice",
        "speed": 1.5,
        "response_format": "wav",
        "stream": False,
    }
    assert found["argv"][-1] == "127.0.0.1"


def test_the_voice_of_a_recording(moss: Daemon) -> None:
    answer = speak(moss, reference_wav_b64=RECORDING, voice_design_description="of no effect")
    assert pitch(answer.body[44:]) == 440
    last = record(moss)["asked"][-1]
    assert last["reference_wav_b64"] == RECORDING


@pytest.mark.parametrize("more", [{}, {"stream": True}])
def test_a_described_voice_is_heard_once_and_then_taken(moss: Daemon, more: dict[str, Any]) -> None:
    answer = speak(moss, voice_design_description="a warm low voice", voice="slowly", **more)
    assert answer.status == 200
    sample, last = record(moss)["asked"][-2:]
    assert sample == {"input": SAMPLE, "voice": "a warm low voice", "response_format": "wav", "stream": False}
    assert base64.b64decode(last["reference_wav_b64"]) == fake_moss.wav(fake_moss.tone(330))
    assert (last["input"], last["voice"]) == ("Hello.", "slowly")
    assert pitch(answer.body if more else answer.body[44:]) == 440


def test_voice_alone_designs_nothing(moss: Daemon) -> None:
    speak(moss)
    before = len(record(moss)["asked"])
    speak(moss, voice="a warm low voice")
    assert len(record(moss)["asked"]) == before + 1


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"response_format": "mp3"}, "response_format"),
        ({"response_format": "wav", "stream": True}, "response_format"),
        ({"reference_wav_b64": "!"}, "reference_wav_b64"),
        ({"input": " "}, "input"),
    ],
)
def test_mistakes_are_named_before_anything_is_asked(moss: Daemon, more: dict[str, Any], param: str) -> None:
    answer = speak(moss, **more)
    assert (answer.status, answer.error["param"]) == (400, param)


@pytest.mark.parametrize(
    ("text", "status", "says"),
    [
        ("FAIL", 500, "generation failed: FAIL"),
        ("BAD", 400, "generation failed: BAD"),
        ("NOTHING", 502, "made no sound"),
        ("NOISE", 502, "something else than a WAV file"),
    ],
)
def test_failures_of_the_program(moss: Daemon, text: str, status: int, says: str) -> None:
    answer = speak(moss, text)
    assert answer.status == status
    assert says in answer.error["message"]


def test_a_stream_of_nothing_is_an_error_and_no_empty_answer(moss: Daemon) -> None:
    assert speak(moss, "NOTHING", stream=True).status == 502


def test_a_program_that_dies_in_a_stream_cuts_it_off(moss: Daemon) -> None:
    with pytest.raises(http.client.IncompleteRead):
        speak(moss, "DIE", stream=True)
    assert speak(moss).status == 200


def test_a_program_that_dies_twice(moss: Daemon) -> None:
    answer = speak(moss, "DIE")
    assert (answer.status, answer.error["code"]) == (502, "backend_unavailable")


def test_there_is_no_list_of_voices(moss: Daemon) -> None:
    assert moss.get("/v1/audio/voices?model=voice").json() == {"model": "voice", "voices": []}


def test_without_a_program_the_models_are_not_supported(daemon: Daemon) -> None:
    answer = daemon.post("/v1/audio/speech", {"model": "OpenMOSS-TTS", "input": "Hello."})
    assert (answer.status, answer.error["code"]) == (404, "model_not_supported")
    assert PROGRAM in answer.error["message"]


@pytest.mark.parametrize(
    ("body", "status", "code", "param"),
    [
        ({}, 400, "missing_argument", "input"),
        ({"input": "Hi."}, 400, "missing_argument", "model"),
        ({"model": "a"}, 400, "missing_argument", "input"),
        ({"model": "a", "input": "Hi."}, 400, "model_not_applicable", "model"),
        ({"model": "a", "input": ""}, 400, "model_not_applicable", "model"),
        ({"model": "nowhere", "input": "Hi."}, 404, "model_not_found", "model"),
        ({"model": "a", "input": 5}, 400, "invalid_argument", "input"),
        ({"model": "a", "input": "Hi.", "response_format": "ogg"}, 400, "invalid_argument", "response_format"),
        ({"model": "a", "input": "Hi.", "stream_format": "text"}, 400, "invalid_argument", "stream_format"),
        ({"model": "a", "input": "Hi.", "speed": 0}, 400, "invalid_argument", "speed"),
        ({"model": "a", "input": "Hi.", "speed": 100}, 400, "invalid_argument", "speed"),
        ({"model": "a", "input": "Hi.", "speed": "fast"}, 400, "invalid_argument", "speed"),
        ({"model": "a", "input": "x" * 70_000}, 400, "invalid_argument", "input"),
    ],
)
def test_what_is_checked_before_a_model_is_loaded(
    daemon: Daemon, body: dict[str, Any], status: int, code: str, param: str
) -> None:
    answer = daemon.post("/v1/audio/speech", body)
    assert (answer.status, answer.error["code"], answer.error["param"]) == (status, code, param)
    assert not daemon.loaded()


def test_the_words_that_an_argument_takes_are_told(daemon: Daemon) -> None:
    answer = daemon.post("/v1/audio/speech", {"model": "a", "input": "Hi.", "response_format": "ogg"})
    assert answer.error["message"] == "'response_format' must be one of aac, flac, mp3, opus, pcm, wav, not 'ogg'."
