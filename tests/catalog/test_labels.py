from __future__ import annotations

import pytest

from lemonade.catalog import labels
from lemonade.errors import InvalidArgument


@pytest.mark.parametrize(
    ("recipe", "given", "message"),
    [
        (
            "llamacpp",
            ["classification"],
            "Model 'user.M': recipe 'llamacpp' cannot serve 'classification'. It serves 'chat', 'embeddings', "
            "'reranking'. Omit the label to deploy as 'chat'.",
        ),
        (
            "llamacpp",
            ["chat", "embeddings"],
            "Model 'user.M': a model deploys in exactly one mode, but these labels name two: 'chat' and 'embeddings'. "
            "Register one model per mode.",
        ),
        # Labels are looked at in their order, and for each one the recipe is asked first.
        ("llamacpp", ["chat", "tts", "embeddings"], "recipe 'llamacpp' cannot serve 'tts'"),
        ("llamacpp", ["chat", "embeddings", "tts"], "these labels name two: 'chat' and 'embeddings'"),
        ("whispercpp", ["chat"], "It serves 'transcription'. Omit the label to deploy as 'transcription'."),
        ("collection.omni", ["chat", "image"], "these labels name two: 'chat' and 'image'"),
        ("llamacpp", ["zero-shot"], "'zero-shot' is said of classifiers that take their labels from each request"),
        ("llamacpp", ["systemone", "zero-shot", "chat"], "but this model deploys as 'chat'"),
        ("kokoro", ["zero-shot"], "but this model deploys as 'tts'"),
    ],
)
def test_labels_of_models_that_cannot_exist(recipe: str, given: list[str], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        labels.refuse("user.M", recipe, given)
    assert message in caught.value.message
    assert caught.value.param == "labels"


@pytest.mark.parametrize(
    ("recipe", "given"),
    [
        ("llamacpp", []),
        ("llamacpp", ["embedding", "embeddings"]),
        ("llamacpp", ["systemone", "classification"]),
        ("onnxruntime", ["classification", "classifier", "zero-shot"]),
        ("onnxruntime", ["zero-shot"]),
        ("llamacpp", ["zero-shot", "systemone", "classification"]),
        ("llamacpp", ["vision", "hot", "made-up"]),
        ("collection.omni", ["image"]),
    ],
)
def test_legal_labels(recipe: str, given: list[str]) -> None:
    labels.refuse("user.M", recipe, given)


@pytest.mark.parametrize(
    ("recipe", "given", "complete"),
    [
        ("llamacpp", ["hot"], ("hot", "chat")),
        ("llamacpp", ["embedding", "embedding"], ("embedding",)),
        ("whispercpp", [], ("transcription", "realtime-transcription")),
        ("kokoro", ["custom"], ("custom", "tts")),
        ("collection.omni", [], ("chat",)),
    ],
)
def test_what_is_added(recipe: str, given: list[str], complete: tuple[str, ...]) -> None:
    assert labels.complete(recipe, given) == complete


def test_older_flags_are_labels() -> None:
    definition = {"embedding": True, "vision": False, "reasoning": True, "labels": ["hot", "reasoning"]}
    assert labels.requested(definition) == ["embeddings", "reasoning", "hot"]


@pytest.mark.parametrize(("definition", "param"), [({"vision": "yes"}, "vision"), ({"labels": "chat"}, "labels")])
def test_wrong_types_are_named(definition: dict[str, object], param: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        labels.requested(definition)
    assert caught.value.param == param
