from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from lemonade.hub.neighbours import Found, find

PROJECTOR = "application/vnd.ollama.image.projector"
MODEL = "application/vnd.ollama.image.model"


def put(path: Path, content: bytes = b"GGUF") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def ollama(models: Path, name: str, tag: str, **layers: bytes) -> None:
    kinds = {"model": MODEL, "projector": PROJECTOR}
    rows = []
    for kind, content in layers.items():
        digest = f"{name}{kind}"
        put(models / "blobs" / f"sha256-{digest}", content)
        rows.append({"mediaType": kinds[kind], "digest": f"sha256:{digest}"})
    put(models / "manifests" / "host" / "library" / name / tag, json.dumps({"layers": rows}).encode())


def test_ollama(tmp_path: Path) -> None:
    models = tmp_path / "elsewhere"
    ollama(models, "eyes", "latest", model=b"GGUF", projector=b"GGUF")
    ollama(models, "plain", "1b", model=b"GGUF1")
    ollama(models, "torch", "1b", model=b"PK")
    put(models / "manifests" / "host" / "library" / "broken" / "x", b"{")
    found = find({"OLLAMA_MODELS": str(models), "HF_HUB_CACHE": str(tmp_path / "none")}, tmp_path)
    assert [(each.tool, each.name, set(each.checkpoints), each.size) for each in found] == [
        ("ollama", "eyes", {"main", "mmproj"}, 4),
        ("ollama", "plain-1b", {"main"}, 5),
    ]


@pytest.mark.parametrize("folder", [".lmstudio/models", ".cache/lm-studio/models"])
def test_lm_studio(tmp_path: Path, folder: str) -> None:
    main = put(tmp_path / folder / "o" / "n" / "m-00001-of-00002.gguf")
    put(tmp_path / folder / "o" / "n" / "m-00002-of-00002.gguf")
    put(tmp_path / folder / "o" / "n" / "broken.gguf", b"<html>")
    assert find({"HF_HUB_CACHE": str(tmp_path / "none")}, tmp_path) == [
        Found(tool="lm-studio", name="m", checkpoints={"main": str(main)}, size=4)
    ]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / ".lmstudio" / "models"
    put(folder / "real.gguf")
    os.mkfifo(folder / "pipe.gguf")
    assert [each.name for each in find({"HF_HUB_CACHE": str(tmp_path / "none")}, tmp_path)] == ["real"]


def test_the_hugging_face_cache(tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    for name in ("models--o--n", "models--pypi--thing==1.0", "models--gone--n"):
        put(hub / name / "refs" / "main", b"abc")
    put(hub / "models--o--n" / "snapshots" / "abc" / "deep" / "m.gguf")
    put(hub / "models--o--n" / "snapshots" / "abc" / "deep" / "mmproj.gguf")
    put(hub / "models--o--n" / "snapshots" / "old" / "other.gguf")
    put(hub / "models--pypi--thing==1.0" / "snapshots" / "abc" / "ours.gguf")
    checkpoints = {"main": "o/n:deep/m.gguf", "mmproj": "o/n:deep/mmproj.gguf"}
    assert find({"HF_HUB_CACHE": str(hub)}, tmp_path) == [
        Found(tool="huggingface", name="m", checkpoints=checkpoints, size=4)
    ]
