"""Merging of command-line arguments that come from several layers.

Arguments are one string, as a person types them. Two layers are merged flag by flag: the higher one wins, `--x` and
`--no-x` exclude each other, and a flag that is given several times in one layer stays together.
"""

from __future__ import annotations

import re

#: A token: quoted parts stay inside it, quotes included.
_TOKEN = re.compile(r"""(?:"(?:\\.|[^"\\])*"|'[^']*'|\\.|[^\s"'\\])+|["'\\]""", re.DOTALL)

_NUMBER = re.compile(r"-\d|-\.\d")


def merge(high: str, low: str) -> str:
    """The arguments of two layers.

    Where only one layer says something, or the lower one adds nothing, the text is left as it was typed; otherwise
    flags come in the order of their names. Text before the first flag belongs to no flag and comes first.
    """
    high, low = high.strip(), low.strip()
    if not high or not low:
        return high or low
    above, below = _groups(high), _groups(low)
    added = {flag: group for flag, group in below.items() if flag not in above and _opposite(flag) not in above}
    if not added:
        return high
    merged = {**added, **above}
    return " ".join(token for flag in sorted(merged) for token in merged[flag])


def flags(text: str) -> frozenset[str]:
    """The flags that a string of arguments gives, without their values."""
    return frozenset(_groups(text)) - {""}


def word_behind(text: str, *names: str) -> str:
    """The word behind a flag, however it is spelled and wherever it is given last; "" when it is not."""
    found = ""
    for name, group in _groups(text).items():
        spelled = name.replace("_", "-") if name.startswith("--") else name
        if spelled in names and len(group) > 1:
            found = group[-1].strip("'\"")
    return found


def _groups(text: str) -> dict[str, list[str]]:
    """Flag to its tokens, all its occurrences one after the other; `""` holds what comes before the first flag."""
    groups: dict[str, list[str]] = {}
    current = ""
    for token in _TOKEN.findall(text):
        if _is_flag(token):
            name, equals, value = token.partition("=")
            current = name
            group = groups.setdefault(current, [])
            # `--f=v` and `--f v` are one spelling to the engines, and must be one here to be found equal.
            group += [name, value] if equals and value else [token]
        else:
            groups.setdefault(current, []).append(token)
    return groups


def _is_flag(token: str) -> bool:
    return len(token) > 1 and token[0] == "-" and not _NUMBER.match(token)


def _opposite(flag: str) -> str:
    return f"--{flag[5:]}" if flag.startswith("--no-") else f"--no-{flag[2:]}" if flag.startswith("--") else ""
