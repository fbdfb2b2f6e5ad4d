"""How the words behind the flags of an engine's command line are read.

Each reader takes a word and gives what it stands for, or raises ValueError ("must be …").
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

Read = Callable[[str], Any]


#: The engines count in 32 bits.
MAX_INT = 2**31 - 1


def names_in(text: str) -> frozenset[str]:
    """The words of a text, for tables."""
    return frozenset(text.split())


def whole(low: int | None = None, high: int | None = None) -> Read:
    def read(word: str) -> int:
        if not re.fullmatch(r"[+-]?\d{1,20}", word):
            raise ValueError("must be a whole number")
        value = int(word)
        if (low is not None and value < low) or (high is not None and value > high):
            raise ValueError(f"must be a whole number {_range(low, high)}")
        if high is None and not -MAX_INT <= value <= MAX_INT:
            raise ValueError(f"must be a whole number of at most {MAX_INT}")
        return value

    return read


def number(low: float | None = None, high: float | None = None, *, above: bool = False) -> Read:
    def read(word: str) -> float:
        try:
            value = float(word)
        except ValueError:
            raise ValueError("must be a number") from None
        good = math.isfinite(value) and (low is None or (value > low if above else value >= low))
        if not good or (high is not None and value > high):
            raise ValueError(f"must be a number {f'above {low}' if above else _range(low, high)}".rstrip())
        return value

    return read


def _range(low: float | None, high: float | None) -> str:
    if low is not None and high is not None:
        return f"from {low} to {high}"
    return f"of at least {low}" if low is not None else f"of at most {high}" if high is not None else ""


def choice(values: dict[str, Any]) -> Read:
    def read(word: str) -> Any:
        if word not in values:
            raise ValueError("must be one of " + ", ".join(values))
        return values[word]

    return read


def text(word: str) -> str:
    return word


def contents(word: str) -> str:
    try:
        return Path(word).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"must be a text file that can be read ({error})") from None


def existing(word: str) -> str:
    if not Path(word).is_file():
        raise ValueError("must be a file that is there")
    return word


def directory(word: str) -> str:
    if not Path(word).is_dir():
        raise ValueError("must be a directory that is there")
    return word.rstrip("/") + "/"


def numbers(word: str) -> list[float]:
    return [number(0)(part) for part in re.split(r"[,/]", word)]
