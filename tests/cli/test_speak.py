from __future__ import annotations

import json
import os
import pty
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE, Shell
from tests.cli.fake_daemon import SOUND, FakeDaemon


def asked(daemon: FakeDaemon) -> dict[str, Any]:
    (body,) = daemon.bodies("/v1/audio/speech")
    assert isinstance(body, dict)
    return body


def test_a_text_becomes_a_file(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "out.mp3"
    ended = lemonade("speak", "Good", "morning.", "-o", str(file))
    assert (ended.code, ended.out) == (0, "")
    assert file.read_bytes() == SOUND
    assert str(file) in ended.err
    assert asked(daemon) == {"model": "kokoro-v1", "input": "Good morning.", "response_format": "mp3"}


@pytest.mark.parametrize(
    ("name", "form"), [("a.wav", "wav"), ("a.OGG", "opus"), ("a.opus", "opus"), ("a.flac", "flac"), ("a.raw", "pcm")]
)
def test_the_ending_says_the_format(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path, name: str, form: str) -> None:
    assert lemonade("speak", "Hi.", "-o", str(tmp_path / name)).code == 0
    assert asked(daemon)["response_format"] == form


def test_voice_speed_model_and_format(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    words = ["-m", "speaks", "--voice", "bf_emma", "--speed", "1.5", "--format", "flac", "-o", str(tmp_path / "sound")]
    assert lemonade("speak", *words, "Hi.").code == 0
    assert asked(daemon) == {
        "model": "speaks",
        "input": "Hi.",
        "response_format": "flac",
        "voice": "bf_emma",
        "speed": 1.5,
    }


def test_an_unknown_ending_is_refused_before_anything_is_asked(
    lemonade: Shell, daemon: FakeDaemon, tmp_path: Path
) -> None:
    ended = lemonade("speak", "Hi.", "-o", str(tmp_path / "out.xyz"))
    assert ended.code == 2
    assert ".mp3" in ended.err
    assert not daemon.requests


def test_a_folder_that_is_not_there_is_named_before_anything_is_asked(
    lemonade: Shell, daemon: FakeDaemon, tmp_path: Path
) -> None:
    ended = lemonade("speak", "Hi.", "-o", str(tmp_path / "missing" / "out.mp3"))
    assert ended.code == 2
    assert "There is no folder" in ended.err
    assert not daemon.requests


def test_the_text_may_come_from_stdin(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    assert lemonade("speak", "-o", str(tmp_path / "a.mp3"), stdin="Grüße\n").code == 0
    assert asked(daemon)["input"] == "Grüße\n"


def test_no_text_is_an_error(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    ended = lemonade("speak", "-o", str(tmp_path / "a.mp3"), stdin=" \n")
    assert ended.code == 2
    assert "no text" in ended.err
    assert not daemon.bodies("/v1/audio/speech")


def test_a_pipe_gets_the_sound_as_it_comes(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = subprocess.run(
        lemonade.command("speak", "Hi.", "--format", "wav"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=lemonade.env,
        timeout=PATIENCE,
        check=True,
    )
    assert ended.stdout == SOUND
    assert asked(daemon) == {"model": "kokoro-v1", "input": "Hi.", "response_format": "wav", "stream": True}


def test_a_terminal_gets_no_sound(lemonade: Shell, daemon: FakeDaemon) -> None:
    master, slave = pty.openpty()
    try:
        ended = subprocess.run(
            lemonade.command("speak", "Hi."),
            stdin=subprocess.DEVNULL,
            stdout=slave,
            stderr=subprocess.PIPE,
            env=lemonade.env,
            timeout=PATIENCE,
            check=False,
        )
    finally:
        os.close(slave)
        os.close(master)
    assert ended.returncode == 2
    assert b"-o FILE" in ended.stderr
    assert not daemon.bodies("/v1/audio/speech")


def test_a_sound_that_breaks_off_leaves_no_file(lemonade: Shell, tmp_path: Path) -> None:
    ended = lemonade("speak", "Hi.", "--voice", "cut", "-o", str(tmp_path / "a.mp3"))
    assert ended.code == 1
    assert "before the answer was complete" in ended.err
    assert not list(tmp_path.glob("*a.mp3*"))


def test_what_the_daemon_refuses_is_told(lemonade: Shell, tmp_path: Path) -> None:
    ended = lemonade("speak", "Hi.", "--voice", "nobody", "-o", str(tmp_path / "a.mp3"))
    assert ended.code == 1
    assert ended.err == "Error: 'voice' must be one of the model's voices.\n"
    assert not (tmp_path / "a.mp3").exists()


def test_run_speaks_what_a_model_that_speaks_is_told(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = subprocess.run(
        lemonade.command("run", "speaks", "Hello", "there"),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=lemonade.env,
        timeout=PATIENCE,
        check=True,
    )
    assert ended.stdout == SOUND
    assert asked(daemon)["input"] == "Hello there"


def test_voices(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("voices")
    assert ended.code == 0
    lines = [line.split() for line in ended.out.splitlines()]
    assert lines[1:] == [
        ["af_heart", "en-US", "female"],
        ["ff_siwis", "fr", "female"],
        ["shimmer", "en-US", "female", "af_heart"],
    ]
    assert daemon.requests[-1][1] == "/v1/audio/voices?model=kokoro-v1"


def test_voices_of_a_language(lemonade: Shell) -> None:
    ended = lemonade("voices", "speaks", "--language", "FR", "--json")
    assert [one["id"] for one in json.loads(ended.out)["voices"]] == ["ff_siwis"]
    assert "no voices for xx" in lemonade("voices", "--language", "xx").err
