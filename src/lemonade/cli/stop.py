"""`lemonade stop`: end the daemon."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note
from lemonade.errors import LemonadeError

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade stop
lemonade --host box.lan stop      the daemon of another machine
"""

#: Seconds for a daemon to end: it lets running answers finish, then its engines.
STOP_TIMEOUT = 15.0


class StillRunning(LemonadeError):
    """The daemon was told to stop and still answers."""


def _answers(client: Client) -> bool:
    """Whether something still listens there; a daemon that is ending may take a connection and drop it."""
    try:
        return client.is_alive()
    except LemonadeError:
        return True


def stop(ctx: typer.Context) -> None:
    """Stop the daemon. Running answers get a few seconds to finish; a download goes on from where it was next time."""
    client = target_of(ctx).client()
    client.post("/internal/shutdown", {})
    deadline = time.monotonic() + STOP_TIMEOUT
    while _answers(client):
        if time.monotonic() > deadline:
            raise StillRunning(f"The daemon at {client.address} still answers after {STOP_TIMEOUT:g} seconds.")
        time.sleep(0.05)
    note(f"The daemon at {client.address} has stopped.")
