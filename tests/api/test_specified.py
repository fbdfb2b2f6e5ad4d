"""The specification's examples of the routes about models: the same model on the disk, the same answer, byte for byte.

Where an example shows a machine with a GPU, the backend of the machine that runs the tests stands in its place.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, gguf

QWEN = "/v1/models/Qwen3-0.6B-GGUF"
#: The context is the model's own, and small enough in memory for every machine: of one layer.
HEADER = {
    "general.architecture": "qwen3",
    "qwen3.context_length": 40960,
    "qwen3.block_count": 1,
    "qwen3.embedding_length": 1024,
    "qwen3.attention.head_count": 16,
    "qwen3.attention.head_count_kv": 8,
    "qwen3.attention.key_length": 128,
    "tokenizer.chat_template": "{% for tool in tools %}{{ tool }}{% endfor %}",
}
ARGUMENTS = "--temp 0.6 --top-p 0.85 --top-k 20 --min-p 0.0 --repeat-penalty 1.0 --parallel 1"


def put(daemon: Daemon, repository: str, name: str, content: bytes, size: int) -> Path:
    """A file in the cache as the hub's own tools leave it; beyond its content it takes no space."""
    folder = daemon.folder / "hub" / f"models--{repository.replace('/', '--')}"
    snapshot = folder / "snapshots" / "c0ffee"
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text("c0ffee")
    snapshot.mkdir(parents=True)
    with (snapshot / name).open("wb") as file:
        file.write(content)
        file.truncate(size)
    return snapshot / name


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("site"), config={"disable_model_filtering": True})
    put(one, "unsloth/Qwen3-0.6B-GGUF", "Qwen3-0.6B-Q4_0.gguf", gguf(HEADER), 382_156_480)
    weights = put(one, "lemonade-sdk/phishing-email-detection-distilbert-ONNX", "model.onnx", b"onnx", 1 << 28)
    for name in ("tokenizer.json", "config.json"):
        weights.with_name(name).write_text("{}")
    with one:
        yield one


def same(answer: Any, example: str) -> None:
    """Also the order of the keys."""
    assert json.dumps(answer, indent=1) == json.dumps(json.loads(example), indent=1)


MODEL = """{
  "id": "Qwen3-0.6B-GGUF",
  "created": 1234567890,
  "object": "model",
  "owned_by": "lemonade",
  "checkpoint": "unsloth/Qwen3-0.6B-GGUF:Q4_0",
  "recipe": "llamacpp",
  "size": 0.356,
  "max_context_window": 40960,
  "context_length": 40960,
  "downloaded": true,
  "update_available": false,
  "suggested": true,
  "labels": ["chat", "reasoning", "tool-calling"],
  "components": [],
  "checkpoints": {"main": "unsloth/Qwen3-0.6B-GGUF:Q4_0"},
  "checkpoint_status": [
    {"type": "main", "present": true, "required": true, "registry": "huggingface"}
  ],
  "source": "huggingface",
  "registry_source": "huggingface",
  "recipe_options": {}
}"""
CLASSIFIER = """{
  "id": "Phishing-Email-Detection-ONNX",
  "created": 1234567890,
  "object": "model",
  "owned_by": "lemonade",
  "checkpoint": "lemonade-sdk/phishing-email-detection-distilbert-ONNX",
  "recipe": "onnxruntime",
  "size": 0.25,
  "downloaded": true,
  "update_available": false,
  "suggested": false,
  "labels": ["classification"],
  "components": [],
  "checkpoints": {"main": "lemonade-sdk/phishing-email-detection-distilbert-ONNX"},
  "checkpoint_status": [
    {"type": "main", "present": true, "required": true, "registry": "huggingface"}
  ],
  "source": "huggingface",
  "registry_source": "huggingface",
  "recipe_options": {}
}"""


def test_the_listing(site: Daemon) -> None:
    same(site.get("/v1/models").json(), f'{{"object": "list", "data": [{CLASSIFIER}, {MODEL}]}}')


def test_one_model(site: Daemon) -> None:
    same(site.get(QWEN).json(), MODEL)
    with_path = site.get(f"{QWEN}?include_paths=true").json()["checkpoint_status"]
    path = with_path[0].pop("path")
    assert Path(path).is_file() and with_path == json.loads(MODEL)["checkpoint_status"]


def test_its_files(site: Daemon) -> None:
    example = """{
      "model_id": "Qwen3-0.6B-GGUF",
      "files": [
        {"name": "Qwen3-0.6B-Q4_0.gguf", "role": "main", "size_bytes": 382156480, "exists": true}
      ]
    }"""
    same(site.get(f"{QWEN}/files").json(), example)


def options(model: str, saved: str, effective_size: int, resolved: int, arguments: str) -> str:
    layer = """{
        "auto_evict": null,
        "auto_update": null,
        "ctx_size": %d,
        "downsize_idle_timeout": 60,
        "evict_idle_timeout": 300,
        "evict_weight_factor": 1.0,
        "llamacpp_args": "%s",
        "llamacpp_backend": "system",
        "llamacpp_device": "",
        "merge_args": true,
        "model_name": "%s"
      }"""
    return f"""{{
      "model_name": "{model}",
      "recipe": "llamacpp",
      "saved": {saved},
      "effective": {layer % (effective_size, arguments, model)},
      "defaults": {layer % (-1, arguments, model)},
      "resolved_ctx_size": {resolved}
    }}"""


def test_its_options(site: Daemon) -> None:
    same(site.get(f"{QWEN}/options").json(), options("Qwen3-0.6B-GGUF", "{}", -1, 40960, ARGUMENTS))


def test_saving_and_erasing_options_of_a_model_that_is_not_here(site: Daemon) -> None:
    path = "/v1/models/Qwen3-4B-GGUF/options"
    saved = site.post(path, {"ctx_size": 8192}).json()
    same(saved, options("Qwen3-4B-GGUF", '{"ctx_size": 8192}', 8192, 8192, "--parallel 1"))
    erased = site.ask("DELETE", path).json()
    # How much an unknown file leaves room for is the machine's.
    same(erased, options("Qwen3-4B-GGUF", "{}", -1, erased["resolved_ctx_size"], "--parallel 1"))
    assert 0 < erased["resolved_ctx_size"] <= 1 << 20
