"""How classifiers are asked, with models that say what a test wants."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection
from typing import Any

import pytest

from lemonade.catalog.policy.classifiers import Classifier, parse
from lemonade.errors import ContextLengthExceeded, ModelNotFound
from lemonade.inference.relay import EngineRequest
from lemonade.inference.routing import scores
from lemonade.inference.routing.evaluation import Scores
from lemonade.inference.routing.scores import Models
from lemonade.model import Model
from tests.catalog.policy.policies import LABELLED, LLM, SIMILAR, ZERO_SHOT

VECTORS = {"fix this bug": [2.0, 0.0], "a good soup": [0.0, 1.0], "cake": [0.0, -3.0], "both": [1.0, 1.0]}


class Said(Models):
    """Answers without an engine; `asked` has what was sent where."""

    def __init__(self, answer: Callable[[EngineRequest], Any]) -> None:
        super().__init__(None, None)  # type: ignore[arg-type]
        self._answer = answer
        self.asked: list[tuple[str, Any]] = []

    async def settle(self, name: str) -> None:
        """There are no providers."""

    async def ask(self, model: Model, request: EngineRequest, candidates: Collection[str]) -> bytes:
        assert request.body is not None
        self.asked.append((request.path, json.loads(request.body)))
        found = self._answer(request)
        if asyncio.iscoroutine(found):
            found = await found
        return request.check(json.dumps(found).encode(), request.asked)[0]


def vectors(request: EngineRequest) -> Any:
    texts = json.loads(request.body or b"")["input"]
    rows = [{"index": number, "embedding": VECTORS[text]} for number, text in enumerate(texts)]
    return {"data": rows[::-1]}


def find(*labels: str) -> Callable[[str], Model]:
    return lambda name: Model(name=name, recipe="llamacpp", labels=labels)


async def asked(classifier: dict[str, Any], said: Said, *labels: str, text: str = "both") -> Scores:
    return await said.scorer(find(*labels), ()).scores(parse("c", classifier), text)


async def test_the_nearest_phrase_of_a_concept_counts() -> None:
    said = Said(vectors)
    found = await asked(SIMILAR, said, "embeddings")
    assert found.labels == pytest.approx({"code": 0.5**0.5, "food": 0.5**0.5})
    assert [body["input"] for _, body in said.asked] == [["fix this bug", "a good soup", "cake"], ["both"]]
    assert (await asked(SIMILAR, said, "embeddings", text="cake")).labels == {"code": 0.0, "food": 1.0}
    assert len(said.asked) == 3
    assert (await asked(SIMILAR, said, "embeddings", text=" ")).labels == {"code": 0.0, "food": 0.0}


async def test_sets_of_phrases_are_not_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "MAX_REFERENCES", 1)
    said = Said(vectors)
    other = {**SIMILAR, "reference_phrases": {"food": ["cake"]}}
    for classifier in (SIMILAR, other, SIMILAR):
        await asked(classifier, said, "embeddings")
    assert len(said.asked) == 6


async def test_classification_models() -> None:
    said = Said(lambda request: {"labels": {"yes": 0.2, "no": 0.8}})
    assert (await asked(LABELLED, said, "classification")).labels == {"yes": 0.2, "no": 0.8}
    assert (await asked(ZERO_SHOT, said, "classification", "zero-shot")).labels == {"yes": 0.2, "no": 0.8}
    assert [body["labels"] for _, body in said.asked] == [[], ["yes", "no"]]


async def test_decision_models() -> None:
    said = Said(lambda request: {"answers": {"label": {"type": "choice", "probabilities": {"yes": 0.9, "no": 0.1}}}})
    found = await asked({**ZERO_SHOT, "prompt": "Is it?"}, said, "classification", "systemone")
    assert found.labels == {"yes": 0.9, "no": 0.1}
    question = {"type": "choice", "instructions": "Is it?", "criteria": {"yes": None, "no": None}}
    assert said.asked == [("/v1/systemone", {"state": "both", "questions": {"label": question}})]


@pytest.mark.parametrize(
    ("classifier", "labels", "answer", "words"),
    [
        (SIMILAR, ("chat",), {}, "makes no embeddings"),
        (SIMILAR, ("embeddings",), {"data": []}, "made 0 vectors of 3 texts"),
        (SIMILAR, ("embeddings",), {"data": 1}, "cannot be used"),
        (LLM, ("embeddings",), {}, "is no LLM"),
        (LLM, ("chat",), {"choices": []}, "cannot be used"),
        (LABELLED, ("classification", "zero-shot"), {"labels": {}}, "no classification"),
        (LABELLED, ("embeddings",), {}, "Classification not supported"),
        (ZERO_SHOT, ("classification",), {}, "labels of 'judge' are its own"),
    ],
)
async def test_failures_are_told(classifier: dict[str, Any], labels: tuple[str, ...], answer: Any, words: str) -> None:
    found = await asked(classifier, Said(lambda request: answer), *labels)
    assert not found.labels
    assert words in (found.failure or "")


async def test_a_model_that_is_not_there() -> None:
    def nobody(name: str) -> Model:
        raise ModelNotFound(f"There is no '{name}'.")

    found = await Said(lambda request: {}).scorer(nobody, ()).scores(parse("c", LLM), "x")
    assert found.failure == "'judge' could not be asked: There is no 'judge'."


async def test_a_model_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "TIMEOUT", 0.01)
    found = await asked(LLM, Said(lambda request: asyncio.sleep(60)), "chat")
    assert "no answer within 0.01 seconds" in (found.failure or "")


async def test_a_client_that_leaves_is_no_failure_of_the_model() -> None:
    task = asyncio.ensure_future(asked(LLM, Said(lambda request: asyncio.sleep(60)), "chat"))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_text_is_halved_until_it_fits() -> None:
    def short(request: EngineRequest) -> Any:
        text = json.loads(request.body or b"")["text"]
        if len(text) > 30:
            raise ContextLengthExceeded("too long")
        return {"labels": {"yes": 1.0}}

    said = Said(short)
    assert (await asked(LABELLED, said, "classification", text="x" * 100)).labels == {"yes": 1.0}
    assert [len(body["text"]) for _, body in said.asked] == [100, 50, 25]


class Running:
    """A residency with one model in it."""

    def __init__(self, residency_class: str) -> None:
        self.key = "builtin.judge"
        self.residency_class = residency_class

    def residents(self) -> list[Running]:
        return [self]


@pytest.mark.parametrize(
    ("running", "name", "candidates", "expected"),
    [
        ("routing_helper", "judge", (), "routing_helper"),
        ("standard", "judge", (), "standard"),
        ("standard", "other", (), "routing_helper"),
        ("routing_helper", "other", ("builtin.other",), "standard"),
    ],
)
def test_what_is_here_for_its_own_sake_is_no_helper(
    running: str, name: str, candidates: tuple[str, ...], expected: str
) -> None:
    models = Models(Running(running), None)  # type: ignore[arg-type]
    assert models._class(Model(name=name, recipe="llamacpp"), candidates) == expected


def test_a_classifier_has_no_more_than_it_needs() -> None:
    assert parse("c", SIMILAR) == Classifier(
        id="s",
        type="semantic_similarity",
        model="vectors",
        labels=("code", "food"),
        reference_phrases={"code": ("fix this bug",), "food": ("a good soup", "cake")},
    )
