from __future__ import annotations

import pytest

from lemonade.model import MODEL_TYPES, Checkpoint, Model, deployment_mode


@pytest.mark.parametrize(
    ("text", "repository", "variant"),
    [
        ("owner/name:Q4_0", "owner/name", "Q4_0"),
        ("owner/name", "owner/name", ""),
        ("owner/name:a:b", "owner/name", "a:b"),
        ("package==1.0:inside/file.gguf", "package==1.0", "inside/file.gguf"),
    ],
)
def test_checkpoints_are_split_at_the_first_colon(text: str, repository: str, variant: str) -> None:
    checkpoint = Checkpoint.parse(text)
    assert (checkpoint.repository, checkpoint.variant) == (repository, variant)
    assert str(checkpoint) == text


@pytest.mark.parametrize(
    ("labels", "mode", "kind"),
    [
        (("embeddings",), "embeddings", "embedding"),
        (("embedding",), "embeddings", "embedding"),
        (("custom", "image", "chat"), "chat", "llm"),
        (("upscaling", "image"), "image", "image"),
        (("classifier",), "classification", "classification"),
        (("3d",), "3d", "mesh"),
        (("hot",), "chat", "llm"),
    ],
)
def test_the_mode_is_chat_or_the_first_label_that_names_one(labels: tuple[str, ...], mode: str, kind: str) -> None:
    model = Model(name="X", recipe="llamacpp", labels=labels)
    assert (model.mode, model.type) == (mode, kind)


def test_labels_that_name_no_mode() -> None:
    assert deployment_mode("vision") is None
    assert {deployment_mode(mode) for mode in MODEL_TYPES} == set(MODEL_TYPES)


def test_names() -> None:
    model = Model(name="X", recipe="collection.omni", origin="user", source="local_path")
    assert model.canonical == "user.X"
    assert model.is_collection
    assert model.is_local
    assert model.checkpoint == ""
    assert not Model(name="X", recipe="llamacpp", source="local_upload").is_local
