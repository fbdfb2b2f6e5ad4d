from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.moonshine import engine as module
from lemonade.engines.moonshine.engine import Moonshine
from lemonade.errors import InvalidArgument, ModelLoadError, ModelLoadRefused
from lemonade.model import Model


def model(**extras: Any) -> Model:
    return Model(name="M", recipe="moonshine", labels=("transcription",), extras=extras)


def config(folder: Path, arguments: str = "", **extras: Any) -> dict[str, Any]:
    launch = Moonshine().plan(model(**extras), {"main": folder}, {"moonshine_args": arguments}, alias="M", port=8001)
    made: dict[str, Any] = json.loads(launch.argv[-1])
    return made


def test_a_launch(tmp_path: Path) -> None:
    launch = Moonshine().plan(model(moonshine_arch=2), {"main": tmp_path}, {}, alias="M", port=8001)
    assert launch.argv[1:6] == ("-m", "lemonade.engines.worker", "lemonade.engines.moonshine.host", "--port", "8001")
    assert json.loads(launch.argv[-1]) == {
        "model": str(tmp_path),
        "arch": 2,
        "language": "en",
        "words": False,
        "options": {},
    }
    assert (launch.name, launch.backend, launch.device) == ("moonshine", "cpu", "cpu")


def test_the_architecture_is_said_or_seen(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadRefused, match="moonshine_arch"):
        config(tmp_path)
    with pytest.raises(ModelLoadRefused, match="moonshine_arch"):
        config(tmp_path, moonshine_arch=9)
    encoder = tmp_path / "encoder_model.ort"
    encoder.write_bytes(b"x")
    assert config(tmp_path)["arch"] == 0
    with encoder.open("r+b") as file:
        file.truncate(20_000_000)
    assert config(tmp_path)["arch"] == 1
    assert config(tmp_path, moonshine_arch=5)["arch"] == 5
    assert config(encoder, moonshine_arch=5)["model"] == str(tmp_path)


def test_words_need_a_model_that_knows_them(tmp_path: Path) -> None:
    assert config(tmp_path, moonshine_arch=1)["words"] is False
    (tmp_path / "decoder_with_attention.ort").write_bytes(b"x")
    assert config(tmp_path, moonshine_arch=1)["words"] is True


def test_arguments(tmp_path: Path) -> None:
    made = config(tmp_path, "--vad-threshold 0.3 --vad-max-segment-duration=8 -l es", moonshine_arch=1)
    assert made["options"] == {"vad_threshold": "0.3", "vad_max_segment_duration": "8.0"}
    assert made["language"] == "es"
    for arguments, message in (
        ("--model-path x", "manages"),
        ("--vad-threshold 2", "from 0 to 1"),
        ("-x", "not known"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            config(tmp_path, arguments, moonshine_arch=1)


def test_what_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelLoadError, match="no files"):
        Moonshine().plan(model(), {}, {}, alias="M", port=1)
    monkeypatch.setattr(module, "installed_version", lambda name: "")
    with pytest.raises(ModelLoadError, match="pip install moonshine-voice"):
        config(tmp_path, moonshine_arch=1)
    assert Moonshine().backends()[0].state == "installable"


@pytest.mark.parametrize(
    ("cores", "arguments", "alone"),
    [(2, "", True), (8, "", False), (2, "--all-threads", False), (8, "--single-thread", True)],
)
def test_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cores: int, arguments: str, alone: bool) -> None:
    monkeypatch.setattr(module, "physical_cores", lambda: cores)
    options = {"moonshine_args": arguments}
    launch = Moonshine().plan(model(moonshine_arch=1), {"main": tmp_path}, options, alias="M", port=1)
    assert ("MOONSHINE_ORT_SINGLE_THREAD" in launch.env) is alone
