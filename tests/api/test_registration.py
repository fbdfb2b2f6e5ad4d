from __future__ import annotations

import json
from typing import Any

import pytest

from tests.daemon import Daemon

REGISTER = "/v1/models/register"
PHI = {"model_name": "user.Phi", "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q4_K_M", "recipe": "llamacpp"}


def test_a_definition_is_kept(daemon: Daemon) -> None:
    answer = daemon.post(REGISTER, PHI).json()
    model = answer.pop("model")
    assert answer == {"status": "success", "model_name": "Phi", "canonical_model_name": "user.Phi"}
    assert model == daemon.get("/v1/models/Phi").json()
    assert model == {
        "id": "Phi",
        "created": 1234567890,
        "object": "model",
        "owned_by": "lemonade",
        "checkpoint": PHI["checkpoint"],
        "checkpoints": {"main": PHI["checkpoint"]},
        "checkpoint_status": [{"type": "main", "present": False, "required": True, "registry": "huggingface"}],
        "recipe": "llamacpp",
        "downloaded": False,
        "update_available": False,
        "suggested": True,
        "labels": ["chat", "custom"],
        "components": [],
        "source": "huggingface",
        "registry_source": "huggingface",
        "recipe_options": {},
    }
    assert "Phi" not in [row["id"] for row in daemon.get("/v1/models").json()["data"]]
    assert "Phi" in [row["id"] for row in daemon.get("/v1/models?show_all=true").json()["data"]]


def test_registering_again_replaces(daemon: Daemon) -> None:
    again = {**PHI, "checkpoint": "unsloth/Phi-4-mini-instruct-GGUF:Q8_0", "recipe_options": {"ctx_size": 4096}}
    model = daemon.post(REGISTER, again).json()["model"]
    assert (model["checkpoint"], model["recipe_options"]) == (again["checkpoint"], {"ctx_size": 4096})


@pytest.mark.parametrize(
    ("address", "checkpoint", "source"),
    [
        ("https://huggingface.co/o/n-GGUF/blob/main/a/m-Q4_0.gguf", "o/n-GGUF:a/m-Q4_0.gguf", "huggingface"),
        ("https://huggingface.co/o/n-GGUF/resolve/main/m.gguf?download=true", "o/n-GGUF:m.gguf", "huggingface"),
        ("hf.co/o/n-GGUF:Q4_K_M", "o/n-GGUF:Q4_K_M", "huggingface"),
        ("https://huggingface.co/o/n", "o/n", "huggingface"),
        (
            "https://www.modelscope.cn/models/o/n-GGUF/file/view/master/m-Q8_0.gguf",
            "o/n-GGUF:m-Q8_0.gguf",
            "modelscope",
        ),
    ],
)
def test_addresses_of_hubs(daemon: Daemon, address: str, checkpoint: str, source: str) -> None:
    answer = daemon.post(REGISTER, {"model_name": "user.FromWeb", "recipe": "llamacpp", "checkpoint": address})
    model = answer.json()["model"]
    assert (model["checkpoint"], model["source"], model["registry_source"]) == (checkpoint, source, source)


@pytest.mark.parametrize(
    ("flag", "label"),
    [("embedding", "embeddings"), ("reranking", "reranking"), ("vision", "vision"), ("reasoning", "reasoning")],
)
def test_flags_are_labels(daemon: Daemon, flag: str, label: str) -> None:
    body = {"model_name": "user.Flag", "checkpoint": "o/n-GGUF:Q8_0", "recipe": "llamacpp", flag: True}
    labels = daemon.post(REGISTER, body).json()["model"]["labels"]
    assert label in labels
    assert ("chat" in labels) == (label in ("vision", "reasoning"))


def test_a_collection(daemon: Daemon) -> None:
    body = {"model_name": "user.Kit", "recipe": "collection.omni", "components": ["Qwen3-0.6B-GGUF", "Phi"]}
    daemon.post(REGISTER, PHI)
    answer = daemon.post(REGISTER, body).json()
    assert (answer["model_name"], answer["canonical_model_name"]) == ("user.Kit", "user.Kit")
    model = answer["model"]
    assert (model["id"], model["components"]) == ("user.Kit", ["Qwen3-0.6B-GGUF", "Phi"])
    assert [each["id"] for each in model["models"]] == model["components"]
    assert daemon.get("/v1/models/Kit").json()["id"] == "user.Kit"


def body(**changes: Any) -> dict[str, Any]:
    made = {"model_name": "user.Bad", "recipe": "llamacpp", "checkpoint": "o/n:Q4_K_M", **changes}
    return {key: value for key, value in made.items() if value is not ...}


@pytest.mark.parametrize(
    ("definition", "code", "param"),
    [
        (b"{bad", "invalid_json", None),
        (b"[]", "invalid_json", None),
        (body(model_name=...), "missing_argument", "model_name"),
        (body(model_name=5), "invalid_argument", "model_name"),
        (body(model_name="Bad"), "invalid_argument", "model_name"),
        (body(model_name="user."), "invalid_argument", "model_name"),
        (body(model_name="extra.Bad"), "invalid_argument", "model_name"),
        (body(model_name="builtin.Bad"), "invalid_argument", "model_name"),
        (body(model_name="user.extra.Bad"), "invalid_argument", "model_name"),
        (body(model_name="user.builtin.Bad"), "invalid_argument", "model_name"),
        (body(recipe=...), "missing_argument", "recipe"),
        (body(recipe="nope"), "invalid_argument", "recipe"),
        (body(source="nope"), "invalid_argument", "source"),
        (body(checkpoint=5), "invalid_argument", "checkpoint"),
        (body(checkpoint="o/n-GGUF"), "invalid_argument", "checkpoint"),
        (body(checkpoint="../../etc/passwd:x"), "invalid_argument", "checkpoint"),
        (body(checkpoint="https://example.org/o/n"), "invalid_argument", "checkpoint"),
        (body(checkpoint="https://huggingface.co/o"), "invalid_argument", "checkpoint"),
        (body(checkpoint="https://hf.co/o/n:Q4_0", source="modelscope"), "invalid_argument", "source"),
        (body(checkpoint=..., checkpoints={"mmproj": "o/n:m.gguf"}), "invalid_argument", "checkpoints"),
        (body(labels=["classification"]), "invalid_argument", "labels"),
        (body(labels=["chat", "embeddings"]), "invalid_argument", "labels"),
        (body(labels=["chat"], embedding=True), "invalid_argument", "labels"),
        (body(labels="chat"), "invalid_argument", "labels"),
        (body(recipe_options={"nope": 1}), "", "nope"),
        (body(recipe_options={"ctx_size": 0}), "", "ctx_size"),
        (body(models=[]), "invalid_argument", "models"),
        (body(recipe="collection.omni", checkpoint=..., components=[]), "invalid_argument", "components"),
        (body(recipe="collection.omni", checkpoint=..., components=["nobody"]), "invalid_argument", "components"),
        (body(recipe="collection.omni", checkpoint=..., components=["user.Bad"]), "invalid_argument", "components"),
        (body(checkpoint="/nowhere/x.gguf", source="local_path"), "invalid_argument", "checkpoint"),
    ],
)
def test_what_is_refused_is_not_kept(daemon: Daemon, definition: Any, code: str, param: str | None) -> None:
    for path in (REGISTER, "/v1/pull"):
        if path == "/v1/pull" and isinstance(definition, dict) and {"model_name", "recipe"} - definition.keys():
            continue
        answer = daemon.post(path, definition)
        if path == "/v1/pull" and param == "models":
            continue
        assert answer.status == 400
        assert (answer.error.get("code", ""), answer.error.get("param")) == (code, param)
    file = daemon.folder / "config" / "user_models.json"
    assert "Bad" not in (json.loads(file.read_text()) if file.exists() else {})
    assert "Bad" not in [row["id"] for row in daemon.get("/v1/models?show_all=true").json()["data"]]


def test_get_is_refused(daemon: Daemon) -> None:
    assert daemon.get(REGISTER).status == 405
