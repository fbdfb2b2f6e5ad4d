from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.openmoss.engine import OpenMoss
from lemonade.engines.openmoss.protocol import PROGRAM, read_wav
from lemonade.errors import InvalidArgument, ModelLoadError
from lemonade.model import Model
from lemonade.settings import Layer, Settings
from tests.engines.fake_moss import CHANNELS, RATE, tone, wav

MODEL = Model(name="OpenMOSS-TTS", recipe="openmoss", labels=("tts",))


def engine(**settings: str) -> OpenMoss:
    return OpenMoss(Settings([Layer("test", {f"openmoss.{key}": value for key, value in settings.items()})]))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "moss"
    folder.mkdir()
    program = folder / PROGRAM
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return folder


def test_without_a_program_nothing_runs_and_the_reason_says_what_would_help() -> None:
    backends = engine().backends()
    assert [one.name for one in backends] == ["cuda", "rocm", "vulkan"]
    assert not any(one.can_run for one in backends)
    assert all(PROGRAM in one.message and "openmoss.vulkan_bin" in one.message for one in backends)
    with pytest.raises(ModelLoadError, match=PROGRAM):
        engine().plan(MODEL, {"main": Path("m.gguf")}, {}, alias="m", port=1)


def test_a_folder_without_the_program_is_named(tmp_path: Path) -> None:
    (backend,) = (one for one in engine(rocm_bin=str(tmp_path)).backends() if one.name == "rocm")
    assert backend.message == f"openmoss.rocm_bin names {tmp_path}, in which there is no {PROGRAM}."


def test_the_command_line(folder: Path) -> None:
    made = engine(vulkan_bin=str(folder))
    launch = made.plan(MODEL, {"main": Path("/m.gguf")}, {"openmoss_backend": "auto"}, alias="m", port=77)
    assert launch.argv == (
        *(str(folder / PROGRAM), "--model", "/m.gguf"),
        *("--host", "127.0.0.1", "--port", "77", "--no-webui"),
    )
    assert (launch.backend, launch.device, launch.health_path) == ("vulkan", "gpu", "/health")
    assert str(folder) in "".join(launch.env.values())
    assert made.device({}) == "gpu"


@pytest.mark.parametrize(
    ("backend", "failure", "says"),
    [("cuda", ModelLoadError, PROGRAM), ("cpu", InvalidArgument, "auto, cuda, rocm, vulkan")],
)
def test_backends_that_cannot_be_had(folder: Path, backend: str, failure: Any, says: str) -> None:
    made = engine(vulkan_bin=str(folder))
    with pytest.raises(failure, match=says):
        made.plan(MODEL, {"main": Path("/m.gguf")}, {"openmoss_backend": backend}, alias="m", port=1)


def test_no_file_of_the_model(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="no file"):
        engine(vulkan_bin=str(folder)).plan(MODEL, {}, {}, alias="m", port=1)


def test_a_wav_file_is_read_whatever_its_header_claims() -> None:
    data = tone(220)
    body = wav(data)
    sound = read_wav(body)
    assert (sound.rate, sound.channels, sound.data) == (RATE, CHANNELS, data)
    endless = body[: -len(data) - 4] + b"\xff\xff\xff\xff" + data + b"x"
    assert read_wav(endless).data == data


@pytest.mark.parametrize(
    "body", [b"", b"RIFF", b"ID3 and so on", b"RIFF\0\0\0\0WAVE", b"RIFF\0\0\0\0WAVEdata\0\0\0\0", wav(b"")[:30]]
)
def test_what_is_no_wav_file(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"it|samples"):
        read_wav(body)
