from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.engine import Wheels
from lemonade.engines.fasterwhisper import engine as module
from lemonade.engines.fasterwhisper.engine import FILES, PACKAGES, PYTHON, TAG, VERSION, FasterWhisper
from lemonade.engines.programs import Programs
from lemonade.engines.table import Engines
from lemonade.errors import InvalidArgument, ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Layer, Settings

MODEL = Model(name="W", recipe="fasterwhisper", labels=("transcription",))


@pytest.fixture(autouse=True)
def not_beside(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the environment has, the library is not among it."""
    monkeypatch.setattr(module, "installed_version", lambda name: "")


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in (*FILES, "vocabulary.txt"):
        (folder / name).write_bytes(b"x")
    return folder


def put(programs: Programs, tag: str = TAG) -> Path:
    programs.put("fasterwhisper", "cpu", tag, "", lambda folder: (folder / "faster_whisper").mkdir())
    return programs.root / "fasterwhisper" / "cpu"


def config(programs: Programs, folder: Path, arguments: str = "") -> dict[str, Any]:
    options = {"fasterwhisper_args": arguments}
    launch = FasterWhisper(Settings([]), programs).plan(MODEL, {"main": folder}, options, alias="W", port=8001)
    made: dict[str, Any] = json.loads(launch.argv[-1])
    return made


def test_a_launch_finds_what_was_fetched(programs: Programs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lies = put(programs)
    engine = FasterWhisper(Settings([]), programs)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    launch = engine.plan(MODEL, {"main": folder}, {}, alias="W", port=8001)
    assert launch.argv[1:6] == (
        "-m",
        "lemonade.engines.worker",
        "lemonade.engines.fasterwhisper.host",
        "--port",
        "8001",
    )
    assert (launch.name, launch.backend, launch.device) == ("faster-whisper", "cpu", "cpu")
    assert launch.env["PYTHONPATH"] == str(lies)
    # Its threads do not spin, and a file that is missing is not looked for elsewhere.
    assert (launch.env["OMP_WAIT_POLICY"], launch.env["HF_HUB_OFFLINE"]) == ("passive", "1")
    made = json.loads(launch.argv[-1])
    assert made.pop("threads") >= 1
    assert made == {"model": str(folder), "compute_type": "int8", "language": "auto", "options": {}}
    monkeypatch.setenv("PYTHONPATH", "/own")
    launch = engine.plan(MODEL, {"main": folder / "model.bin"}, {}, alias="W", port=8001)
    assert launch.env["PYTHONPATH"].split(module.os.pathsep) == [str(lies), "/own"]
    assert json.loads(launch.argv[-1])["model"] == str(folder)


def test_what_the_user_installed_is_taken(programs: Programs, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(programs)
    monkeypatch.setattr(module, "installed_version", lambda name: "1.9")
    engine = FasterWhisper(Settings([]), programs)
    (backend,) = engine.backends()
    assert (backend.state, backend.version, backend.is_fetched) == ("installed", "1.9", False)
    assert engine.build("cpu") is None
    assert "PYTHONPATH" not in engine.plan(MODEL, {"main": folder}, {}, alias="W", port=8001).env


def test_states(programs: Programs, folder: Path) -> None:
    settings = Settings([])
    engine = FasterWhisper(settings, programs)
    (backend,) = engine.backends()
    assert (backend.state, backend.version) == ("installable", VERSION)
    assert backend.action == "lemonade backends install fasterwhisper:cpu"
    assert engine.build("cpu") == Wheels(packages=PACKAGES, tag=TAG)
    assert backend.action in str(Engines(settings, programs).unsupported("fasterwhisper"))
    with pytest.raises(ModelLoadError, match="lemonade backends install fasterwhisper:cpu"):
        config(programs, folder)
    put(programs, f"1.0-{PYTHON}")
    (backend,) = engine.backends()
    assert (backend.state, backend.version, backend.can_run) == ("update_required", "1.0", True)
    put(programs)
    (backend,) = engine.backends()
    assert (backend.state, backend.version, backend.is_fetched, backend.action) == ("installed", VERSION, True, "")
    assert Engines(settings, programs).unsupported("fasterwhisper") is None


def test_what_was_fetched_for_another_python_does_not_run(programs: Programs) -> None:
    put(programs, f"{VERSION}-cp30")
    assert FasterWhisper(Settings([]), programs).backends()[0].state == "installable"


def test_where_nothing_may_be_fetched(programs: Programs) -> None:
    settings = Settings([Layer("test", {"no_fetch_executables": True})])
    (backend,) = FasterWhisper(settings, programs).backends()
    assert (backend.state, backend.action) == ("installable", "pip install faster-whisper")


def test_arguments(programs: Programs, folder: Path) -> None:
    put(programs)
    made = config(
        programs,
        folder,
        "-t 3 --compute_type float32 --beam-size=5 --no-condition-on-previous-text -l de --vad_filter "
        "--hotwords 'Ada Lovelace' --no-speech-threshold 0.5",
    )
    assert (made["threads"], made["compute_type"], made["language"]) == (3, "float32", "de")
    assert made["options"] == {
        "beam_size": 5,
        "condition_on_previous_text": False,
        "vad_filter": True,
        "hotwords": "Ada Lovelace",
        "no_speech_threshold": 0.5,
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--device cuda", "processor"),
        ("--model-dir x", "Lemonade manages it"),
        ("--word_timestamps", "belongs to each request"),
        ("--compute-type float16", "must be one of auto, "),
        ("--threads 0", "from 1 to 512"),
        ("--beam-sise 5", "Did you mean '--beam-size'"),
    ],
)
def test_arguments_that_cannot_hold(programs: Programs, folder: Path, arguments: str, message: str) -> None:
    put(programs)
    with pytest.raises(InvalidArgument, match=message) as caught:
        config(programs, folder, arguments)
    assert caught.value.param == "fasterwhisper_args"


@pytest.mark.parametrize("missing", [*FILES, "vocabulary.txt"])
def test_a_folder_without_one_of_its_files_is_refused(programs: Programs, folder: Path, missing: str) -> None:
    put(programs)
    (folder / missing).unlink()
    with pytest.raises(ModelLoadRefused, match=missing.partition(".")[0]) as caught:
        config(programs, folder)
    assert "CTranslate2" in caught.value.message
    if missing.startswith("vocabulary"):
        (folder / "vocabulary.json").write_bytes(b"x")
        assert config(programs, folder)["model"] == str(folder)


def test_no_files(programs: Programs) -> None:
    put(programs)
    with pytest.raises(ModelLoadError, match="no files"):
        FasterWhisper(Settings([]), programs).plan(MODEL, {}, {}, alias="W", port=1)
