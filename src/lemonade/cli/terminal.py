"""What people read: notes on stderr, tables and JSON on stdout, colours only where they are wanted."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any, TextIO

#: A model's text must not move the cursor, retitle the window or write to the clipboard of who reads it.
_CONTROL = dict.fromkeys([*range(9), 11, 12, *range(14, 32), *range(127, 160)])


def note(text: str) -> None:
    """One line for the person, which no pipe carries on."""
    print(text, file=sys.stderr, flush=True)


def fail(text: str) -> None:
    """The line that a command ends with when it could not do its work."""
    note("Error: " + " ".join(text.split()))


def is_styled(stream: TextIO) -> bool:
    """Whether `stream` is a terminal that shows colours and wants them (https://no-color.org)."""
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def dim(text: str, stream: TextIO) -> str:
    return f"\x1b[2m{text}\x1b[0m" if is_styled(stream) else text


def bold(text: str, stream: TextIO) -> str:
    return f"\x1b[1m{text}\x1b[0m" if is_styled(stream) else text


def harmless(text: str, stream: TextIO) -> str:
    """`text` without control characters if a terminal would act on them; unchanged for a pipe."""
    return text.translate(_CONTROL) if stream.isatty() else text


def print_json(value: Any) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as what is in them, whatever the width of the terminal: a cut name is of no use."""
    widths = [max(len(line[column]) for line in (headings, *rows)) for column in range(len(headings))]

    def line(cells: Sequence[str]) -> str:
        return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()

    print(bold(line([heading.upper() for heading in headings]), sys.stdout))
    for row in rows:
        print(line([harmless(cell, sys.stdout) for cell in row]))


def size(count: float) -> str:
    """Bytes for people, in powers of 1000: `1.5 GB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5 or unit == "GB":
            return f"{count:.0f} {unit}" if unit in ("B", "kB") else f"{count:.1f} {unit}"
        count /= 1000
    raise AssertionError("unreachable")


def duration(seconds: float) -> str:
    """Seconds for people: `40 s`, `3 min 20 s`, `2 h 05 min`."""
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
