from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemonade.engines.kokoro import engine as module
from lemonade.engines.kokoro.engine import Kokoro
from lemonade.errors import ModelLoadError
from lemonade.model import Model

MODEL = Model(name="kokoro-v1", recipe="kokoro", labels=("tts",))


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    (tmp_path / "k.onnx").touch()
    (tmp_path / "voices.npz").touch()
    return {"main": tmp_path}


def test_it_runs_where_its_packages_are(files: dict[str, Path]) -> None:
    (backend,) = Kokoro().backends()
    assert (backend.name, backend.devices, backend.state) == ("cpu", ("cpu",), "installed")
    assert backend.version
    launch = Kokoro().plan(MODEL, files, {}, alias="k", port=77)
    assert launch.argv[1:6] == ("-m", "lemonade.engines.worker", "lemonade.engines.kokoro.host", "--port", "77")
    config = json.loads(launch.argv[6])
    assert config["main"] == str(files["main"])
    assert config["workers"] >= 1
    assert launch.slots > 1


def test_missing_packages_are_named(files: dict[str, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "installed_version", lambda name: "" if name == "espeakng-loader" else "1")
    (backend,) = Kokoro().backends()
    assert not backend.can_run
    assert backend.message == "Packages are missing: `pip install espeakng-loader`."
    with pytest.raises(ModelLoadError, match="pip install espeakng-loader"):
        Kokoro().plan(MODEL, files, {}, alias="k", port=1)


def test_what_is_missing_is_said_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match="no file of the model"):
        Kokoro().plan(MODEL, {}, {}, alias="k", port=1)
    with pytest.raises(ModelLoadError, match=r"no \.onnx file"):
        Kokoro().plan(MODEL, {"main": tmp_path}, {}, alias="k", port=1)
