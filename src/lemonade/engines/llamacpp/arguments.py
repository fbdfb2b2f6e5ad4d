"""A user's arguments for llama.cpp: read, checked, and refused before anything starts."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterable, Sequence

from lemonade.engines import arguments
from lemonade.engines.llamacpp.flags import MANAGED, SERVER_ONLY, TAKEN
from lemonade.engines.llamacpp.words import Flag, Setting
from lemonade.engines.words import names_in
from lemonade.errors import InvalidArgument

_TAKEN = {name: flag for flag in TAKEN for name in flag.names}
_ALL = _TAKEN | {name: flag for flag in MANAGED for name in flag.names}

#: What a user may not say to any llama-server, because the daemon says it, or could not reach the engine afterwards.
RESERVED = frozenset(name for flag in MANAGED for name in flag.names) | names_in(
    """
    -mmu --mmproj-url --mmproj-auto --no-mmproj --no-mmproj-auto -dev --device -hf -hfr --hf-repo -hff
    --hf-file -hft --hf-token -hfv -hfrv --hf-repo-v -hffv --hf-file-v -mu --model-url -dr --docker-repo -hfd
    -hfrd --hf-repo-draft --spec-draft-hf --host --reuse-port --api-key --api-key-file --ssl-key-file
    --ssl-cert-file --api-prefix --models-dir --models-preset --models-max --models-autoload
    --no-models-autoload
    """
)

#: The option that holds the arguments, as clients write it.
OPTION = "llamacpp_args"


def split(text: str) -> list[str]:
    """The words of the option, as `engines.arguments.words_of` reads them.

    Raises:
        InvalidArgument: a quotation without an end.
    """
    try:
        return arguments.words_of(text)
    except ValueError as error:
        raise _invalid(str(error)) from None


def refuse_reserved(words: Sequence[str]) -> None:
    """As `engines.arguments.refuse_reserved`."""
    arguments.refuse_reserved(words, RESERVED, _invalid, _spelled)


def parse(words: Sequence[str], *, managed: bool = False) -> list[Setting]:
    """What the words change in the bundled engine's parameters, in their order.

    Args:
        managed: whether the daemon's own flags are taken, too.

    Raises:
        InvalidArgument: a flag that is not known, or a value that it cannot have.
    """
    known = _ALL if managed else _TAKEN
    made: list[Setting] = []
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        flag = known.get(_spelled(word))
        if flag is None:
            raise _unknown(word, known)
        if len(rest) < flag.values or (flag.values and _is_flag(rest[-1], known)):
            raise _invalid(f"'{word}' needs a value.")
        values = [rest.pop() for _ in range(flag.values)]
        try:
            made += flag.settings(*values)
        except ValueError as error:
            raise _invalid(f"'{word}' {error}, not {' '.join(values)!r}.") from None
    return made


def mentions(words: Iterable[str], canonical: str) -> bool:
    """Whether a flag is among the words in any of its spellings."""
    flag = _ALL[canonical]
    return any(_ALL.get(_spelled(word)) is flag for word in words)


def number(words: Sequence[str], canonical: str) -> int:
    """The value that a flag has at last, in any of its spellings; 0 when it is not given, or no number."""
    flag = _ALL[canonical]
    found = 0
    for word, value in itertools.pairwise(words):
        if _ALL.get(_spelled(word)) is flag:
            found = int(value) if value.isdecimal() else 0
    return found


def _spelled(word: str) -> str:
    """llama-server takes `--top_k` for `--top-k`."""
    return word.replace("_", "-") if word.startswith("--") else word


def _is_flag(word: str, known: dict[str, Flag]) -> bool:
    """Negative numbers and texts that start with a dash are values."""
    return _spelled(word) in known or word.startswith("--")


def _unknown(word: str, known: dict[str, Flag]) -> InvalidArgument:
    if not word.startswith("-"):
        return _invalid(f"'{word}' belongs to no flag.")
    if _spelled(word) in SERVER_ONLY:
        return _invalid(
            f"'{word}' is not taken by the bundled engine; a llama-server on PATH takes it (llamacpp_backend: system)."
        )
    close = difflib.get_close_matches(_spelled(word), known, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return _invalid(f"unknown argument '{word}'.{hint}")


def _invalid(reason: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid custom llama-server arguments:\n{reason}", param=OPTION)
