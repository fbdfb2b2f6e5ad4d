from __future__ import annotations

import random
import re
from typing import Any

import pytest

from lemonade.catalog.policy import expression, lookup
from lemonade.catalog.policy.document import parse
from lemonade.catalog.policy.expression import compiled, literal, together
from lemonade.catalog.policy.lookup import FEW, Lookup
from tests.catalog.policy.policies import policy, rule

WORDS = ["def ", "Straße", "a.b", "x", "(", "\\", "*", "tab\t", "é", "\n", "[]", "ß"]
PATTERNS = [r"\bitem-\d+\b", "^a", "b$", "(?i)HELLO", "[^a]z", r"\s{3}", "x|y", "é+", "(ab)+c"]


def found_by(*matches: dict[str, Any]) -> Lookup:
    return parse(policy(*(rule(match, id=f"r{number}") for number, match in enumerate(matches)))).lookup


def test_words_are_found_as_each_would_be() -> None:
    found = found_by({"any": [{"keywords_any": WORDS[:5]}, {"not": {"keywords_all": WORDS[5:]}}]})
    dice = random.Random(0)
    for _ in range(300):
        text = "".join(dice.choice([*WORDS, "q", " ", "A.B"]) for _ in range(6)).encode().lower()
        assert found.words(text) == {word for word in (one.encode().lower() for one in WORDS) if word in text}


def test_expressions_are_found_as_each_would_be() -> None:
    found = found_by(*({"regex": pattern} for pattern in PATTERNS))
    dice = random.Random(1)
    for _ in range(300):
        text = "".join(dice.choice(["a", "b", "c", "x", "z", "item-7", " ", "hello", "é"]) for _ in range(8)).encode()
        known = found.expressions(text)
        assert known is not None
        assert len(known) == len(PATTERNS)
        assert all(one(text) is holds for one, holds in known.items())


def test_a_few_are_looked_for_one_by_one() -> None:
    found = found_by({"keywords_any": WORDS[: FEW - 1], "regex": "x"})
    assert found.words(b"x") is None
    assert found.expressions(b"x") is None
    assert found_by({"keywords_any": ["same"]}, {"keywords_any": ["SAME"] * FEW}).words(b"same") is None


def test_large_expressions_are_looked_for_by_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "FEW", 2)
    large = "(a|b){100}c"
    found = found_by({"regex": large}, {"regex": "x"}, {"regex": "y"}).expressions(b"x")
    assert found is not None
    assert sorted(found.values()) == [False, True]
    assert compiled(large).size > lookup.MAX_PROGRAM >= compiled("x").size


def test_what_is_too_large_together_is_looked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = found_by(*({"regex": rf"[ab]*a[ab]{{{number + 5}}}c"} for number in range(FEW)))
    monkeypatch.setattr(expression, "MAX_MEMORY", 4096)
    assert found.expressions(b"abaabb" * 100 + b"c") is None


class Exhausted:
    """A set of the engine that is out of memory: it says that there is nothing, as it does when there is."""

    def Add(self, pattern: bytes) -> int:
        return 0

    def Compile(self) -> None:
        """It only shows at a match."""

    def Match(self, text: bytes) -> list[int]:
        return []


def test_what_cannot_be_told_is_not_taken_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("re2.Set.SearchSet", lambda options: Exhausted())
    assert together([b"x"])(b"x") is None


@pytest.mark.parametrize("text", [b"a.b*c", b"(x)", "é".encode(), b"\\d", b"a b", b"\n"])
def test_a_literal_means_itself(text: bytes) -> None:
    assert together([literal(text)])(b"-" + text + b"-") == {0}
    assert together([literal(b"a.c")])(b"abc") == frozenset()
    assert re.search(re.escape(text), text)
