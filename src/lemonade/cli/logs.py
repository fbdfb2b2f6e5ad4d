"""`lemonade logs`: what the daemon of this machine wrote."""

from __future__ import annotations

import time
from collections import deque
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
    position = _tail(path, lines)
    while follow:
        time.sleep(POLL)
        position = _more(path, position)


def _tail(path: Path, count: int) -> int:
    if not path.is_file():
        return 0
    with path.open("rb") as file:
        for line in deque(file, maxlen=count):
            _print(line)
        return file.tell()


def _more(path: Path, position: int) -> int:
    """Prints what was written after `position`; starts over when the file was replaced by a shorter one."""
    try:
        size = path.stat().st_size
        if size == position:
            return position
        with path.open("rb") as file:
            file.seek(position if size > position else 0)
            _print(file.read())
            return file.tell()
    except FileNotFoundError:
        return 0


def _print(raw: bytes) -> None:
    print(raw.decode("utf-8", "replace"), end="", flush=True)
