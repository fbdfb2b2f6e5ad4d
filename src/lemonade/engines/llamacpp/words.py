"""How the flags of llama-server's command line are declared (see `flags.py`), and the words that it alone has."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from lemonade.engines.words import Read, choice, existing, number


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


def members(enum: str, prefix: str, *names: str, **also: str) -> dict[str, Any]:
    """Words of the command line to members of an enumeration: `q8_0` to `ggml_type.GGML_TYPE_Q8_0`."""
    found = {name: Member(enum, prefix + name.upper().replace("-", "_")) for name in names}
    return found | {word: Member(enum, prefix + member) for word, member in also.items()}


def switched(on: Any, off: Any, auto: Any = None) -> dict[str, Any]:
    """`on`, `off` and, where given, `auto`, in all the spellings that llama-server takes."""
    words = dict.fromkeys(("on", "enabled", "true", "1"), on) | dict.fromkeys(("off", "disabled", "false", "0"), off)
    return words if auto is None else words | dict.fromkeys(("auto", "-1"), auto)


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
