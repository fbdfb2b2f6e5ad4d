from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_daemon import FakeDaemon


@pytest.fixture
def talk(tmp_path: Path) -> str:
    path = tmp_path / 'a "talk".m4a'
    path.write_bytes(bytes(range(256)) * 1000)
    return str(path)


@pytest.fixture(autouse=True)
def hears(daemon: FakeDaemon) -> None:
    daemon.labels["good"] = ["transcription"]


def asked(daemon: FakeDaemon, path: str = "/v1/audio/transcriptions") -> dict[str, Any]:
    (body,) = daemon.bodies(path)
    assert isinstance(body, dict)
    return body


def test_the_text_and_nothing_else(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    ended = lemonade("transcribe", talk)
    assert (ended.code, ended.out, ended.err) == (0, "Guten Tag.\n", "")
    body = asked(daemon)
    assert body.pop("file").encode("latin-1") == Path(talk).read_bytes()
    assert body == {"model": "good", "response_format": "verbose_json", "stream": "true"}


def test_what_may_be_said_of_it(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    words = ["-m", "long", "--language", "de", "--prompt", "Grüße", "--format", "verbose_json", "--words"]
    assert lemonade("transcribe", talk, *words).code == 0
    body = asked(daemon)
    assert (body["model"], body["language"]) == ("long", "de")
    assert body["prompt"].encode("latin-1").decode() == "Grüße"
    assert body["timestamp_granularities[]"] == "word"


def test_formats(lemonade: Shell, talk: str) -> None:
    srt = lemonade("transcribe", talk, "--format", "srt").out
    assert srt == "1\n00:00:00,000 --> 00:00:01,500\nGuten\n\n2\n00:00:01,500 --> 00:01:02,250\nTag.\n\n"
    assert lemonade("transcribe", talk, "--format", "vtt").out.startswith("WEBVTT\n\n00:00:00.000 -->")
    plain = json.loads(lemonade("transcribe", talk, "--format", "json").out)
    assert plain == {"text": "Guten Tag.", "usage": {"type": "duration", "seconds": 62.5}}
    verbose = json.loads(lemonade("transcribe", talk, "--format", "verbose_json").out)
    assert (verbose["language"], len(verbose["segments"])) == ("german", 2)
    assert "type" not in verbose


def test_the_ending_of_the_output_says_the_format(lemonade: Shell, talk: str, tmp_path: Path) -> None:
    for name, begin in (("a.srt", "1\n"), ("a.VTT", "WEBVTT"), ("a.json", "{"), ("a.txt", "Guten"), ("a", "Guten")):
        ended = lemonade("transcribe", talk, "-o", str(tmp_path / name))
        assert (ended.code, ended.out) == (0, "")
        assert name in ended.err
        assert (tmp_path / name).read_text().startswith(begin)


@pytest.mark.parametrize(
    ("content", "reason"), [(b"cut off", "before the recording was transcribed|broke"), (b"bad", "engine is lost")]
)
def test_what_breaks_off_leaves_no_file(lemonade: Shell, tmp_path: Path, content: bytes, reason: str) -> None:
    import re

    path, output = tmp_path / "a.wav", tmp_path / "a.txt"
    path.write_bytes(content)
    ended = lemonade("transcribe", str(path), "-o", str(output))
    assert ended.code == 1
    assert re.search(reason, ended.err)
    assert not output.exists()


def test_a_loaded_model_is_preferred_and_one_is_fetched_when_there_is_none(
    lemonade: Shell, daemon: FakeDaemon, talk: str
) -> None:
    daemon.loaded["long"] = {"model_name": "long", "type": "transcription", "recipe": "whispercpp", "device": "cpu"}
    lemonade("transcribe", talk)
    assert asked(daemon)["model"] == "long"
    daemon.loaded.clear()
    daemon.labels.clear()
    ended = lemonade("transcribe", talk)
    assert ended.code == 1
    assert "Whisper-Tiny" in ended.err


def test_translation(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    ended = lemonade("transcribe", talk, "--translate", "--language", "de")
    assert (ended.code, ended.out) == (0, "Good day.\n")
    body = asked(daemon, "/v1/audio/translations")
    assert sorted(body) == ["file", "model", "response_format"]
    assert body["response_format"] == "text"


def test_what_cannot_be(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    for words in (("/no/such/file",), (talk, "--words"), (talk, "--format", "docx")):
        assert lemonade("transcribe", *words).code == 2
    assert not daemon.requests


def test_run_transcribes_with_a_model_that_does(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    ended = lemonade("run", "good", talk)
    assert (ended.code, ended.out) == (0, "Guten Tag.\n")
    ended = lemonade("run", "good", "hello")
    assert ended.code == 2
    assert "no file 'hello'" in ended.err
    assert "lemonade transcribe" in ended.err


def test_options_of_the_engines(lemonade: Shell, daemon: FakeDaemon, talk: str) -> None:
    words = ["--whispercpp", "cpu", "--whispercpp-args", "--beam-size 5", "--moonshine-args", "--single-thread"]
    words += ["--fasterwhisper-args", "--beam-size 5"]
    assert lemonade("run", "good", talk, *words).code == 0
    assert lemonade("load", "good", *words).code == 0
    said = {
        "model_name": "good",
        "whispercpp_backend": "cpu",
        "whispercpp_args": "--beam-size 5",
        "moonshine_args": "--single-thread",
        "fasterwhisper_args": "--beam-size 5",
    }
    assert daemon.bodies("/v1/load") == [said, said]
