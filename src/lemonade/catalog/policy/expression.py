"""Regular expressions of policies: JavaScript's way to write them, searched in time that grows with the text alone.

What a search must never do is hang, whatever the expression and the text: so the engine is RE2, which reads each byte
once. What cannot be done in that way is refused when the policy is: back references (`\\1`), looking ahead or behind
(`(?=…)`, `(?<!…)`), and repetitions of more than 1000. What is written differently in JavaScript is rewritten:
`\\uXXXX`, `\\cX`, `[^]`, and what `.` and `\\s` stand for. `(?i)` at the beginning ignores case, which JavaScript has
no way to say inside an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

#: Longest expression in characters; RE2's own limit is the size of the program that it makes.
MAX_PATTERN = 10_000
#: Bytes of the program, beyond which RE2 refuses an expression.
MAX_MEMORY = 8 << 20

#: What `\s` and `.` stand for, as members of a class. Source: ECMA-262, WhiteSpace and LineTerminator.
_SPACES = r"\t-\r \x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000}\x{FEFF}"
_NO_SPACES = (
    r"\x{0}-\x{8}\x{E}-\x{1F}!-\x{9F}\x{A1}-\x{167F}\x{1681}-\x{1FFF}\x{200B}-\x{2027}\x{202A}-\x{202E}"
    r"\x{2030}-\x{205E}\x{2060}-\x{2FFF}\x{3001}-\x{FEFE}\x{FF00}-\x{10FFFF}"
)
_LINE_ENDS = r"\n\r\x{2028}\x{2029}"

_ESCAPE = re.compile(
    r"\\(?:u\{([0-9A-Fa-f]+)\}|u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|c([A-Za-z])|(k<[^>]*>|.))", re.DOTALL
)
_REFUSED = {
    "(?=": "looks ahead",
    "(?!": "looks ahead",
    "(?<=": "looks behind",
    "(?<!": "looks behind",
}


class Expression:
    """A compiled expression; calling it finds it anywhere in a text in UTF-8.

    Attributes:
        pattern: as RE2 writes it.
        size: of its program, in instructions.
    """

    def __init__(self, pattern: bytes, found: Any) -> None:
        self.pattern = pattern
        self.size: int = found.programsize
        self._found = found

    def __call__(self, text: bytes) -> bool:
        return self._found.search(text) is not None


def compiled(pattern: str) -> Expression:
    """The search for an expression.

    Raises:
        ValueError: with what is wrong with it, as a sentence that follows on "it".
    """
    import re2

    if len(pattern) > MAX_PATTERN:
        raise ValueError(f"is longer than {MAX_PATTERN} characters")
    # Bytes, so that a text is encoded once for all expressions.
    made = translated(pattern).encode()
    try:
        return Expression(made, re2.compile(made, _options()))
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(f"is no expression: {reason.decode() if isinstance(reason, bytes) else reason}") from None


def literal(text: bytes) -> bytes:
    """The expression of exactly this text."""
    import re2

    escaped: bytes = re2.escape(text)
    return escaped


def together(patterns: Sequence[bytes]) -> Callable[[bytes], frozenset[int] | None]:
    """Searches for several in one pass; the numbers of those that are found, None when it cannot be told.

    Args:
        patterns: as RE2 writes them.
    """
    import re2

    found: Any = re2.Set.SearchSet(_options())
    # Out of memory, the engine answers that nothing was found: then not even the nothing that is everywhere.
    everywhere = found.Add(b"")
    try:
        for pattern in patterns:
            found.Add(pattern)
        found.Compile()
    except re2.error:  # together they are too large
        return lambda text: None

    def search(text: bytes) -> frozenset[int] | None:
        numbers = frozenset(found.Match(text))
        return frozenset(number - 1 for number in numbers if number != everywhere) if everywhere in numbers else None

    return search


def _options() -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = MAX_MEMORY
    return options


def translated(pattern: str) -> str:
    """A JavaScript expression as RE2 writes it.

    Raises:
        ValueError: as `compiled`, for what RE2 cannot do.
    """
    made: list[str] = []
    at, inside = 0, False
    while at < len(pattern):
        here = pattern[at]
        if here == "\\":
            match = _ESCAPE.match(pattern, at)
            if match is None:
                raise ValueError("ends in a backslash")
            made.append(_escape(match, inside))
            at = match.end()
            continue
        if inside:
            inside = here != "]"
            # RE2 would read `[[:alpha:]]` as a class of POSIX, and JavaScript does not.
            made.append("\\[" if here == "[" else here)
        elif here == "[":
            if pattern.startswith(("[^]", "[]"), at):
                any_at_all = pattern[at + 1] == "^"
                made.append(r"[\x{0}-\x{10FFFF}]" if any_at_all else r"[^\x{0}-\x{10FFFF}]")
                at += 3 if any_at_all else 2
                continue
            inside = True
            made.append(here)
            if pattern.startswith("^", at + 1):
                made.append("^")
                at += 1
        elif here == ".":
            made.append(f"[^{_LINE_ENDS}]")
        else:
            for head, what in _REFUSED.items():
                if pattern.startswith(head, at):
                    raise ValueError(f"{what} with '{head}…)', which cannot be searched for in linear time")
            made.append(here)
        at += 1
    return "".join(made)


def _escape(match: re.Match[str], inside: bool) -> str:
    long, short, byte, control, other = match.groups()
    if code := long or short or byte:
        number = int(code, 16)
        if number > 0x10FFFF or 0xD800 <= number <= 0xDFFF:
            raise ValueError(f"holds '{match[0]}', which is no character")
        return rf"\x{{{number:X}}}"
    if control:
        return rf"\x{{{ord(control) % 32:X}}}"
    if other[0] in "123456789" or (other[0] == "k" and len(other) > 1):
        raise ValueError(f"refers back with '{match[0]}', which cannot be searched for in linear time")
    if other == "s":
        return _SPACES if inside else f"[{_SPACES}]"
    if other == "S":
        return _NO_SPACES if inside else f"[^{_SPACES}]"
    if other == "0":
        return r"\x{0}"
    if inside and other == "b":
        return r"\x{8}"
    if other in "dDwWbBnrtfvpP" or not (other.isalnum() or other == "_"):
        return match[0] if ord(other[0]) < 128 else other
    # In JavaScript, a backslash before any other letter says nothing.
    return other
