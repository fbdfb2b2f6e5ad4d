"""A daemon for whoever needs one: found, or started in the background."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from lemonade.cli.terminal import note
from lemonade.client import NoDaemon
from lemonade.errors import LemonadeError

if TYPE_CHECKING:
    from lemonade.address import Address
    from lemonade.cli.target import Target
    from lemonade.client import Client
    from lemonade.paths import Paths

#: Seconds until a daemon that was started must answer. It takes under one; a cold disk may take ten.
START_TIMEOUT = 60.0
#: Seconds between two looks.
POLL = 0.05


class StartFailed(LemonadeError):
    """The daemon that was started did not come up."""


def log_file(cache: Path) -> Path:
    """Where a daemon that has no terminal writes."""
    return cache / "logs" / "lemond.log"


def ensure(target: Target) -> Client:
    """A client of a daemon that answers; starts one on this machine when none does.

    Raises:
        NoDaemon: none answers, and the address is not this machine's.
        StartFailed: the one that was started ended, or does not answer.
    """
    client = target.client()
    if client.is_alive():
        return client
    if not client.address.is_local:
        raise NoDaemon(f"No daemon answers at {client.address}, and only one on this machine can be started from here.")
    paths = target.paths()
    log = log_file(paths.cache)
    # Two commands at once start one daemon: the second waits here, then finds the first one's.
    with _alone(paths, client.address):
        if not client.is_alive():
            _start(target, client, log)
    return client


@contextlib.contextmanager
def _alone(paths: Paths, address: Address) -> Iterator[None]:
    """Holds the lock of those who start a daemon; its folders are there then, and can be written."""
    from filelock import FileLock

    try:
        paths.runtime.mkdir(parents=True, exist_ok=True, mode=0o700)
        log_file(paths.cache).parent.mkdir(parents=True, exist_ok=True)
        log_file(paths.cache).open("ab").close()
        lock = FileLock(paths.runtime / "start.lock").acquire()
    except OSError as error:
        raise StartFailed(
            f"No daemon answers at {address}, and none can be started in the background: {error.filename} cannot be "
            f"written ({error.strerror}). Set LEMONADE_CACHE_DIR to a folder of your own."
        ) from error
    with lock:
        yield


def _start(target: Target, client: Client, log: Path) -> None:
    with log.open("ab") as output:
        begin = output.tell()
        # -P: a folder `lemonade` in the working directory is not the program.
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "lemonade.cli.main", "serve", *target.serve_flags()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=Path.home() if Path.home().is_dir() else None,
            start_new_session=True,
            creationflags=getattr(subprocess, "DETACHED_PROCESS", 0)
            | getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
    deadline = time.monotonic() + START_TIMEOUT
    while not client.is_alive():
        if process.poll() is not None:
            # Somebody else's `lemonade serve` may have been faster by a moment.
            if client.is_alive():
                break
            raise StartFailed(f"The daemon ended at once with status {process.returncode}. {_last_words(log, begin)}")
        if time.monotonic() > deadline:
            process.terminate()
            words = _last_words(log, begin)
            raise StartFailed(f"The daemon did not answer at {client.address} in {START_TIMEOUT:g} seconds. {words}")
        time.sleep(POLL)
    note(f"Started the daemon at {client.address} (process {process.pid}, log {log}).")


def _last_words(log: Path, begin: int) -> str:
    """The last lines that were written since `begin`."""
    with log.open("rb") as file:
        file.seek(begin)
        lines = [line.strip() for line in file.read().decode("utf-8", "replace").splitlines() if line.strip()]
    if not lines:
        return f"It wrote nothing to {log}."
    return "It said: " + " | ".join(lines[-3:]) + f" (whole log: {log})"
