from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemonade.engines.onnxruntime.engine import FILES, OnnxRuntime
from lemonade.errors import InvalidArgument, ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Settings

MODEL = Model(name="m", recipe="onnxruntime", labels=("classification",))
ZERO_SHOT = Model(name="z", recipe="onnxruntime", labels=("classification", "zero-shot"))


@pytest.fixture
def engine(tmp_path: Path) -> OnnxRuntime:
    return OnnxRuntime(Settings.open(tmp_path / "config", {}))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in FILES:
        (folder / name).write_bytes(b"")
    return folder


def test_the_processor_is_the_one_backend(engine: OnnxRuntime, monkeypatch: pytest.MonkeyPatch) -> None:
    (backend,) = engine.backends()
    assert (backend.name, backend.devices, backend.state) == ("cpu", ("cpu",), "installed")
    assert backend.version
    assert engine.device({}) == "cpu"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (backend,) = engine.backends()
    assert backend.state == "installable"
    assert "pip install onnxruntime tokenizers" in backend.message
    with pytest.raises(ModelLoadError, match="pip install"):
        engine.device({})


@pytest.mark.parametrize(("model", "zero_shot"), [(MODEL, False), (ZERO_SHOT, True)])
def test_plan(engine: OnnxRuntime, folder: Path, model: Model, zero_shot: bool) -> None:
    launch = engine.plan(model, {"main": folder}, {"onnxruntime_args": "--threads 3"}, alias="m", port=8123)
    assert launch.port == 8123
    assert launch.backend == "cpu"
    config = json.loads(launch.argv[-1])
    assert config == {"folder": str(folder), "threads": 3, "zero_shot": zero_shot}
    assert json.loads(engine.plan(model, {"main": folder}, {}, alias="m", port=1).argv[-1])["threads"] >= 1


@pytest.mark.parametrize("missing", FILES)
def test_a_folder_without_one_of_its_files_is_refused(engine: OnnxRuntime, folder: Path, missing: str) -> None:
    (folder / missing).unlink()
    with pytest.raises(ModelLoadRefused, match=f"there is no {missing}"):
        engine.plan(MODEL, {"main": folder}, {}, alias="m", port=1)
    with pytest.raises(ModelLoadError):
        engine.plan(MODEL, {}, {}, alias="m", port=1)


@pytest.mark.parametrize("text", ["", "--threads 4", "--threads=2", " -t  1 "])
def test_arguments(engine: OnnxRuntime, text: str) -> None:
    engine.check({"onnxruntime_args": text})


@pytest.mark.parametrize("text", ["--threads", "--threads 0", "--threads x", "--port 1", "--threads 1 --host a", "'"])
def test_other_arguments_are_refused(engine: OnnxRuntime, text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        engine.check({"onnxruntime_args": text})
    assert caught.value.param == "onnxruntime_args"
