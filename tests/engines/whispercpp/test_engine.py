from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.whispercpp import engine as module
from lemonade.engines.whispercpp.engine import WhisperCpp
from lemonade.errors import InvalidArgument, ModelLoadError
from lemonade.model import Model
from lemonade.settings import Settings

MODEL = Model(name="Whisper-Tiny", recipe="whispercpp", labels=("transcription",))
FILES = {"main": Path("/models/ggml-tiny.bin")}


def config(options: dict[str, Any]) -> dict[str, Any]:
    launch = WhisperCpp(Settings([])).plan(MODEL, FILES, options, alias="Whisper-Tiny", port=8001)
    made: dict[str, Any] = json.loads(launch.argv[-1])
    return made


def test_a_launch() -> None:
    launch = WhisperCpp(Settings([])).plan(MODEL, FILES, {}, alias="Whisper-Tiny", port=8001)
    assert launch.argv[1:6] == ("-m", "lemonade.engines.worker", "lemonade.engines.whispercpp.host", "--port", "8001")
    assert launch.env["OMP_WAIT_POLICY"] == "passive"
    assert (launch.name, launch.backend, launch.slots) == ("whisper.cpp", launch.backend, 1)
    assert json.loads(launch.argv[-1])["model"] == "/models/ggml-tiny.bin"
    assert json.loads(launch.argv[-1])["params"]["n_threads"] >= 1


def test_arguments_of_whisper_server() -> None:
    made = config(
        {"whispercpp_args": "-t 3 --beam-size 5 -bo 2 -nf --suppress-nst -l de --prompt 'Ada Lovelace' -nfa -ac 768"}
    )
    assert made["params"] == {
        "n_threads": 3,
        "temperature_inc": 0.0,
        "suppress_nst": True,
        "language": "de",
        "initial_prompt": "Ada Lovelace",
        "audio_ctx": 768,
    }
    assert (made["beams"], made["best_of"]) == (5, 2)
    assert made["context"]["flash_attn"] is False


def test_voice_activity_needs_its_model(tmp_path: Path) -> None:
    vad = tmp_path / "silero.bin"
    vad.write_bytes(b"x")
    made = config({"whispercpp_args": f"--vad -vm {vad} --vad-threshold 0.4"})
    assert made["params"]["vad"] is True
    assert made["params"]["vad_model_path"] == str(vad)
    assert made["vad"] == {"threshold": 0.4}
    with pytest.raises(InvalidArgument, match="--vad-model"):
        config({"whispercpp_args": "--vad"})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("-m other.bin", "Lemonade manages it"),
        ("--convert", "decoded anyway"),
        ("--offset-t 5", "belongs to each request"),
        ("--processors 2", "does not have it"),
        ("--threads 0", "from 1 to 512"),
        ("--no-such", "not known"),
    ],
)
def test_arguments_that_cannot_hold(arguments: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message) as caught:
        config({"whispercpp_args": arguments})
    assert caught.value.param == "whispercpp_args"


def test_backends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.sys, "platform", "linux")
    assert [backend.name for backend in WhisperCpp(Settings([])).backends()] == ["cpu"]
    assert config({})["context"]["use_gpu"] is False
    monkeypatch.setattr(module.sys, "platform", "darwin")
    monkeypatch.setattr(module.platform, "machine", lambda: "arm64")
    engine = WhisperCpp(Settings([]))
    assert [(backend.name, *backend.devices) for backend in engine.backends()] == [("metal", "gpu"), ("cpu", "cpu")]
    assert engine.device({}) == "gpu"
    assert engine.device({"whispercpp_backend": "cpu"}) == "cpu"
    assert config({})["context"]["use_gpu"] is True
    assert config({"whispercpp_backend": "cpu"})["context"]["use_gpu"] is False


def test_what_is_not_there() -> None:
    engine = WhisperCpp(Settings([]))
    with pytest.raises(InvalidArgument, match="must be one of: auto, "):
        engine.device({"whispercpp_backend": "cuda"})
    with pytest.raises(ModelLoadError, match="no file"):
        engine.plan(MODEL, {}, {}, alias="x", port=1)


def test_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_version", lambda name: "")
    engine = WhisperCpp(Settings([]))
    assert {backend.state for backend in engine.backends()} == {"installable"}
    with pytest.raises(ModelLoadError, match="pip install pywhispercpp"):
        engine.plan(MODEL, FILES, {}, alias="x", port=1)
