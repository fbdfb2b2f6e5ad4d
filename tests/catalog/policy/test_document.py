from __future__ import annotations

import copy
from typing import Any

import pytest

from lemonade.catalog.policy.document import Policy, bare, component, define, parse
from lemonade.errors import InvalidArgument
from lemonade.model import Model
from tests.catalog.policy.policies import BIG, LABELLED, LLM, SIMILAR, SMALL, ZERO_SHOT, policy, rule

ANY = {"keywords_any": ["x"]}


def refusal(document: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        parse(document)
    assert caught.value.message.startswith(f"Invalid routing policy: '{caught.value.param}' ")
    return caught.value


def test_a_policy_comes_back_as_it_was_written() -> None:
    written = policy(rule({"any": [ANY, {"min_chars": 4000}]}, outputs={"reason": "long"}), classifiers=[LABELLED])
    written["model_name"] = "user.Router"
    read = parse(copy.deepcopy(written))
    assert read.document == written
    assert read.candidates == (SMALL, BIG)
    assert read.default_model == SMALL
    assert read.rules[0].outputs == {"reason": "long"}
    assert read.helpers == ("judge",)


def test_router_is_written_out() -> None:
    short = policy(router={"type": "llm", "model": "judge", "prompt": "Choose."})
    del short["routing"]["rules"]
    read = parse(short)
    assert read.document["routing"] == {
        "candidates": [SMALL, BIG],
        "default_model": SMALL,
        "classifiers": [
            {"id": "__router", "type": "llm", "model": "judge", "prompt": "Choose.", "labels": [SMALL, BIG]}
        ],
        "rules": [
            {
                "id": "__route_0",
                "match": {"classifier": "__router", "label": SMALL, "min_score": 1.0},
                "route_to": SMALL,
            },
            {"id": "__route_1", "match": {"classifier": "__router", "label": BIG, "min_score": 1.0}, "route_to": BIG},
        ],
    }
    assert parse(read.document).document == read.document
    del short["routing"]["router"]["prompt"]
    assert parse(short).classifiers[0].prompt


def without(document: dict[str, Any], *keys: str) -> dict[str, Any]:
    made = copy.deepcopy(document)
    place = made
    for key in keys[:-1]:
        place = place[key]
    del place[keys[-1]]
    return made


FULL = policy(rule(ANY))


@pytest.mark.parametrize(
    ("document", "param", "words"),
    [
        ([], "policy", "an object"),
        ({**FULL, "colour": 1}, "colour", "not known here"),
        (without(FULL, "version"), "version", "missing"),
        ({**FULL, "version": "2"}, "version", '"1"'),
        ({**FULL, "version": 1}, "version", '"1"'),
        ({**FULL, "recipe": "collection.omni"}, "recipe", "collection.router"),
        ({**FULL, "components": []}, "components", "at least one"),
        ({**FULL, "components": [SMALL, SMALL]}, "components[1]", "repeats"),
        ({**FULL, "routing": 1}, "routing", "an object"),
        (without(FULL, "routing", "candidates"), "routing.candidates", "missing"),
        (policy(rule(ANY), weights=1), "routing.weights", "not known here"),
        (policy(rule(ANY), candidates=[SMALL, "gone"]), "routing.candidates[1]", "none of the 'components'"),
        (policy(rule(ANY), candidates=[BIG]), "routing.default_model", "one of the candidates (big)"),
        (without(FULL, "routing", "rules"), "routing.rules", "or a `router`"),
        (policy(rules={}), "routing.rules", "an array"),
        (policy(rule(ANY, id="a b")), "routing.rules[0].id", "letters"),
        (policy(rule(ANY), rule(ANY)), "routing.rules[1].id", "repeats"),
        (policy(rule(ANY, "judge")), "routing.rules[0].route_to", "one of the candidates"),
        (policy(rule(ANY, outputs=[])), "routing.rules[0].outputs", "an object"),
        (policy(rule(ANY, priority=1)), "routing.rules[0].priority", "not known here"),
        (policy({"id": "r", "route_to": BIG}), "routing.rules[0].match", "missing"),
        (policy(rule(ANY), router={"type": "llm", "model": "judge"}), "routing.rules", "beside a `router`"),
        (
            without(policy(router={"type": "dice", "model": "judge"}), "routing", "rules"),
            "routing.router.type",
            "`llm`",
        ),
        (
            without(policy(router={"type": "llm", "model": "gone"}), "routing", "rules"),
            "routing.router.model",
            "none of the 'components'",
        ),
        (
            without(policy(router={"type": "llm", "model": "judge", "labels": []}), "routing", "rules"),
            "routing.router.labels",
            "not known here",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_with_its_place(document: Any, param: str, words: str) -> None:
    error = refusal(document)
    assert error.param == param
    assert words in error.message


@pytest.mark.parametrize(
    ("classifier", "field", "words"),
    [
        ({**LABELLED, "id": ""}, "id", "something in it"),
        ({**LABELLED, "type": "magic"}, "type", "one of: classifier, zero_shot"),
        ({**LABELLED, "type": "language_detection"}, "type", "classifier type not implemented yet: language_detection"),
        ({**LABELLED, "type": "regex"}, "type", "names a condition"),
        ({**LABELLED, "model": "gone"}, "model", "none of the 'components'"),
        ({**LABELLED, "labels": ["a", "a"]}, "labels[1]", "repeats"),
        ({**LABELLED, "labels": ["a", 1]}, "labels[1]", "a string"),
        ({**LABELLED, "default_label": "maybe"}, "default_label", "yes, no"),
        ({"id": "c", "type": "classifier", "model": "judge", "default_label": "a"}, "default_label", "none"),
        ({**LABELLED, "on_error": "shrug"}, "on_error", "match_false"),
        ({**LABELLED, "reference_phrases": {"a": ["b"]}}, "reference_phrases", "does not belong"),
        ({**LABELLED, "threshold": 1}, "threshold", "not known here"),
        ({"id": "c", "type": "zero_shot", "model": "judge"}, "labels", "needs it"),
        ({**SIMILAR, "labels": ["code"]}, "labels", "does not belong"),
        ({**SIMILAR, "prompt": "x"}, "prompt", "does not belong"),
        ({**SIMILAR, "reference_phrases": {}}, "reference_phrases", "at least one concept"),
        ({**SIMILAR, "reference_phrases": {"code": []}}, "reference_phrases.code", "at least one"),
        ({**LLM, "prompt": None}, "prompt", "needs it"),
        ({**LLM, "labels": None}, "labels", "needs it"),
    ],
)
def test_wrong_classifiers(classifier: dict[str, Any], field: str, words: str) -> None:
    error = refusal(policy(rule(ANY), classifiers=[classifier]))
    assert error.param == f"routing.classifiers[0].{field}"
    assert words in error.message


def test_classifiers_have_names_of_their_own() -> None:
    assert refusal(policy(classifiers=[LABELLED, LABELLED])).param == "routing.classifiers[1].id"


def models(**modes: tuple[str, ...]) -> Any:
    """A catalog of models with labels; those that are not named are LLMs."""
    return lambda name: Model(name=name, recipe="llamacpp", labels=modes.get(name, ("chat",)))


@pytest.mark.parametrize(
    ("classifier", "labels", "words"),
    [
        (LABELLED, ("classification",), ""),
        (LABELLED, ("chat",), ""),
        (LABELLED, ("classification", "systemone"), ""),
        (LABELLED, ("classification", "zero-shot"), "type `zero_shot`"),
        (LABELLED, ("embeddings",), "neither"),
        ({"id": "c", "type": "classifier", "model": "judge"}, ("chat",), "told the 'labels'"),
        ({"id": "c", "type": "classifier", "model": "judge"}, ("classification", "systemone"), "'labels' are needed"),
        (ZERO_SHOT, ("classification", "zero-shot"), ""),
        (ZERO_SHOT, ("classification", "systemone"), ""),
        (ZERO_SHOT, ("classification",), "labels are fixed"),
        (ZERO_SHOT, ("chat",), "no classification model"),
        ({**SIMILAR, "model": "judge"}, ("embeddings",), ""),
        ({**SIMILAR, "model": "judge"}, ("chat",), "no embeddings"),
        (LLM, ("chat",), ""),
        (LLM, ("classification",), "no LLM"),
    ],
)
def test_the_models_of_classifiers_are_looked_at(
    classifier: dict[str, Any], labels: tuple[str, ...], words: str
) -> None:
    document = policy(rule(ANY), classifiers=[classifier])
    if not words:
        assert isinstance(define(document, models(judge=labels)), Policy)
        return
    with pytest.raises(InvalidArgument) as caught:
        define({**document, "model_name": "user.R", "stream": True}, models(judge=labels))
    assert caught.value.param == "routing.classifiers[0].model"
    assert words in caught.value.message


def test_candidates_are_llms() -> None:
    with pytest.raises(InvalidArgument, match="no LLM") as caught:
        define(policy(rule(ANY)), models(big=("tts",)))
    assert caught.value.param == "routing.candidates[1]"


def test_a_component_is_the_same_whatever_its_origin_is_called() -> None:
    assert bare("user.a") == bare("builtin.a") == "a"
    assert component("a", ("builtin.b", "user.a")) == "user.a"
    assert component("user.a", ("builtin.a", "user.a")) == "user.a"
    assert component("c", ("builtin.a",)) is None
    document = policy(rule(ANY))
    document["components"] = ["builtin.small", "user.big"]
    assert parse(document).candidates == (SMALL, BIG)
