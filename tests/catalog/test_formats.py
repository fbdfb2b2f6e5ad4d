from __future__ import annotations

import os
from pathlib import Path

import pytest

from lemonade.catalog.formats import mismatch
from lemonade.errors import InvalidArgument
from tests.catalog.world import World

TEXT = b"Dear reader, this is no model."
SAFETENSORS = (200).to_bytes(8, "little") + b'{"a":{"dtype"'
HEADS = {
    "gguf": b"GGUF\x03\x00\x00\x00",
    "whisper": b"lmgg\x00",
    "zip": b"PK\x03\x04",
    "pickle": b"\x80\x02}",
    "safetensors": SAFETENSORS,
    "text": TEXT,
    "page": b"<!DOCTYPE html>",
    "JSON": b'{"a": 1, "b": {"',
    "nothing": b"",
}
GOOD = {
    "llamacpp": {"gguf"},
    "whispercpp": {"gguf", "whisper"},
    "sd-cpp": {"gguf", "zip", "pickle", "safetensors"},
    "onnxruntime": set(),
    "trellis": set(HEADS),
}


@pytest.mark.parametrize("recipe", GOOD)
@pytest.mark.parametrize("kind", HEADS)
def test_files(tmp_path: Path, recipe: str, kind: str) -> None:
    file = tmp_path / "model.bin"
    file.write_bytes(HEADS[kind])
    reason = mismatch(recipe, file)
    assert (reason is None) is (kind in GOOD[recipe]), reason
    assert reason is None or str(file) in reason


def test_folders_and_pipes(tmp_path: Path) -> None:
    assert mismatch("llamacpp", tmp_path) is None
    os.mkfifo(tmp_path / "pipe")
    assert "no file" in str(mismatch("llamacpp", tmp_path / "pipe"))


@pytest.mark.parametrize("name", ["letter.txt", "letter.gguf", "letter"])
def test_a_letter_is_not_registered(world: World, name: str) -> None:
    file = world.root / name
    file.write_bytes(TEXT)
    for recipe in ("llamacpp", "whispercpp", "sd-cpp", "onnxruntime"):
        with pytest.raises(InvalidArgument) as caught:
            world.catalog.register({"model_name": "user.A", "recipe": recipe, "checkpoint": str(file)})
        assert caught.value.param == "checkpoint"
    assert not (world.paths.config / "user_models.json").exists()
