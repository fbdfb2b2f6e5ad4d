from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from lemonade.catalog.policy import lookup
from lemonade.catalog.policy.classifiers import Classifier
from lemonade.catalog.policy.document import parse
from lemonade.inference.routing.evaluation import MAX_SEARCHED, Decision, Scores, decide
from lemonade.inference.routing.facts import Facts
from tests.catalog.policy.policies import BIG, LABELLED, LLM, SIMILAR, SMALL, ZERO_SHOT, policy, rule

CLASSIFIERS = [LABELLED, ZERO_SHOT, SIMILAR, LLM]


class Said:
    """Says the same of every text. `asked` are the classifiers that were asked, in order."""

    def __init__(self, scores: Mapping[str, Scores | Exception]) -> None:
        self._scores = scores
        self.asked: list[str] = []

    async def scores(self, classifier: Classifier, text: str) -> Scores:
        self.asked.append(classifier.id)
        found = self._scores[classifier.id]
        if isinstance(found, Exception):
            raise found
        return found


USUAL = {
    "c": Scores({"yes": 0.8, "no": 0.2}),
    "z": Scores({"yes": 0.3, "no": 0.7}),
    "s": Scores({"code": 0.61, "food": 0.05}),
    "l": Scores({"SAFE": 0.0, "RISKY": 1.0}, rationale="it deletes files"),
}


async def judged(match: Any, facts: Facts, said: Said | None = None) -> tuple[bool, list[dict[str, Any]], Said]:
    """Whether the match holds, the trace, and who was asked."""
    said = said or Said(USUAL)
    decision = await decide(parse(policy(rule(match), classifiers=CLASSIFIERS)), facts, said)
    assert decision.default_used is (decision.route_to == SMALL)
    return decision.route_to == BIG, msgspec.to_builtins(decision.trace), said


ASKED = Facts(
    text="Please FIX this bug in Straße.py",
    has_tools=True,
    metadata={"team": "red, blue ", "tier": "Gold", "blank": "  "},
)


@pytest.mark.parametrize(
    ("match", "holds"),
    [
        ({"keywords_any": ["soup", "fix"]}, True),
        ({"keywords_any": ["soup", "cake"]}, False),
        ({"keywords_any": ["straße"]}, True),
        ({"keywords_any": ["STRASSE"]}, False),
        ({"keywords_any": ["STRAßE.PY"]}, True),
        ({"keywords_any": ["bug "]}, True),
        ({"keywords_any": ["bugs"]}, False),
        ({"keywords_all": ["please", "bug"]}, True),
        ({"keywords_all": ["please", "cake"]}, False),
        ({"regex": "FIX.*py$"}, True),
        ({"regex": "fix"}, False),
        ({"min_chars": 33}, True),
        ({"min_chars": 34}, False),
        ({"max_chars": 33}, True),
        ({"max_chars": 32}, False),
        ({"has_tools": True}, True),
        ({"has_tools": False}, False),
        ({"has_images": True}, False),
        ({"has_images": False}, True),
        ({"metadata": {"key": "tier", "equals": "Gold"}}, True),
        ({"metadata": {"key": "tier", "equals": "gold"}}, False),
        ({"metadata": {"key": "team", "any": ["green", "blue"]}}, True),
        ({"metadata": {"key": "team", "any": ["red, blue"]}}, False),
        ({"metadata": {"key": "team", "exists": True}}, True),
        ({"metadata": {"key": "blank", "exists": True}}, False),
        ({"metadata": {"key": "blank", "exists": False}}, True),
        ({"metadata": {"key": "gone", "exists": False}}, True),
        ({"metadata": {"key": "gone", "any": ["x"]}}, False),
    ],
)
async def test_every_condition_without_a_model(match: dict[str, Any], holds: bool) -> None:
    found, trace, said = await judged(match, ASKED)
    assert found is holds
    assert trace == [{"condition": next(iter(match)), "result": holds}]
    assert not said.asked


@pytest.mark.parametrize(
    ("match", "step"),
    [
        ({"classifier": "c"}, {"condition": "classifier:c", "result": True, "score": 0.8, "label": "yes"}),
        (
            {"classifier": "c", "label": "no"},
            {"condition": "classifier:c", "result": False, "score": 0.2, "label": "no"},
        ),
        (
            {"classifier": "c", "min_score": 0.8, "max_score": 0.8},
            {"condition": "classifier:c", "result": True, "score": 0.8, "label": "yes"},
        ),
        (
            {"classifier": "c", "max_score": 0.79},
            {"condition": "classifier:c", "result": False, "score": 0.8, "label": "yes"},
        ),
        (
            {"classifier": "z", "label": "no"},
            {"condition": "classifier:z", "result": True, "score": 0.7, "label": "no"},
        ),
        (
            {"classifier": "s", "label": "code", "min_score": 0.6},
            {"condition": "classifier:s", "result": True, "score": 0.61, "label": "code"},
        ),
        (
            {"classifier": "l", "label": "RISKY", "min_score": 1},
            {
                "condition": "classifier:l",
                "result": True,
                "score": 1.0,
                "label": "RISKY",
                "rationale": "it deletes files",
            },
        ),
        (
            {"classifier": "l", "label": "SAFE", "max_score": 0},
            {
                "condition": "classifier:l",
                "result": True,
                "score": 0.0,
                "label": "SAFE",
                "rationale": "it deletes files",
            },
        ),
    ],
)
async def test_every_type_of_classifier(match: dict[str, Any], step: dict[str, Any]) -> None:
    holds, trace, said = await judged(match, ASKED)
    assert trace == [step]
    assert holds is step["result"]
    assert said.asked == [match["classifier"]]


YES, NO = {"has_tools": True}, {"has_images": True}


@pytest.mark.parametrize(
    ("match", "holds", "looked_at"),
    [
        ({"any": [NO, YES, YES]}, True, "nt"),
        ({"any": [NO, NO]}, False, "nn"),
        ({"all": [YES, NO, YES]}, False, "tn"),
        ({"all": [YES, YES]}, True, "tt"),
        ({"not": NO}, True, "n"),
        ({"not": {"all": [YES, {"not": {"any": [NO, YES]}}]}}, True, "tnt"),
        ({"has_images": True, "has_tools": True}, False, "tn"),
    ],
)
async def test_logic(match: dict[str, Any], holds: bool, looked_at: str) -> None:
    found, trace, _ = await judged(match, ASKED)
    assert found is holds
    names = {"t": {"condition": "has_tools", "result": True}, "n": {"condition": "has_images", "result": False}}
    assert trace == [names[letter] for letter in looked_at]


async def test_a_model_is_asked_once_and_only_when_it_matters() -> None:
    band = {"classifier": "c", "label": "no"}
    _, _, said = await judged({"any": [band, {"classifier": "c"}, {"classifier": "s", "label": "code"}]}, ASKED)
    assert said.asked == ["c"]
    _, trace, said = await judged({"classifier": "c", "keywords_any": ["soup"]}, ASKED)
    assert said.asked == []
    assert [step["condition"] for step in trace] == ["keywords_any"]


@pytest.mark.parametrize("on_error", ["match_false", "match_true"])
async def test_a_classifier_that_cannot_be_asked_counts_as_its_author_says(on_error: str) -> None:
    document = policy(rule({"classifier": "c"}), classifiers=[{**LABELLED, "on_error": on_error}])
    decision = await decide(parse(document), ASKED, Said({"c": Scores(failure="it is ill")}))
    holds = on_error == "match_true"
    assert decision.default_used is not holds
    assert msgspec.to_builtins(decision.trace) == [
        {"condition": "classifier:c", "result": holds, "label": "yes", "rationale": "it is ill"}
    ]


async def test_it_fails_open() -> None:
    said = Said({"c": RuntimeError("a bug")})
    holds, trace, _ = await judged({"any": [NO, {"classifier": "c"}]}, ASKED, said)
    assert holds is False
    assert [step["condition"] for step in trace] == ["has_images"]


async def test_the_first_rule_wins_and_its_outputs_come_along() -> None:
    document = policy(
        rule({"min_chars": 1000}, id="long"),
        rule({"min_chars": 1}, id="any-1", outputs={"reason": "said something"}),
        rule({"min_chars": 1}, route_to=SMALL, id="any-2"),
    )
    decision = await decide(parse(document), Facts(text="hi"), Said({}))
    assert decision.body(trace=False) == {
        "version": "1",
        "route_to": BIG,
        "matched_rule": "any-1",
        "default_used": False,
        "outputs": {"reason": "said something"},
    }
    assert decision.name == "any-1"
    assert [step.result for step in decision.body(trace=True)["trace"]] == [False, True]
    nothing = await decide(parse(document), Facts(), Said({}))
    assert (nothing.matched_rule, nothing.default_used, nothing.name) == ("", True, "default")


@pytest.mark.parametrize("few", [1, 1000])
@pytest.mark.parametrize("size", [0, 100_000])
async def test_in_one_pass_it_is_the_same(monkeypatch: pytest.MonkeyPatch, few: int, size: int) -> None:
    monkeypatch.setattr(lookup, "FEW", few)
    matches = [
        {"keywords_all": ["bug", "soup"]},
        {"regex": r"\bbugs\b"},
        {"keywords_any": ["nothing"], "regex": "fix"},
        {"regex": "(a|b){100}"},
        {"all": [{"regex": r"FIX.*bug"}, {"keywords_any": ["STRASSE", "straße"]}]},
    ]
    document = policy(*(rule(match, id=f"r{number}") for number, match in enumerate(matches)))
    decision = await decide(parse(document), Facts(text="-" * size + ASKED.text), Said({}))
    assert decision.matched_rule == "r4"
    assert [step.result for step in decision.trace] == [False, False, False, False, True, True]


@pytest.mark.timeout(20)
async def test_large_texts_are_searched_up_to_a_megabyte() -> None:
    document = parse(policy(rule({"regex": "(a+)+$"})))

    async def decided(size: int, end: str) -> Decision:
        return await decide(document, Facts(text="a" * (size - 1) + end), Said({}))

    assert (await decided(100_000, "!")).default_used
    assert not (await decided(100_000, "a")).default_used
    assert not (await decided(MAX_SEARCHED, "a")).default_used
    assert (await decided(MAX_SEARCHED + 1, "a")).default_used
