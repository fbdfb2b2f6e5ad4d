from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.cli.fake_daemon import FakeDaemon

#: Seconds after which a command hangs.
PATIENCE = 60


@dataclass
class Done:
    """A command that has ended."""

    code: int
    out: str
    err: str


class Shell:
    """Runs the real program in an environment of its own, against a daemon at `port` (or none)."""

    def __init__(self, home: Path, port: int | None = None) -> None:
        self.home = home
        self.env = {
            **{key: value for key, value in os.environ.items() if not key.startswith(("LEMONADE_", "XDG_", "HF_"))},
            "HOME": str(home),
            "LEMONADE_CACHE_DIR": str(home / "cache"),
            "LEMONADE_CONFIG_DIR": str(home / "config"),
            "COLUMNS": "100",
        }
        if port is not None:
            self.env["LEMONADE_PORT"] = str(port)
            self.env["LEMONADE_HOST"] = "127.0.0.1"

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "lemonade.cli.main", *arguments]

    def __call__(self, *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
        ended = subprocess.run(
            self.command(*arguments),
            input=stdin.encode(),
            capture_output=True,
            env={**self.env, **(env or {})},
            timeout=PATIENCE,
            check=False,
        )
        return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


@pytest.fixture
def daemon() -> Iterator[FakeDaemon]:
    with FakeDaemon() as running:
        yield running


@pytest.fixture
def lemonade(tmp_path: Path, daemon: FakeDaemon) -> Shell:
    """The program, pointed at the fake daemon."""
    return Shell(tmp_path, daemon.port)


@pytest.fixture
def alone(tmp_path: Path) -> Shell:
    """The program, on a machine where nothing listens."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Shell(tmp_path, probe.getsockname()[1])
