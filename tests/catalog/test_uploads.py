from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.catalog.uploads import find_upload
from lemonade.errors import InvalidArgument


def put(models: Path, *names: str) -> None:
    for name in names:
        file = models / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"GGUF")


def test_a_gguf_and_its_projector(tmp_path: Path) -> None:
    put(tmp_path, "models--a-b/deep/mmproj-x.gguf", "models--a-b/deep/x.gguf", "models--a-b/readme.md")
    assert find_upload(tmp_path, "a/b", recipe="llamacpp", projector=False) == {"main": "models--a-b/deep/x.gguf"}
    both = find_upload(tmp_path, "a/b", recipe="llamacpp", projector=True)
    assert both == {"main": "models--a-b/deep/x.gguf", "mmproj": "models--a-b/deep/mmproj-x.gguf"}


@pytest.mark.parametrize(
    ("recipe", "file", "main"),
    [
        ("ryzenai-llm", "genai_config.json", "models--m/v"),
        ("whispercpp", "ggml.bin", "models--m/v/ggml.bin"),
        ("fasterwhisper", "model.bin", "models--m/v"),
        ("onnxruntime", "model.onnx", "models--m/v"),
        ("kokoro", "index.json", "models--m"),
    ],
)
def test_other_recipes(tmp_path: Path, recipe: str, file: str, main: str) -> None:
    put(tmp_path, f"models--m/v/{file}")
    assert find_upload(tmp_path, "m", recipe=recipe, projector=False) == {"main": main}


@pytest.mark.parametrize("projector", [False, True])
def test_nothing_to_import(tmp_path: Path, projector: bool) -> None:
    with pytest.raises(InvalidArgument, match="no folder"):
        find_upload(tmp_path, "m", recipe="llamacpp", projector=projector)
    put(tmp_path, "models--m/mmproj.gguf" if not projector else "models--m/m.gguf")
    with pytest.raises(InvalidArgument, match="holds n"):
        find_upload(tmp_path, "m", recipe="llamacpp", projector=projector)
