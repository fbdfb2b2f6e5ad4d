"""Classification on its whole way: a daemon, ONNX Runtime and llama.cpp themselves, and small real models."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.bert import minilm
from tests.classifiers import entailment, topics
from tests.daemon import Answer, Daemon, events, gguf, wait_for
from tests.tiny_models import decision_model, text_model
from tests.weights import smollm2

pytestmark = pytest.mark.real

CODE, SOUP = "My program throws an exception in the loop", "Simmer the onions in butter until soft."
LABELS = ["cooking", "programming", "travel"]


def add(daemon: Daemon, name: str, where: Path, *labels: str, recipe: str = "onnxruntime") -> None:
    definition = {"model_name": f"user.{name}", "recipe": recipe, "checkpoint": str(where), "labels": list(labels)}
    answer = daemon.post("/v1/pull", {**definition, "source": "local_path"})
    assert answer.status == 200, answer.body


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with classifiers of all kinds, vectors, and two LLMs of random weights; no fake engine."""
    settings = {"llamacpp": {"args": "--threads 1"}, "onnxruntime": {"args": "--threads 1"}}
    one = Daemon(tmp_path_factory.mktemp("world"), fake_engine=False, config=settings)
    for name in ("small", "big"):
        (one.models / f"{name}.gguf").symlink_to(text_model())
    (one.models / "SmolLM2.gguf").symlink_to(smollm2())
    with one:
        add(one, "topics", topics(), "classification")
        add(one, "entailment", entailment(), "classification", "zero-shot")
        add(one, "decisions", decision_model(), "classification", "systemone", recipe="llamacpp")
        add(one, "vectors", minilm(), "embeddings", recipe="llamacpp")
        yield one


def classify(world: Daemon, **body: Any) -> Answer:
    return world.post("/v1/classify", body, timeout=120)


def scores(answer: Answer) -> dict[str, float]:
    assert answer.status == 200, answer.body
    told = answer.json()
    assert told["object"] == "classification"
    found: dict[str, float] = told["labels"]
    assert list(found.values()) == sorted(found.values(), reverse=True)
    return found


def test_labels_of_its_own(world: Daemon) -> None:
    found = scores(classify(world, model="topics", input=CODE))
    assert next(iter(found)) == "code"
    assert sum(found.values()) == pytest.approx(1)
    assert classify(world, model="user.topics", text=SOUP, input=CODE).json()["model"] == "user.topics"
    assert next(iter(scores(classify(world, model="topics", text=SOUP, input=CODE)))) == "food"
    assert list(scores(classify(world, model="topics", input=CODE, top_k=1))) == ["code"]
    entry = world.entry("topics")
    assert (entry["type"], entry["recipe"], entry["device"]) == ("classification", "onnxruntime", "cpu")


def test_labels_of_the_request(world: Daemon) -> None:
    found = scores(classify(world, model="entailment", input=SOUP, labels=LABELS))
    assert next(iter(found)) == "cooking"
    assert sum(found.values()) == pytest.approx(1)


def test_a_decision_model(world: Daemon) -> None:
    found = scores(classify(world, model="decisions", input=SOUP, labels=LABELS, top_k=2))
    assert len(found) == 2
    assert 0 < sum(found.values()) <= 1.0001
    assert scores(classify(world, model="decisions", input=SOUP, labels=LABELS, top_k=2)) == pytest.approx(
        found, abs=0.01
    )
    answer = classify(world, model="decisions", input="word " * 20_000, labels=LABELS)
    assert (answer.status, answer.error["code"]) == (400, "context_length_exceeded")


def test_the_one_model_that_is_loaded_need_not_be_named(world: Daemon) -> None:
    world.post("/v1/unload", {})
    answer = classify(world, input=CODE)
    assert (answer.status, answer.error["param"]) == (400, "model")
    assert "no single classification model is loaded" in answer.error["message"]
    scores(classify(world, model="topics", input=CODE))
    assert next(iter(scores(classify(world, input=SOUP)))) == "food"


@pytest.mark.parametrize(
    ("body", "param", "words"),
    [
        ({"model": 1, "input": "x"}, "model", "'model' must be a string"),
        ({"model": "topics"}, "input", "Missing 'input' (or 'text') string in classify request"),
        ({"model": "topics", "input": None}, "input", "Missing 'input'"),
        ({"model": "topics", "input": ["x"]}, "input", "'input' must be a string"),
        ({"model": "topics", "text": 1}, "text", "'text' must be a string"),
        ({"model": "topics", "input": " "}, "input", "must not be empty"),
        ({"model": "topics", "text": "", "input": "x"}, "text", "must not be empty"),
        ({"model": "topics", "input": "x", "top_k": 0}, "top_k", "'top_k' must be an integer >= 1"),
        ({"model": "topics", "input": "x", "top_k": 1_000_001}, "top_k", "<= 1000000"),
        ({"model": "topics", "input": "x", "top_k": 1.5}, "top_k", "an integer"),
        ({"model": "topics", "input": "x", "labels": ["a"]}, "labels", "are its own"),
        ({"model": "entailment", "input": "x"}, "labels", "there are none"),
        ({"model": "entailment", "input": "x", "labels": []}, "labels", "there are none"),
        ({"model": "entailment", "input": "x", "labels": ["a", "a"]}, "labels[1]", "is there twice"),
        ({"model": "entailment", "input": "x", "labels": ["a", " "]}, "labels[1]", "must not be empty"),
        ({"model": "entailment", "input": "x", "labels": ["l" + str(n) for n in range(256)]}, "labels", "255 at most"),
        ({"model": "entailment", "input": "x", "labels": [1]}, "labels[0]", "a string"),
        ({"model": "small", "input": "x"}, "model", "Classification not supported by 'small' (llamacpp)"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    world: Daemon, body: dict[str, Any], param: str, words: str
) -> None:
    loaded = {entry["model_name"] for entry in world.loaded()}
    answer = classify(world, **body)
    assert (answer.status, answer.error["param"]) == (400, param)
    assert words in answer.error["message"]
    assert {entry["model_name"] for entry in world.loaded()} == loaded


def test_models_that_cannot_classify(world: Daemon, tmp_path: Path) -> None:
    assert classify(world, model="nobody", input="x").error["code"] == "model_not_found"
    add(world, "no-decisions", text_model(), "classification", "systemone", recipe="llamacpp")
    answer = classify(world, model="no-decisions", input="x", labels=["a", "b"])
    assert (answer.status, answer.error["code"]) == (400, "model_load_refused")
    assert "is no decision model" in answer.error["message"]
    strange = tmp_path / "strange.gguf"
    strange.write_bytes(gguf({"general.architecture": "llama", "llama.decision.type": "oracle"}))
    add(world, "strange", strange, "classification", "systemone", recipe="llamacpp")
    answer = classify(world, model="strange", input="x", labels=["a", "b"])
    assert (answer.status, answer.error["code"]) == (400, "model_load_refused")
    assert "type 'oracle'" in answer.error["message"]
    add(world, "misnamed", topics(), "classification", "zero-shot")
    answer = classify(world, model="misnamed", input="x", labels=["a"])
    assert (answer.status, answer.error["code"]) == (500, "model_load_error")
    assert "no `entailment`" in answer.error["message"]


RULE = {"id": "hit", "route_to": "big"}
CLASSIFIERS = {
    "classifier": {"id": "c", "type": "classifier", "model": "topics", "labels": ["code", "food", "sport"]},
    "zero_shot": {"id": "c", "type": "zero_shot", "model": "entailment", "labels": LABELS, "prompt": "{}"},
    "semantic_similarity": {
        "id": "c",
        "type": "semantic_similarity",
        "model": "vectors",
        "reference_phrases": {"cooking": ["Bake the cake.", "Stir the soup."], "code": ["Fix the bug in the program."]},
    },
}


def policy(classifier: dict[str, Any], **band: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "recipe": "collection.router",
        "components": ["small", "big", classifier["model"]],
        "routing": {
            "candidates": ["small", "big"],
            "default_model": "small",
            "classifiers": [classifier],
            "rules": [{**RULE, "match": {"classifier": "c", **band}}],
        },
    }


@pytest.mark.parametrize(
    ("kind", "label", "low"),
    [("classifier", "food", 0.6), ("zero_shot", "cooking", 0.6), ("semantic_similarity", "cooking", 0.3)],
)
def test_real_classifiers_route_real_requests(world: Daemon, kind: str, label: str, low: float) -> None:
    world.post("/v1/unload", {})
    document = policy(CLASSIFIERS[kind], label=label, min_score=low)
    assert world.post("/v1/models/register", {"model_name": "user.router", **document}).status == 200
    for text, route in ((SOUP, "big"), (CODE, "small")):
        answer = world.chat("user.router", text, route_trace=True, max_tokens=4)
        assert answer.status == 200, answer.body
        told = answer.json()
        decision = told["x_lemonade_route"]
        assert decision["route_to"] == told["model"] == route
        (step,) = decision["trace"]
        assert step["condition"] == "classifier:c"
        assert (step["score"] >= low) is step["result"] is (route == "big")
        assert "rationale" not in step
        assert told["choices"][0]["message"]["content"]
        streamed = world.chat("user.router", text, stream=True, max_tokens=4)
        first = json.loads(events(streamed.body)[0])
        assert first["x_lemonade_route"]["route_to"] == first["model"] == route
    assert world.entry(CLASSIFIERS[kind]["model"])["residency_class"] == "routing_helper"


def test_a_request_in_the_format_of_anthropic(world: Daemon) -> None:
    document = policy(CLASSIFIERS["classifier"], label="food", min_score=0.6)
    assert world.post("/v1/models/register", {"model_name": "user.router", **document}).status == 200
    for text, route in ((SOUP, "big"), (CODE, "small")):
        body = {"model": "user.router", "max_tokens": 4, "messages": [{"role": "user", "content": text}]}
        answer = world.post("/v1/messages", body)
        assert answer.status == 200, answer.body
        assert answer.headers["x-lemonade-route"] == ("hit" if route == "big" else "default")
        assert answer.json()["model"] == answer.json()["x_lemonade_route"]["route_to"] == route
        first = json.loads(events(world.post("/v1/messages", {**body, "stream": True}).body)[0])
        assert first["type"] == "message_start"
        assert first["message"]["model"] == first["x_lemonade_route"]["route_to"] == route


def test_a_policy_with_the_wrong_kind_of_classifier_is_refused(world: Daemon) -> None:
    for classifier, words in (
        ({**CLASSIFIERS["classifier"], "model": "entailment"}, "use it in a classifier of the type `zero_shot`"),
        ({**CLASSIFIERS["zero_shot"], "model": "topics"}, "use it in a classifier of the type `classifier`"),
    ):
        document = policy(classifier, label=classifier["labels"][0])
        answer = world.post("/v1/models/register", {"model_name": "user.wrong", **document})
        assert (answer.status, answer.error["param"]) == (400, "routing.classifiers[0].model")
        assert words in answer.error["message"]


def test_a_decision_model_routes(world: Daemon) -> None:
    classifier = {"id": "c", "type": "zero_shot", "model": "decisions", "labels": LABELS, "prompt": "What is it about?"}
    document = policy(classifier, label="cooking", min_score=0)
    decision = world.post("/v1/routing/validate", {"policy": document, "prompt": SOUP}).json()["decision"]
    assert decision["route_to"] == "big"
    assert 0 <= decision["trace"][0]["score"] <= 1


def test_a_real_llm_chooses(world: Daemon) -> None:
    """What it chooses is its own business; that it chooses one of the models, and says why, is ours."""
    document = policy({"id": "c", "type": "llm", "model": "SmolLM2", "prompt": "x", "labels": ["a"]}, label="a")
    del document["routing"]["classifiers"], document["routing"]["rules"]
    document["routing"]["router"] = {"type": "llm", "model": "SmolLM2", "prompt": "Prefer big for long requests."}
    decision = world.post("/v1/routing/validate", {"policy": document, "prompt": SOUP}, timeout=120).json()["decision"]
    assert not decision["default_used"]
    step = decision["trace"][-1]
    assert (step["label"], step["score"]) == (decision["route_to"], 1.0)
    assert step["rationale"]
    scored = policy(
        {"id": "c", "type": "classifier", "model": "SmolLM2", "labels": ["food", "code"]}, label="food", min_score=0
    )
    (step,) = world.post("/v1/routing/validate", {"policy": scored, "prompt": SOUP}, timeout=120).json()["decision"][
        "trace"
    ]
    assert 0 <= step["score"] <= 1
    assert step["result"] is True


def test_a_classifier_that_died_is_started_anew(world: Daemon) -> None:
    scores(classify(world, model="topics", input=CODE))
    os.kill(world.entry("topics")["pid"], signal.SIGKILL)
    wait_for(lambda: "topics" not in {entry["model_name"] for entry in world.loaded()})
    assert next(iter(scores(classify(world, model="topics", input=SOUP)))) == "food"
