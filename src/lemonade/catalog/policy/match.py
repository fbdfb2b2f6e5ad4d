"""Match expressions: when a rule of a policy holds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from lemonade.catalog.policy.classifiers import Classifier
from lemonade.catalog.policy.expression import Expression, compiled
from lemonade.catalog.policy.fields import (
    count,
    distinct,
    flag,
    mapping,
    refuse,
    score,
    shown,
    text,
    texts,
    within,
)

#: Deepest nesting of `any`, `all` and `not`.
MAX_DEPTH = 64
#: The least score of a condition on a classifier that gives no bounds.
DEFAULT_SCORE = 0.5


class AnyOf(msgspec.Struct, frozen=True):
    """Holds when one of its nodes does. They are looked at in order, up to the first that does."""

    nodes: tuple[Node, ...]


class AllOf(msgspec.Struct, frozen=True):
    """Holds when all of its nodes do. They are looked at in order, up to the first that does not."""

    nodes: tuple[Node, ...]


class Not(msgspec.Struct, frozen=True):
    """Holds when its node does not."""

    node: Node


class Keywords(msgspec.Struct, frozen=True):
    """Words that occur in the text, whatever the case of their ASCII letters; `words` are folded UTF-8."""

    words: tuple[bytes, ...]
    every: bool

    @property
    def condition(self) -> str:
        return "keywords_all" if self.every else "keywords_any"


class Regex(msgspec.Struct, frozen=True):
    """An expression that is found in the text."""

    search: Expression
    condition: str = "regex"


class Length(msgspec.Struct, frozen=True):
    """The text's length in bytes of UTF-8, the bound included."""

    bound: int
    condition: str


class Has(msgspec.Struct, frozen=True):
    """Whether the request has tools, or pictures."""

    value: bool
    condition: str


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """What the request's metadata say under a key. One of `equals`, `among` and `exists` is set."""

    key: str
    equals: str | None = None
    among: frozenset[str] | None = None
    exists: bool | None = None
    condition: str = "metadata"


class Band(msgspec.Struct, frozen=True, kw_only=True):
    """A classifier's score for a label, the bounds included."""

    classifier: Classifier
    label: str
    low: float
    high: float

    @property
    def condition(self) -> str:
        return f"classifier:{self.classifier.id}"


Leaf = Keywords | Regex | Length | Has | Metadata | Band
Node = AnyOf | AllOf | Not | Leaf

#: Each kind of condition has its key; those of a band come together.
_BAND = ("classifier", "label", "min_score", "max_score")
_LOGIC = ("any", "all", "not")


def parse(place: str, value: Any, classifiers: Mapping[str, Classifier], depth: int = 1) -> Node:
    """The expression that stands at `place`.

    Raises:
        InvalidArgument: naming the place of what is wrong.
    """
    if depth > MAX_DEPTH:
        raise refuse(place, f"is nested more than {MAX_DEPTH} levels deep.")
    found = mapping(place, value, (*_LOGIC, *_LEAVES, *_BAND))
    logic = [key for key in found if key in _LOGIC]
    if not found:
        raise refuse(place, f"must hold a condition: {', '.join((*_LOGIC, *ORDER))}.")
    if logic and len(found) > 1:
        raise refuse(place, f"must hold `{logic[0]}` alone; put further conditions into an `all`.")
    if not logic:
        return _leaves(place, found, classifiers)
    key = logic[0]
    at = within(place, key)
    if key == "not":
        return Not(parse(at, found[key], classifiers, depth + 1))
    if not isinstance(found[key], list) or not found[key]:
        raise refuse(at, "must be an array of at least one expression.")
    nodes = tuple(parse(f"{at}[{number}]", item, classifiers, depth + 1) for number, item in enumerate(found[key]))
    return AnyOf(nodes) if key == "any" else AllOf(nodes)


def _leaves(place: str, found: Mapping[str, Any], classifiers: Mapping[str, Classifier]) -> Node:
    nodes: list[Leaf] = [read(within(place, key), found[key]) for key, read in _LEAVES.items() if key in found]
    if "classifier" in found:
        # The last one: a model is asked only when all that costs nothing holds.
        nodes.append(_band(place, found, classifiers))
    else:
        for key in _BAND:
            if key in found:
                raise refuse(within(place, key), "belongs to a `classifier`, which is missing beside it.")
    return nodes[0] if len(nodes) == 1 else AllOf(tuple(nodes))


def _keywords(place: str, value: Any) -> Keywords:
    # Blanks may matter: "def " is no part of "default".
    if isinstance(value, list) and not all(isinstance(item, str) and item for item in value):
        raise refuse(place, "must be an array of strings, none of them empty.")
    words = value if isinstance(value, list) and value else texts(place, value)
    return Keywords(tuple(word.encode("utf-8", "replace").lower() for word in words), place.endswith("_all"))


def _regex(place: str, value: Any) -> Regex:
    try:
        return Regex(compiled(text(place, value)))
    except ValueError as error:
        raise refuse(place, f"{error}.") from None


def _length(place: str, value: Any) -> Length:
    return Length(count(place, value), place.rpartition(".")[2])


def _has(place: str, value: Any) -> Has:
    return Has(flag(place, value), place.rpartition(".")[2])


def _metadata(place: str, value: Any) -> Metadata:
    found = mapping(place, value, ("key", "equals", "any", "exists"), ("key",))
    key = text(within(place, "key"), found["key"])
    said = [name for name in ("equals", "any", "exists") if name in found]
    if len(said) != 1:
        raise refuse(place, "must hold exactly one of: equals, any, exists.")
    at = within(place, said[0])
    if said[0] == "equals":
        return Metadata(key=key, equals=text(at, found["equals"]))
    if said[0] == "any":
        return Metadata(key=key, among=frozenset(distinct(at, found["any"])))
    return Metadata(key=key, exists=flag(at, found["exists"]))


def _band(place: str, found: Mapping[str, Any], classifiers: Mapping[str, Classifier]) -> Band:
    at = within(place, "classifier")
    name = text(at, found["classifier"])
    classifier = classifiers.get(name)
    if classifier is None:
        known = ", ".join(classifiers) or "none"
        raise refuse(at, f"names {shown(name)}, which 'routing.classifiers' does not define; defined are: {known}.")
    label = found.get("label", classifier.default_label)
    if not label:
        raise refuse(within(place, "label"), f"is missing, and the classifier '{name}' has no `default_label`.")
    label = text(within(place, "label"), label)
    if classifier.labels and label not in classifier.labels:
        known = ", ".join(classifier.labels)
        raise refuse(within(place, "label"), f"is {shown(label)}, but the labels of '{name}' are: {known}.")
    usual = 0.0 if "max_score" in found else DEFAULT_SCORE
    low = score(within(place, "min_score"), found.get("min_score", usual))
    high = score(within(place, "max_score"), found.get("max_score", 1.0))
    if low > high:
        raise refuse(within(place, "min_score"), f"is {low}, which is more than the `max_score` {high}.")
    return Band(classifier=classifier, label=label, low=low, high=high)


#: In the order in which they are looked at: the cheap ones first.
_LEAVES: dict[str, Callable[[str, Any], Leaf]] = {
    "has_tools": _has,
    "has_images": _has,
    "min_chars": _length,
    "max_chars": _length,
    "metadata": _metadata,
    "keywords_any": _keywords,
    "keywords_all": _keywords,
    "regex": _regex,
}

#: The keys of the conditions in the order in which those of one object are looked at.
ORDER = (*_LEAVES, "classifier")
