"""The example for a microphone, with a WAV file in its place."""

from __future__ import annotations

import subprocess
import sys
import wave
from pathlib import Path

import pytest

from tests.daemon import Daemon, free_port
from tests.speech import add_listener, silence, voice

EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "realtime_transcription.py"


@pytest.fixture(scope="module")
def ear(tmp_path_factory: pytest.TempPathFactory) -> Daemon:
    with Daemon(tmp_path_factory.mktemp("ear")) as one:
        add_listener(one)
        yield one


def run(port: int, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(EXAMPLE), "--host", "127.0.0.1", "--port", str(port), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60)


def record(path: Path, audio: bytes, *, rate: int = 16000, channels: int = 1) -> str:
    with wave.open(str(path), "wb") as file:
        file.setparams((channels, 2, rate, 0, "NONE", ""))
        file.writeframes(audio)
    return str(path)


@pytest.mark.parametrize("rate", [8000, 16000, 44100])
def test_each_turn_is_a_line(ear: Daemon, tmp_path: Path, rate: int) -> None:
    parts = (voice(700, rate=rate), silence(1100, rate=rate), voice(900, rate=rate))
    file = record(tmp_path / "speech.wav", b"".join(parts), rate=rate)
    done = run(ear.port, "--model", "ear", "--pace", "20", file)
    assert done.returncode == 0, done.stderr
    assert [
        abs(int(line.removesuffix(" ms")) - want) <= 20
        for line, want in zip(done.stdout.splitlines(), (1580, 2080), strict=True)
    ]
    assert done.stderr == ""


def test_what_is_wrong_is_one_line(ear: Daemon, tmp_path: Path) -> None:
    file = record(tmp_path / "speech.wav", voice(500))
    for port, model, said in ((ear.port, "nope", "'nope' was not found"), (free_port(), "ear", "No connection")):
        done = run(port, "--model", model, file)
        assert done.returncode == 1
        (line,) = done.stderr.splitlines()
        assert said in line


def test_a_file_that_is_no_recording_is_named(ear: Daemon, tmp_path: Path) -> None:
    (tmp_path / "letter.wav").write_text("Dear diary")
    for name in ("letter.wav", "missing.wav"):
        ran = run(ear.port, "--model", "ear", str(tmp_path / name))
        assert ran.returncode == 1
        assert ran.stderr.startswith(f"error: {tmp_path / name} cannot be read as a WAV file: ")
        assert "Traceback" not in ran.stderr
