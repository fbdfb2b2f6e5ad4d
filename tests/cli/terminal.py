"""A program in a pseudo terminal, and a person in front of it."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time

import pytest

from tests.cli.conftest import PATIENCE


class Terminal:
    """A program in a pseudo terminal."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self.process = subprocess.Popen(
            command,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env={**env, "TERM": "xterm"},
            start_new_session=True,
        )
        os.close(slave)
        self._seen = ""

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def expect(self, pattern: str) -> str:
        """What was printed since the last call, up to and with the match."""
        deadline = time.monotonic() + PATIENCE
        while not (match := re.search(pattern, self._seen)):
            assert time.monotonic() < deadline, f"{pattern!r} never came: {self._seen!r}"
            if select.select([self._master], [], [], 0.1)[0]:
                try:
                    self._seen += os.read(self._master, 65536).decode("utf-8", "replace")
                except OSError:  # the other side is closed
                    pytest.fail(f"{pattern!r} never came: {self._seen!r}")
        shown, self._seen = self._seen[: match.end()], self._seen[match.end() :]
        return shown

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)
