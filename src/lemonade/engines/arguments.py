"""A user's arguments for an engine that is a library: a command line of which each flag sets something.

A table of `Flag`s says which there are; `parse` reads a text by it, or says what is wrong before anything starts.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from lemonade.errors import InvalidArgument


class Flag(NamedTuple):
    """One flag in all its spellings.

    Attributes:
        names: all of them.
        target: what it sets.
        read: makes the value of the word that follows; raises ValueError ("must be …"). None when no word follows.
        value: what a flag without a word sets.
    """

    names: tuple[str, ...]
    target: str
    read: Callable[[str], Any] | None = None
    value: Any = True


def parse(text: str, flags: Iterable[Flag], *, option: str, reserved: Mapping[str, str]) -> dict[str, Any]:
    """What the flags of a text set; the last one counts.

    Args:
        option: the name that clients know the text by.
        reserved: flags that cannot be said, and why.

    Raises:
        InvalidArgument: a flag that is not known or reserved, or a value that it cannot have.
    """
    known = {name: flag for flag in flags for name in flag.names}
    made: dict[str, Any] = {}
    try:
        rest = words_of(text)[::-1]
    except ValueError as error:
        raise InvalidArgument(f"'{option}': {error}.", param=option) from None
    while rest:
        word = rest.pop()
        if word in reserved:
            raise InvalidArgument(f"'{option}': '{word}' cannot be set here: {reserved[word]}.", param=option)
        if word not in known:
            near = difflib.get_close_matches(word, known, n=1)
            hint = f" Did you mean '{near[0]}'?" if near else f" There is: {', '.join(sorted(known))}."
            raise InvalidArgument(f"'{option}': '{word[:100]}' is not known.{hint}", param=option)
        flag = known[word]
        if flag.read is None:
            made[flag.target] = flag.value
            continue
        if not rest:
            raise InvalidArgument(f"'{option}': '{word}' needs a value.", param=option)
        value = rest.pop()
        try:
            made[flag.target] = flag.read(value)
        except ValueError as error:
            raise InvalidArgument(f"'{option}': '{word}' {error}, not {value[:100]!r}.", param=option) from None
    return made


def refuse_reserved(
    words: Sequence[str],
    reserved: Collection[str],
    refusal: Callable[[str], InvalidArgument],
    spelled: Callable[[str], str] = lambda word: word,
) -> None:
    """Refuses what the daemon says itself to an engine that is a program, all of it at once.

    Args:
        refusal: makes the error of a reason.
        spelled: the spelling of a word in `reserved`.

    Raises:
        InvalidArgument: there is such a word.
    """
    offenders = list(dict.fromkeys(word for word in words if spelled(word) in reserved))
    if offenders:
        reasons = [f"Argument '{word}' is managed by Lemonade and cannot be overridden." for word in offenders]
        raise refusal("\n".join(reasons) + "\nReserved arguments: " + ", ".join(sorted(reserved)))


def words_of(text: str) -> list[str]:
    """The words of an argument string, quotes obeyed, `--flag=value` as two words.

    Raises:
        ValueError: a quotation without an end.
    """
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise ValueError(f"{error} in {text[:200]!r}") from None
    made: list[str] = []
    for word in words:
        name, equals, value = word.partition("=")
        made += [name, value] if equals and re.fullmatch(r"--?[A-Za-z][\w-]*", name) else [word]
    return made
