"""The fields of a policy, read one by one: what is wrong is told with the place at which it stands."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from lemonade.errors import InvalidArgument

#: Longest piece of a client's value in a message.
SHOWN = 80


def refuse(place: str, what: str) -> InvalidArgument:
    """The error for what stands at `place`, such as `routing.rules[2].match.any[0].min_score`."""
    return InvalidArgument(f"Invalid routing policy: '{place}' {what}", param=place)


def shown(value: Any) -> str:
    """A value for a message, cut where it is long."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def within(place: str, key: str) -> str:
    return f"{place}.{key}" if place else key


def mapping(place: str, value: Any, known: Iterable[str], required: Iterable[str] = ()) -> dict[str, Any]:
    """An object that has only `known` keys; those that are null count as absent.

    Raises:
        InvalidArgument: it is none, has another key, or lacks one.
    """
    if not isinstance(value, Mapping):
        raise refuse(place, f"must be an object, not {shown(value)}.")
    known = tuple(known)
    for key in value:
        if key not in known:
            raise refuse(within(place, str(key)), f"is not known here; known are: {', '.join(known)}.")
    found = {key: item for key, item in value.items() if item is not None}
    for key in required:
        if key not in found:
            raise refuse(within(place, key), "is missing.")
    return found


def text(place: str, value: Any) -> str:
    """A string with more than blanks in it."""
    if not isinstance(value, str) or not value.strip():
        raise refuse(place, f"must be a string with something in it, not {shown(value)}.")
    return value


def texts(place: str, value: Any) -> tuple[str, ...]:
    """A non-empty array of such strings."""
    if not isinstance(value, list) or not value:
        raise refuse(place, f"must be an array of at least one string, not {shown(value)}.")
    return tuple(text(f"{place}[{number}]", item) for number, item in enumerate(value))


def distinct(place: str, value: Any) -> tuple[str, ...]:
    """As `texts`, with no string twice."""
    found = texts(place, value)
    for number, item in enumerate(found):
        if item in found[:number]:
            raise refuse(f"{place}[{number}]", f"repeats {shown(item)}.")
    return found


def items(place: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise refuse(place, f"must be an array, not {shown(value)}.")
    return value


def flag(place: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise refuse(place, f"must be true or false, not {shown(value)}.")
    return value


def count(place: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise refuse(place, f"must be a whole number from 0, not {shown(value)}.")
    return value


def score(place: str, value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise refuse(place, f"must be a number from 0 to 1, not {shown(value)}.")
    return float(value)
