"""faster-whisper from its installation to the text: two commands, of which one brings the engine, the other a model.

What was installed stays in the cache of the tests, where a folder of programs is.
"""

from __future__ import annotations

import http.client
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from tests import whisper
from tests.api.test_transcriptions import BOUNDARY, TRANSCRIPTIONS, ask, heard, part, transcribe
from tests.daemon import Daemon, alive, wait_for
from tests.hub.fake_hub import FakeHub, running
from tests.recordings import BEGINNING, RATE, encoded, pcm, speech, wav, word_error_rate
from tests.speech import connected

pytestmark = [pytest.mark.real, pytest.mark.slow]

#: A model of the catalog.
NAME = "Faster-Whisper-Tiny-En"
REPOSITORY = Path("Systran/faster-whisper-tiny.en")


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    root = tmp_path_factory.mktemp("repositories")
    shutil.copytree(whisper.tiny_en_folder(), root / REPOSITORY)
    with running(root) as one:
        yield one


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[Daemon]:
    config = {"fasterwhisper": {"args": "--threads 1"}}
    env = {"HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1,localhost"}
    one = Daemon(tmp_path_factory.mktemp("daemon"), config=config, env=env)
    whisper.keep_programs(one)
    with one:
        installed = one.post("/v1/install", whisper.FASTER_WHISPER, timeout=170)
        assert installed.json() == {"status": "success", **whisper.FASTER_WHISPER}
        yield one


@pytest.fixture(scope="module")
def sound() -> bytes:
    return wav(speech())


def register(daemon: Daemon, name: str, folder: Path) -> None:
    body = {"model_name": f"user.{name}", "recipe": "fasterwhisper", "checkpoint": str(folder)}
    assert daemon.post("/v1/models/register", body).status == 200


def test_a_model_of_the_catalog_comes_with_the_first_recording(world: Daemon, sound: bytes) -> None:
    state = world.get("/v1/system-info").json()["recipes"]["fasterwhisper"]["backends"]["cpu"]
    assert (state["state"], state["can_uninstall"]) == ("installed", True)
    answer = transcribe(world, sound, model=NAME)
    assert word_error_rate(heard(answer), BEGINNING) == 0
    assert answer.json()["usage"] == {"type": "duration", "seconds": 5.0}
    entry = world.entry(NAME)
    assert (entry["type"], entry["recipe"], entry["device"]) == ("transcription", "fasterwhisper", "cpu")
    assert world.get(f"/v1/models/{NAME}").json()["downloaded"] is True


def test_verbose_json_with_words(world: Daemon, sound: bytes) -> None:
    answer = ask(
        world,
        *(part("timestamp_granularities[]", one) for one in ("word", "segment")),
        part("model", NAME),
        part("response_format", "verbose_json"),
        part("language", "en"),
        part("prompt", "Charles Dickens"),
        part("file", sound, "a.wav"),
    ).json()
    assert (answer["task"], answer["language"], answer["duration"]) == ("transcribe", "english", 5.0)
    (segment, *_) = answer["segments"]
    assert segment["tokens"] and segment["avg_logprob"] < 0 and segment["compression_ratio"] > 0.5
    # The model's own, which is never quite nothing.
    assert 0 < segment["no_speech_prob"] < 1
    assert word_error_rate(" ".join(word["word"] for word in answer["words"]), BEGINNING) == 0
    times = [(word["start"], word["end"]) for word in answer["words"]]
    assert all(0 <= start <= end <= 5 for start, end in times)
    assert times == sorted(times)


def test_other_formats_and_a_stream(world: Daemon, sound: bytes) -> None:
    assert transcribe(world, sound, model=NAME, response_format="srt").body.startswith(b"1\n00:00:0")
    assert transcribe(world, sound, model=NAME, response_format="vtt").body.startswith(b"WEBVTT\n")
    text = transcribe(world, sound, model=NAME, response_format="text").body.decode()
    assert word_error_rate(text, BEGINNING) == 0
    stream = transcribe(world, sound, model=NAME, stream="true").body.decode()
    assert '"type":"transcript.text.delta"' in stream.replace(" ", "")
    assert stream.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("container", "codec", "rate", "layout", "form"),
    [
        ("wav", "pcm_s16le", 8_000, "mono", "s16"),
        ("wav", "pcm_s16le", 44_100, "stereo", "s16"),
        ("mp3", "libmp3lame", 44_100, "mono", "fltp"),
        ("ogg", "libopus", 48_000, "mono", "flt"),
        ("ipod", "aac", 44_100, "mono", "fltp"),
    ],
)
def test_other_files_are_understood_as_well(
    world: Daemon, container: str, codec: str, rate: int, layout: str, form: str
) -> None:
    data = encoded(speech(), container, codec, rate=rate, layout=layout, form=form)
    assert word_error_rate(heard(transcribe(world, data, "upload", model=NAME)), BEGINNING) == 0


@pytest.mark.parametrize("seconds", [0.05, 1, 5])
def test_silence_is_empty(world: Daemon, seconds: float) -> None:
    assert heard(transcribe(world, wav(np.zeros(int(seconds * RATE), np.float32)), model=NAME)) == ""


def test_noise_is_no_sentence(world: Daemon) -> None:
    noise = (np.random.default_rng(0).standard_normal(5 * RATE) * 0.05).astype(np.float32)
    assert len(heard(transcribe(world, wav(noise), model=NAME)).split()) <= 3


def test_errors(world: Daemon, sound: bytes) -> None:
    file, model = part("file", sound, "a.wav"), part("model", NAME)
    klingon = ask(world, file, model, part("language", "klingon"))
    assert (klingon.status, klingon.error["param"]) == (400, "language")
    translated = ask(world, file, model, path="/v1/audio/translations")
    assert (translated.status, translated.error["type"]) == (400, "unsupported_operation")
    load = {"model_name": NAME, "fasterwhisper_args": "--beam-sise 5"}
    refused = world.post("/v1/load", load)
    assert (refused.status, refused.error["param"]) == (400, "fasterwhisper_args")


def test_many_stretches_go_on_where_the_last_one_ended(world: Daemon) -> None:
    """Six minutes are more than is looked at in one piece."""
    answer = transcribe(world, wav(np.tile(speech(45), 8)), model=NAME, response_format="verbose_json").json()
    times = [time for one in answer["segments"] for time in (one["start"], one["end"])]
    assert times == sorted(times)
    assert times[-1] > 340
    assert len(re.findall(r"superlative degree", answer["text"])) == 8
    assert re.search(r"transcribed \d+ of 355 s", world.log)


def test_who_hangs_up_is_not_worked_for(world: Daemon, sound: bytes) -> None:
    """An hour of speech; the next request does not wait for it, and the process is the same."""
    heard(transcribe(world, sound, model=NAME))
    pid = world.entry(NAME)["pid"]
    long = wav(np.tile(speech(40), 90))
    body = part("model", NAME) + part("file", long, "a.wav") + f"--{BOUNDARY}--\r\n".encode()
    connection = http.client.HTTPConnection("127.0.0.1", world.port, timeout=60)
    headers = {"Content-Type": f"multipart/form-data; boundary={BOUNDARY}"}
    connection.request("POST", TRANSCRIPTIONS, body, headers)
    time.sleep(1)
    connection.close()
    assert word_error_rate(heard(transcribe(world, sound, model=NAME)), BEGINNING) == 0
    assert world.entry(NAME)["pid"] == pid


async def test_speech_while_it_is_spoken(world: Daemon) -> None:
    async with connected(world, f"model={NAME}") as client:
        await client.update(turn_detection=None)
        await client.append(pcm(speech()))
        await client.send("input_audio_buffer.commit")
        assert word_error_rate((await client.event("completed"))["transcript"], BEGINNING) == 0


def test_a_model_of_many_languages_finds_the_language_and_translates(world: Daemon, sound: bytes) -> None:
    register(world, "base", whisper.base_folder())
    verbose = transcribe(world, sound, model="base", response_format="verbose_json").json()
    assert verbose["language"] == "english"
    assert word_error_rate(verbose["text"], BEGINNING) == 0
    # Whisper knows it from the third large model on.
    younger = transcribe(world, sound, model="base", language="yue")
    assert (younger.status, younger.error["param"]) == (400, "language")
    fields = (part("model", "base"), part("response_format", "verbose_json"))
    translated = ask(world, part("file", sound, "a.wav"), *fields, path="/v1/audio/translations").json()
    assert (translated["task"], translated["language"]) == ("translate", "english")
    assert word_error_rate(translated["text"], BEGINNING) < 0.2


def test_folders_that_hold_no_model_are_named_as_such(world: Daemon, sound: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "torn"
    shutil.copytree(whisper.tiny_en_folder(), folder)
    with (folder / "model.bin").open("r+b") as model:
        model.truncate(1_000_000)
    register(world, "torn", folder)
    torn = transcribe(world, sound, model="torn")
    assert (torn.status, torn.error["code"]) == (500, "model_load_error")
    assert "faster-whisper cannot open" in torn.error["message"]
    (folder / "tokenizer.json").unlink()
    register(world, "wordless", folder)
    missing = transcribe(world, sound, model="wordless")
    assert (missing.status, missing.error["code"]) == (400, "model_load_refused")
    assert "no tokenizer.json" in missing.error["message"]


def test_its_memory_comes_back(world: Daemon, sound: bytes) -> None:
    heard(transcribe(world, sound, model=NAME))
    pid = world.entry(NAME)["pid"]
    assert world.post("/v1/unload", {"model_name": NAME}).status == 200
    wait_for(lambda: not alive(pid))
