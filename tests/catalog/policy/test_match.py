from __future__ import annotations

from typing import Any

import pytest

from lemonade.catalog.policy.document import parse
from lemonade.catalog.policy.match import AllOf, AnyOf, Band, Keywords, Length, Not
from lemonade.errors import InvalidArgument
from tests.catalog.policy.policies import LABELLED, SIMILAR, policy, rule

CLASSIFIERS = [LABELLED, SIMILAR]
BAND = {"classifier": "c"}


def parsed(match: Any) -> Any:
    return parse(policy(rule(match), classifiers=CLASSIFIERS)).rules[0].match


def nested(depth: int) -> Any:
    match: Any = {"min_chars": 1}
    for _ in range(depth - 1):
        match = {"not": match}
    return match


def test_logic() -> None:
    word = {"keywords_any": ["X"]}
    keywords = Keywords((b"x",), False)
    assert parsed(word) == keywords
    assert parsed({"any": [word, {"min_chars": 2}]}) == AnyOf((keywords, Length(2, "min_chars")))
    assert parsed({"all": [word]}) == AllOf((keywords,))
    assert parsed({"not": word}) == Not(keywords)


def test_several_keys_are_all_of_them_and_models_are_asked_last() -> None:
    found = parsed({"classifier": "c", "label": "no", "min_score": 0.7, "keywords_all": ["a"], "min_chars": 3})
    assert isinstance(found, AllOf)
    assert [node.condition for node in found.nodes] == ["min_chars", "keywords_all", "classifier:c"]


@pytest.mark.parametrize(
    ("match", "low", "high"),
    [
        (BAND, 0.5, 1.0),
        ({**BAND, "min_score": 0.2}, 0.2, 1.0),
        ({**BAND, "max_score": 0.4}, 0.0, 0.4),
        ({**BAND, "min_score": 0, "max_score": 0}, 0.0, 0.0),
    ],
)
def test_bounds(match: Any, low: float, high: float) -> None:
    band = parsed(match)
    assert isinstance(band, Band)
    assert (band.label, band.low, band.high) == ("yes", low, high)


def test_depth() -> None:
    parsed(nested(64))
    with pytest.raises(InvalidArgument, match="more than 64 levels"):
        parsed(nested(65))


@pytest.mark.parametrize(
    ("match", "place", "words"),
    [
        ("x", "", "an object"),
        ({}, "", "must hold a condition: any, all, not, has_tools"),
        ({"keyword": ["x"]}, ".keyword", "not known here"),
        ({"any": []}, ".any", "at least one"),
        ({"all": {"min_chars": 1}}, ".all", "an array"),
        ({"any": [{"min_chars": 1}], "all": [{"min_chars": 1}]}, "", "`any` alone"),
        ({"not": {"min_chars": 1}, "min_chars": 1}, "", "`not` alone"),
        ({"any": [{"min_chars": 1}, {"not": {"min_chars": -1}}]}, ".any[1].not.min_chars", "whole number"),
        ({"keywords_any": []}, ".keywords_any", "at least one"),
        ({"keywords_all": ["a", ""]}, ".keywords_all", "none of them empty"),
        ({"keywords_any": "a"}, ".keywords_any", "an array"),
        ({"regex": "("}, ".regex", "no expression"),
        ({"regex": "(?=x)"}, ".regex", "looks ahead"),
        ({"regex": 1}, ".regex", "a string"),
        ({"min_chars": True}, ".min_chars", "whole number"),
        ({"max_chars": 1.5}, ".max_chars", "whole number"),
        ({"has_tools": "yes"}, ".has_tools", "true or false"),
        ({"metadata": {"equals": "x"}}, ".metadata.key", "missing"),
        ({"metadata": {"key": "k"}}, ".metadata", "exactly one of"),
        ({"metadata": {"key": "k", "equals": "x", "exists": True}}, ".metadata", "exactly one of"),
        ({"metadata": {"key": "k", "exists": "x"}}, ".metadata.exists", "true or false"),
        ({"metadata": {"key": "k", "any": []}}, ".metadata.any", "at least one"),
        ({"metadata": {"key": "k", "is": "x"}}, ".metadata.is", "not known here"),
        ({"classifier": "gone"}, ".classifier", "defined are: c, s"),
        ({"classifier": "s"}, ".label", "no `default_label`"),
        ({"classifier": "s", "label": "sport"}, ".label", "code, food"),
        ({"classifier": "c", "min_score": 1.1}, ".min_score", "from 0 to 1"),
        ({"classifier": "c", "min_score": 0.6, "max_score": 0.5}, ".min_score", "more than"),
        ({"label": "yes"}, ".label", "belongs to a `classifier`"),
        ({"min_chars": 1, "min_score": 0.5}, ".min_score", "belongs to a `classifier`"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(match: Any, place: str, words: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        parsed(match)
    assert caught.value.param == f"routing.rules[0].match{place}"
    assert words in caught.value.message
