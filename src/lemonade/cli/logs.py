"""`lemonade logs`: what the daemon of this machine wrote."""

from __future__ import annotations

import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from lemonade.cli.target import target_of

EXAMPLES = """
lemonade logs                     the last 100 lines
lemonade logs -n 20 -f            and what comes
"""

#: Seconds between two looks for new lines.
POLL = 0.2


def logs(
    ctx: typer.Context,
    lines: Annotated[int, typer.Option("-n", "--lines", metavar="N", min=0, help="How many of the last lines.")] = 100,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")] = False,
) -> None:
    """Show the log of the daemon on this machine."""
    from lemonade.cli.daemon import log_file
    from lemonade.errors import LemonadeError

    target = target_of(ctx)
    if not target.address().is_local:
        raise LemonadeError(f"Logs are read from this machine's disk; {target.address()} is another machine.")
    path = log_file(target.paths().cache)
    if not path.is_file() and not follow:
        raise LemonadeError(f"There is no log yet; {path} is written by a daemon that runs in the background.")
    place = _tail(path, lines)
    while follow:
        time.sleep(POLL)
        place = _more(path, place)


@dataclass(frozen=True, slots=True)
class Place:
    """How far a log was read: which file, by the number that the file system gives it, and how many bytes of it."""

    file: int
    position: int


def _tail(path: Path, count: int) -> Place:
    if not path.is_file():
        return Place(0, 0)
    with path.open("rb") as file:
        for line in deque(file, maxlen=count):
            _print(line)
        return Place(os.fstat(file.fileno()).st_ino, file.tell())


def _more(path: Path, place: Place) -> Place:
    """Prints what was written after `place`; all of it, when a new file has taken the name."""
    try:
        state = path.stat()
        is_same = state.st_ino == place.file and state.st_size >= place.position
        if is_same and state.st_size == place.position:
            return place
        with path.open("rb") as file:
            file.seek(place.position if is_same else 0)
            _print(file.read())
            return Place(os.fstat(file.fileno()).st_ino, file.tell())
    except FileNotFoundError:
        return Place(0, 0)


def _print(raw: bytes) -> None:
    print(raw.decode("utf-8", "replace"), end="", flush=True)
