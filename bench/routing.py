"""What a policy of many rules costs before a request goes on."""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator
from typing import Any

from lemonade.catalog.policy.classifiers import Classifier
from lemonade.catalog.policy.document import parse
from lemonade.inference.routing.evaluation import Scores, decide
from lemonade.inference.routing.facts import Facts

RULES = 200
DECISIONS = 300
#: Characters of the texts; the longest is searched beside the loop.
LENGTHS = (200, 1_000, 10_000, 100_000)


class Nobody:
    """There are no classifiers to ask."""

    async def scores(self, classifier: Classifier, text: str) -> Scores:
        raise AssertionError("there are no classifiers")


def figures() -> Iterator[tuple[str, str, str]]:
    """Names, figures and wishes. No rule holds, so that all are looked at."""
    document = policy()
    begin = time.perf_counter()
    parsed = parse(document)
    yield f"policy of {RULES} rules: read and checked", f"{(time.perf_counter() - begin) * 1e3:.1f} ms", ""
    for length in LENGTHS:
        text = ("the quick brown fox jumps over the lazy dog 12345 " * (length // 50))[:length]
        times = asyncio.run(_decide(parsed, text))
        want = "want < 1 ms" if length <= 10_000 else ""
        yield f"policy of {RULES} rules, {length} characters: p50", f"{statistics.median(times) * 1e3:.2f} ms", want
    attack = parse({**document, "routing": {**document["routing"], "rules": [_rule(0, {"regex": "(a+)+$"})]}})
    (worst,) = asyncio.run(_decide(attack, "a" * 100_000 + "!", 1))
    yield "(a+)+$ against 100 kB", f"{worst * 1e3:.2f} ms", ""


async def _decide(policy: Any, text: str, count: int = DECISIONS) -> list[float]:
    times = []
    for _ in range(count):
        begin = time.perf_counter()
        decision = await decide(policy, Facts(text=text, metadata={"team": "blue"}), Nobody())
        times.append(time.perf_counter() - begin)
        assert decision.default_used
        assert count == 1 or len(decision.trace) >= RULES
    return times


def policy() -> dict[str, Any]:
    """Rules of all kinds that need no model."""
    matches = [
        lambda n: {"keywords_any": [f"word{n}", f"term{n}", f"name{n}"]},
        lambda n: {"regex": rf"\b(?:item|part)-{n}\b"},
        lambda n: {"all": [{"max_chars": 1_000_000}, {"keywords_all": [f"first{n}", f"second{n}"]}]},
        lambda n: {"any": [{"has_images": True}, {"metadata": {"key": "team", "equals": f"team{n}"}}]},
    ]
    rules = [_rule(number, matches[number % len(matches)](number)) for number in range(RULES)]
    return {
        "version": "1",
        "recipe": "collection.router",
        "components": ["small", "big"],
        "routing": {"candidates": ["small", "big"], "default_model": "small", "rules": rules},
    }


def _rule(number: int, match: dict[str, Any]) -> dict[str, Any]:
    return {"id": f"rule-{number}", "match": match, "route_to": "big"}
