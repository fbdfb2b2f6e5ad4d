"""The host inside this process: what it makes of odd folders and odd texts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.onnxruntime.host import TEMPLATE, operations, softmax
from lemonade.errors import ContextLengthExceeded, InvalidArgument, ModelLoadError
from tests.classifiers import entailment, topics

pytestmark = pytest.mark.real


class Asked:
    """A job whose client is there."""

    def __init__(self, **body: Any) -> None:
        self._body = body

    def json(self) -> Any:
        return self._body

    def check(self) -> None:
        """Nobody has left."""


def classify(folder: Path, *, zero_shot: bool = False, **body: Any) -> dict[str, float]:
    operation = operations({"folder": str(folder), "threads": 1, "zero_shot": zero_shot})["/classify"]
    answer = operation(Asked(**body))  # type: ignore[arg-type]
    labels: dict[str, float] = answer["labels"]
    return labels


def best(labels: dict[str, float]) -> str:
    return max(labels, key=lambda label: labels[label])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the model with labels of its own, to be changed."""
    made = tmp_path / "model"
    made.mkdir()
    for path in topics().iterdir():
        if path.suffix == ".onnx":
            (made / path.name).symlink_to(path)
        else:
            shutil.copy(path, made)
    return made


def configure(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize(
    ("text", "label"),
    [
        ("My program throws an exception in the loop", "code"),
        ("How long do I boil an egg?", "food"),
        ("The champion of the league lost at home", "sport"),
    ],
)
def test_labels_of_its_own(text: str, label: str) -> None:
    labels = classify(topics(), text=text)
    assert list(labels) == ["code", "food", "sport"]
    assert best(labels) == label
    assert sum(labels.values()) == pytest.approx(1)


def test_of_a_text_that_is_too_long_the_beginning_counts() -> None:
    text = "How long do I boil an egg? "
    assert classify(topics(), text=text * 100) == classify(topics(), text=text * 1000 + "The team lost the match.")


@pytest.mark.parametrize("text", ["", "\0", "\U0001f600", "ß" * 100])
def test_odd_texts(text: str) -> None:
    assert sum(classify(topics(), text=text).values()) == pytest.approx(1)


def test_labels_of_the_request() -> None:
    labels = ["cooking", "programming", "travel"]
    for text, label in (("Bake the cake for forty minutes.", "cooking"), ("Our hotel is near the beach.", "travel")):
        found = classify(entailment(), zero_shot=True, text=text, labels=labels, template="{}")
        assert best(found) == label
        assert sum(found.values()) == pytest.approx(1)
        long = classify(entailment(), zero_shot=True, text=text * 300, labels=labels, template="{}")
        assert best(long) == label
    said = classify(entailment(), zero_shot=True, text="Bake the cake.", labels=labels)
    assert said == classify(entailment(), zero_shot=True, text="Bake the cake.", labels=labels, template=TEMPLATE)


def test_one_label_is_compared_with_its_contrary() -> None:
    for text, fits in (("Bake the cake for forty minutes.", True), ("Our hotel is near the beach.", False)):
        found = classify(entailment(), zero_shot=True, text=text, labels=["cooking"], template="{}")
        assert (found["cooking"] > 0.5) is fits


def test_what_cannot_be_asked() -> None:
    with pytest.raises(InvalidArgument, match="must not be empty"):
        classify(entailment(), zero_shot=True, text="x", labels=[])
    with pytest.raises(ContextLengthExceeded, match="label is longer"):
        classify(entailment(), zero_shot=True, text="x", labels=["word " * 1000])


def test_several_labels_may_fit_at_once(folder: Path) -> None:
    configure(folder, problem_type="multi_label_classification")
    labels = classify(folder, text="Fix this bug in my Python script.")
    assert best(labels) == "code"
    assert all(0 <= score <= 1 for score in labels.values())
    assert sum(labels.values()) != pytest.approx(1)


def test_labels_without_names(folder: Path) -> None:
    configure(folder, id2label={"1": "food"})
    assert list(classify(folder, text="x")) == ["LABEL_0", "food", "LABEL_2"]


def test_the_length_is_what_the_tokenizer_says(folder: Path) -> None:
    text = "My program throws an exception in the loop. " + "Simmer the onions in butter until soft. " * 6
    assert best(classify(folder, text=text)) == "food"
    (folder / "tokenizer_config.json").write_text('{"model_max_length": 12}')
    assert best(classify(folder, text=text)) == "code"


def test_what_is_no_classifier(folder: Path) -> None:
    with pytest.raises(ModelLoadError, match="no `entailment`"):
        classify(folder, zero_shot=True, text="x", labels=["a"])
    (folder / "model.onnx").unlink()
    from tests.classifiers import ENCODER

    (folder / "model.onnx").symlink_to(ENCODER.fetch())
    with pytest.raises(ModelLoadError, match="no text classifier"):
        classify(folder, text="x")


def test_softmax_of_large_numbers() -> None:
    assert softmax([1000.0, 1000.0]) == [0.5, 0.5]
    assert softmax([-1000.0, 1000.0]) == [0.0, 1.0]
