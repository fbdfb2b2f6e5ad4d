from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from lemonade.engines.kokoro.layout import Layout, find, voice_names
from lemonade.errors import ModelLoadError


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")


def test_an_index_names_the_files(tmp_path: Path) -> None:
    write(tmp_path, "kokoro.onnx", "other.onnx", "voices.bin")
    (tmp_path / "index.json").write_text(json.dumps({"model": "kokoro.onnx", "voices": "voices.bin", "more": 1}))
    wanted = Layout(tmp_path / "kokoro.onnx", tmp_path / "voices.bin")
    assert find(tmp_path / "index.json") == find(tmp_path) == wanted


def test_all_voices_in_one_file(tmp_path: Path) -> None:
    write(tmp_path, "kokoro-v1.0.onnx", "voices-v1.0.bin")
    wanted = Layout(tmp_path / "kokoro-v1.0.onnx", tmp_path / "voices-v1.0.bin")
    assert find(tmp_path) == find(tmp_path / "kokoro-v1.0.onnx") == wanted


def test_a_file_per_voice(tmp_path: Path) -> None:
    write(tmp_path, "onnx/model_q8.onnx", "onnx/model.onnx", "voices/af_a.bin", "config.json", "voices/readme.md")
    wanted = Layout(tmp_path / "onnx" / "model.onnx", tmp_path / "voices", tmp_path / "config.json")
    assert find(tmp_path) == wanted
    assert find(tmp_path / "onnx" / "model_q8.onnx").model.name == "model_q8.onnx"
    assert voice_names(wanted.voices) == ["af_a"]


def test_names_in_an_archive(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "voices.npz", "w") as archive:
        for name in ("bm_b", "af_a"):
            archive.writestr(f"{name}.npy", b"")
    assert voice_names(tmp_path / "voices.npz") == ["af_a", "bm_b"]
    write(tmp_path, "broken.bin")
    with pytest.raises(ModelLoadError, match=r"broken\.bin is no archive"):
        voice_names(tmp_path / "broken.bin")


@pytest.mark.parametrize(
    ("index", "message"),
    [
        ({"model": "gone.onnx", "voices": "voices.bin"}, "gone.onnx, which is not there"),
        ({"model": "../k.onnx", "voices": "voices.bin"}, "not in its folder"),
        ({"model": "/etc/passwd", "voices": "voices.bin"}, "not in its folder"),
        ({"model": "k.onnx"}, "does not name"),
        ([], "does not name"),
    ],
)
def test_an_index_that_cannot_be_followed(tmp_path: Path, index: object, message: str) -> None:
    write(tmp_path, "k.onnx", "voices.bin")
    (tmp_path / "index.json").write_text(json.dumps(index))
    with pytest.raises(ModelLoadError, match=message):
        find(tmp_path)


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelLoadError, match=r"no \.onnx file"):
        find(tmp_path)
    write(tmp_path, "k.onnx", "voices/readme.md")
    with pytest.raises(ModelLoadError, match=r"no voices beside k\.onnx"):
        find(tmp_path)
