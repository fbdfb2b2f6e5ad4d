"""`lemonade logs`: what the daemon wrote.

On this machine it is read from the disk, whether or not the daemon runs. From another one it comes over a WebSocket.
"""

from __future__ import annotations

import json
import os
import time
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import target_of

if TYPE_CHECKING:
    from lemonade.cli.target import Target

EXAMPLES = """
lemonade logs                     the last 100 lines
lemonade logs -n 20 -f            and what comes
lemonade --host box.lan logs -f   of a daemon on another machine
"""

#: Seconds between two looks for new lines.
POLL = 0.2


def logs(
    ctx: typer.Context,
    lines: Annotated[int, typer.Option("-n", "--lines", metavar="N", min=0, help="How many of the last lines.")] = 100,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Go on with new lines until Ctrl-C.")] = False,
) -> None:
    """Show the daemon's log."""
    from lemonade.cli.daemon import log_file
    from lemonade.errors import LemonadeError

    target = target_of(ctx)
    if not target.address().is_local:
        _remote(target, lines, follow)
        return
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


def _remote(target: Target, lines: int, follow: bool) -> None:
    from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
    from websockets.sync.client import connect

    from lemonade.client import CONNECT_TIMEOUT, QUICK, NoDaemon
    from lemonade.errors import LemonadeError

    address = target.address()
    key = target.api_key or os.environ.get("LEMONADE_API_KEY") or os.environ.get("LEMONADE_ADMIN_API_KEY")
    url = f"{str(address).replace('http', 'ws', 1)}/v1/logs/stream"
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    try:
        with connect(
            url, additional_headers=headers, open_timeout=CONNECT_TIMEOUT, max_size=None, proxy=None
        ) as socket:
            socket.send(json.dumps({"type": "logs.subscribe", "after_seq": None}))
            entries = json.loads(socket.recv(QUICK))["entries"]
            for entry in entries[max(0, len(entries) - lines) :]:
                _print_entry(entry)
            while follow:
                _print_entry(json.loads(socket.recv())["entry"])
    except InvalidStatus as refusal:
        raise LemonadeError(_reason(refusal.response.body) or str(refusal)) from None
    except ConnectionClosed:
        raise LemonadeError(f"The daemon at {address} has ended the connection.") from None
    except (OSError, WebSocketException) as error:
        raise NoDaemon(f"No daemon answers at {address}: {error}") from None


def _print_entry(entry: dict[str, Any]) -> None:
    print("{timestamp} [{severity}] ({tag}) {line}".format(**entry), flush=True)


def _reason(body: bytes | bytearray | None) -> str:
    """What the daemon said when it refused, or nothing when it was something else that did."""
    try:
        return str(json.loads(body or b"")["error"]["message"])
    except (ValueError, KeyError, TypeError):
        return ""


def _print(raw: bytes) -> None:
    print(raw.decode("utf-8", "replace"), end="", flush=True)
