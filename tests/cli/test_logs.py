from __future__ import annotations

import subprocess

from tests.cli.conftest import PATIENCE, Shell


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
