"""Which rule of a policy holds for a request, and how that was found out."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from functools import cached_property
from typing import Any, Protocol

import msgspec

from lemonade.catalog.policy.classifiers import Classifier
from lemonade.catalog.policy.document import Policy
from lemonade.catalog.policy.expression import Expression
from lemonade.catalog.policy.lookup import Lookup
from lemonade.catalog.policy.match import (
    AllOf,
    AnyOf,
    Band,
    Has,
    Keywords,
    Length,
    Metadata,
    Node,
    Not,
    Regex,
)
from lemonade.inference.routing.facts import Facts

logger = logging.getLogger("lemonade.routing")

#: Version of the decision on the wire.
VERSION = "1"
#: Bytes of text beyond which no expression is searched for: it matches nothing.
MAX_SEARCHED = 1 << 20
#: Bytes of text from which on it is searched beside the loop.
LARGE = 64 << 10


class Step(msgspec.Struct, omit_defaults=True):
    """One condition that was looked at.

    Attributes:
        condition: its key, or `classifier:ID`.
        score: of the classifier's label.
        rationale: why, in the words of the model that was asked, or why it could not be.
    """

    condition: str
    result: bool
    score: float | None = None
    label: str | None = None
    rationale: str | None = None


class Decision(msgspec.Struct):
    """What a policy says to one request.

    Attributes:
        route_to: the model, by the policy's name for it.
        matched_rule: empty when no rule held.
        outputs: those of the rule.
        trace: the conditions in the order in which they were looked at.
    """

    route_to: str
    matched_rule: str
    default_used: bool
    outputs: dict[str, Any]
    trace: list[Step]

    @property
    def name(self) -> str:
        """What stands in the header of the answer."""
        return self.matched_rule or "default"

    def body(self, *, trace: bool) -> dict[str, Any]:
        """The decision as clients see it."""
        shown: dict[str, Any] = {
            "version": VERSION,
            "route_to": self.route_to,
            "matched_rule": self.matched_rule,
            "default_used": self.default_used,
            "outputs": self.outputs,
        }
        return {**shown, "trace": self.trace} if trace else shown


class Scores(msgspec.Struct):
    """What a classifier says of a text.

    Attributes:
        labels: label to score, 0 to 1.
        failure: why there are none.
    """

    labels: Mapping[str, float] = {}
    rationale: str | None = None
    failure: str | None = None


class Scorer(Protocol):
    """Who asks the models."""

    async def scores(self, classifier: Classifier, text: str) -> Scores:
        """What the classifier says; a failure is told in it."""
        ...


async def decide(policy: Policy, facts: Facts, scorer: Scorer) -> Decision:
    """The first rule that holds, else the default. It fails open: whatever goes wrong, there is an answer."""
    evaluation = Evaluation(facts, scorer, policy.lookup)
    try:
        for rule in policy.rules:
            if await evaluation.holds(rule.match):
                return Decision(rule.route_to, rule.id, False, dict(rule.outputs), evaluation.trace)
    except Exception:  # a router must not be the reason why there is no answer
        logger.exception("a policy could not be followed; the request goes to '%s'", policy.default_model)
    return Decision(policy.default_model, "", True, {}, evaluation.trace)


class Evaluation:
    """One request under one policy. Each classifier is asked once at most, and only when it matters."""

    def __init__(self, facts: Facts, scorer: Scorer, lookup: Lookup) -> None:
        self._facts = facts
        self._scorer = scorer
        self._lookup = lookup
        self._scores: dict[str, Scores] = {}
        self.trace: list[Step] = []

    async def holds(self, node: Node) -> bool:
        match node:
            case AnyOf(nodes):
                for each in nodes:
                    if await self.holds(each):
                        return True
                return False
            case AllOf(nodes):
                for each in nodes:
                    if not await self.holds(each):
                        return False
                return True
            case Not(inner):
                return not await self.holds(inner)
            case Band():
                step = await self._band(node)
            case Regex() | Keywords() if self._takes_long(node):
                step = Step(node.condition, await asyncio.to_thread(self._plain, node))
            case _:
                step = Step(node.condition, self._plain(node))
        self.trace.append(step)
        return step.result

    def _plain(self, leaf: Keywords | Regex | Length | Has | Metadata) -> bool:
        facts = self._facts
        match leaf:
            case Keywords(words, every):
                text = facts.folded if self._words is None else self._words
                return (all if every else any)(word in text for word in words)
            case Regex(search):
                if len(facts.encoded) > MAX_SEARCHED:
                    return False
                known = (self._expressions or {}).get(search)
                return search(facts.encoded) if known is None else known
            case Length(bound, condition):
                size = len(facts.encoded)
                return size >= bound if condition == "min_chars" else size <= bound
            case Has(value, condition):
                return value == (facts.has_tools if condition == "has_tools" else facts.has_images)
            case Metadata():
                return _metadata(leaf, facts.metadata.get(leaf.key, ""))

    def _takes_long(self, leaf: Regex | Keywords) -> bool:
        """Whether a large text has to be searched for it; what was looked for in one pass is known by now."""
        if len(self._facts.encoded) <= LARGE:
            return False
        if isinstance(leaf, Keywords):
            return self.__dict__.get("_words") is None
        return leaf.search not in (self.__dict__.get("_expressions") or {})

    @cached_property
    def _words(self) -> frozenset[bytes] | None:
        return self._lookup.words(self._facts.folded)

    @cached_property
    def _expressions(self) -> dict[Expression, bool] | None:
        return self._lookup.expressions(self._facts.encoded)

    async def _band(self, band: Band) -> Step:
        classifier = band.classifier
        known = self._scores.get(classifier.id)
        if known is None:
            known = self._scores[classifier.id] = await self._scorer.scores(classifier, self._facts.text)
        if known.failure is not None:
            return Step(band.condition, classifier.on_error, label=band.label, rationale=known.failure)
        score = known.labels.get(band.label, 0.0)
        result = band.low <= score <= band.high
        return Step(band.condition, result, score=score, label=band.label, rationale=known.rationale)


def _metadata(leaf: Metadata, value: str) -> bool:
    """Blank counts as absent; with `any`, the value is a list with commas."""
    there = bool(value.strip())
    if leaf.exists is not None:
        return there == leaf.exists
    if leaf.equals is not None:
        return there and value == leaf.equals
    return there and not (leaf.among or frozenset()).isdisjoint(part.strip() for part in value.split(","))
