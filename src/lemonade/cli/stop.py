"""`lemonade stop`: end the daemon."""

from __future__ import annotations

import time

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note
from lemonade.errors import LemonadeError

EXAMPLES = """
lemonade stop
lemonade --host box.lan stop      the daemon of another machine
"""

#: Seconds for a daemon to end: it lets running answers finish, then its engines.
STOP_TIMEOUT = 15.0


class StillRunning(LemonadeError):
    """The daemon was told to stop and still answers."""


def stop(ctx: typer.Context) -> None:
    """Stop the daemon. Running answers get a few seconds to finish; a download goes on from where it was next time."""
    client = target_of(ctx).client()
    client.post("/internal/shutdown", {})
    deadline = time.monotonic() + STOP_TIMEOUT
    while client.is_alive():
        if time.monotonic() > deadline:
            raise StillRunning(f"The daemon at {client.address} still answers after {STOP_TIMEOUT:g} seconds.")
        time.sleep(0.05)
    note(f"The daemon at {client.address} has stopped.")
