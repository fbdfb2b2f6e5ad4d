from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lemonade.cli.logs import _remote
from lemonade.cli.target import Target
from lemonade.client import NoDaemon
from lemonade.errors import LemonadeError
from tests.cli.conftest import PATIENCE, Shell
from tests.daemon import Daemon, free_port


def test_last_lines(alone: Shell) -> None:
    log = alone.home / "cache" / "logs" / "lemond.log"
    log.parent.mkdir(parents=True)
    log.write_text("".join(f"line {number}\n" for number in range(300)))
    assert alone("logs", "-n", "2").out == "line 298\nline 299\n"
    assert len(alone("logs").out.splitlines()) == 100


def test_no_log(alone: Shell) -> None:
    ended = alone("logs")
    assert ended.code == 1
    assert "There is no log yet" in ended.err


def test_follow_goes_on_and_starts_over_in_a_new_file(alone: Shell) -> None:
    log = alone.home / "cache" / "logs" / "lemond.log"
    log.parent.mkdir(parents=True)
    log.write_text("old\n")
    process = subprocess.Popen(alone.command("logs", "-f"), stdout=subprocess.PIPE, env=alone.env)
    assert process.stdout is not None
    try:
        assert process.stdout.readline() == b"old\n"
        with log.open("a") as file:
            file.write("more\n")
        assert process.stdout.readline() == b"more\n"
        log.replace(log.with_suffix(".1"))
        log.write_text("new, and longer than the old one was\n")
        assert process.stdout.readline() == b"new, and longer than the old one was\n"
    finally:
        process.terminate()
        process.stdout.close()
        process.wait(PATIENCE)


def test_from_another_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Daemon(tmp_path / "other", env={"LEMONADE_API_KEY": "sesame-open-1234"}) as other:
        _remote(Target("127.0.0.1", other.port, "sesame-open-1234"), 100, follow=False)
        lines = capsys.readouterr().out
        assert lines
        assert other.log.startswith(lines)
        _remote(Target("127.0.0.1", other.port, "sesame-open-1234"), 0, follow=False)
        assert capsys.readouterr().out == ""
        with pytest.raises(LemonadeError, match="Invalid or missing API key"):
            _remote(Target("127.0.0.1", other.port, "wrong"), 100, follow=False)
    with pytest.raises(NoDaemon):
        _remote(Target("127.0.0.1", free_port()), 100, follow=False)
