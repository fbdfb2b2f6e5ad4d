"""How the words of llama-server's command line are read, and how its flags are declared (see `flags.py`)."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, NamedTuple


class Member(NamedTuple):
    """A value of one of the engine's enumerations, by name: `xllamacpp.<enum>.<name>`."""

    enum: str
    name: str


class Setting(NamedTuple):
    """One change of the parameters: a value set, put at the end of a list, merged into a mapping, or a bit set."""

    attribute: str
    value: Any
    how: Literal["set", "add", "merge", "bit"] = "set"


class Flag(NamedTuple):
    """One flag in all its spellings.

    Attributes:
        names: the canonical one last, as llama-server lists them.
        values: how many words follow it.
        settings: makes the changes of those words; raises ValueError ("must be …").
    """

    names: tuple[str, ...]
    values: int
    settings: Callable[..., list[Setting]]


Read = Callable[[str], Any]

#: The engines count in 32 bits.
MAX_INT = 2**31 - 1


def names_in(text: str) -> frozenset[str]:
    """The words of a text, for tables."""
    return frozenset(text.split())


# How a word is read.


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


def members(enum: str, prefix: str, *names: str, **also: str) -> dict[str, Any]:
    """Words of the command line to members of an enumeration: `q8_0` to `ggml_type.GGML_TYPE_Q8_0`."""
    found = {name: Member(enum, prefix + name.upper().replace("-", "_")) for name in names}
    return found | {word: Member(enum, prefix + member) for word, member in also.items()}


def switched(on: Any, off: Any, auto: Any = None) -> dict[str, Any]:
    """`on`, `off` and, where given, `auto`, in all the spellings that llama-server takes."""
    words = dict.fromkeys(("on", "enabled", "true", "1"), on) | dict.fromkeys(("off", "disabled", "false", "0"), off)
    return words if auto is None else words | dict.fromkeys(("auto", "-1"), auto)


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


# How a flag is declared.

#: Sampling parameters with the bit that says "the user chose it": without it the model's own metadata would win.
_CHOSEN = {
    f"sampling.{attribute}": Member("common_params_sampling_config", f"COMMON_PARAMS_SAMPLING_CONFIG_{name}")
    for attribute, name in {
        "samplers": "SAMPLERS",
        "top_k": "TOP_K",
        "top_p": "TOP_P",
        "min_p": "MIN_P",
        "xtc_probability": "XTC_PROBABILITY",
        "xtc_threshold": "XTC_THRESHOLD",
        "temp": "TEMP",
        "penalty_last_n": "PENALTY_LAST_N",
        "penalty_repeat": "PENALTY_REPEAT",
        "mirostat": "MIROSTAT",
        "mirostat_tau": "MIROSTAT_TAU",
        "mirostat_eta": "MIROSTAT_ETA",
    }.items()
}


def valued(names: str, read: Read, *attributes: str) -> Flag:
    """A flag with one word that sets attributes."""

    def settings(word: str) -> list[Setting]:
        value = read(word)
        made = [Setting(attribute, value) for attribute in attributes]
        chosen = [_CHOSEN[attribute] for attribute in attributes if attribute in _CHOSEN]
        return made + [Setting("sampling.user_sampling_config", bit, "bit") for bit in chosen]

    return Flag(tuple(names.split()), 1, settings)


def listed(names: str, read: Read, attribute: str) -> Flag:
    """A flag whose word holds things to be added to a list; `read` answers the list of them."""
    return Flag(tuple(names.split()), 1, lambda word: [Setting(attribute, item, "add") for item in read(word)])


def bare(names: str, *settings: Setting) -> Flag:
    """A flag without a word."""
    return Flag(tuple(names.split()), 0, lambda: list(settings))


def pair(on: str, off: str, attribute: str, value: bool = True) -> list[Flag]:
    """A flag and its opposite; `value` is what the first one sets."""
    return [bare(on, Setting(attribute, value)), bare(off, Setting(attribute, not value))]


# Words with a form of their own.


def templates(word: str) -> list[Setting]:
    try:
        given = json.loads(word)
    except ValueError:
        given = None
    if not isinstance(given, dict):
        raise ValueError("must be a JSON object")
    return [Setting("default_template_kwargs", {key: json.dumps(value) for key, value in given.items()}, "merge")]


def reasoning(word: str) -> list[Setting]:
    mode = choice(switched(1, 0, -1))(word)
    made = [Setting("enable_reasoning", mode)]
    if mode >= 0:
        thinking = {"enable_thinking": "true" if mode else "false"}
        made.append(Setting("default_template_kwargs", thinking, "merge"))
    return made


def preserve(value: str) -> tuple[Setting, Setting]:
    kept = Setting("default_template_kwargs", {"preserve_reasoning": value}, "merge")
    return kept, Setting("preserve_reasoning_specified", True)


def scaled(word: str) -> list[tuple[str, float]]:
    made = []
    for part in word.split(","):
        path, colon, scale = part.rpartition(":")
        if not colon:
            raise ValueError("must be FILE:SCALE, several of them with commas between")
        made.append((existing(path), number()(scale)))
    return made


def override(word: str) -> str:
    for part in word.split(","):
        if not re.fullmatch(r"[^=]+=[^=]+", part):
            raise ValueError("must be PATTERN=BUFFER, several of them with commas between")
    return word


SAMPLERS = [
    "dry",
    "top_k",
    "top_p",
    "top_n_sigma",
    "typ_p",
    "min_p",
    "temperature",
    "xtc",
    "infill",
    "penalties",
    "adaptive_p",
]


def samplers(word: str) -> str:
    short = {"nucleus": "top_p", "temp": "temperature", "typ": "typ_p", "typical_p": "typ_p"}
    found = [short.get(part, part) for part in word.lower().replace("-", "_").split(";")]
    if unknown := [part for part in found if part not in SAMPLERS]:
        raise ValueError(f"must be names of samplers with ';' between ({', '.join(SAMPLERS)}), not {unknown[0]!r}")
    return ";".join(found)


def schema(word: str) -> str:
    try:
        json.loads(word)
    except ValueError as error:
        raise ValueError(f"must be a JSON schema ({error})") from None
    return word
