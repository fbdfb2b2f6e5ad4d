from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemonade.paths import Paths
from lemonade.settings import Settings
from lemonade.system import logs as module
from lemonade.system.logs import LEVELS, MAX_LINE, LogEntry, Logs, Secrets, message, one_line

LINE = re.compile(r"^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d{3} \[Info\] \(probe(\.\w+)?\) (.*)$")


@pytest.fixture
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Logs]:
    monkeypatch.setattr(module, "secrets", Secrets())
    opened = Logs(tmp_path / "logs" / "lemond.log", stderr=False, loggers=("probe",))
    yield opened
    opened.close()


@pytest.fixture
def logger() -> logging.Logger:
    return logging.getLogger("probe.sub")


def lines(tmp_path: Path) -> list[str]:
    return (tmp_path / "logs" / "lemond.log").read_text().splitlines()


def test_one_record_is_one_line(tmp_path: Path, logs: Logs, logger: logging.Logger) -> None:
    logger.info("model %s", "x\r\n2026-01-01 00:00:00.000 [Info] (probe) forged\x1b[31m\x85\u2028z")
    logger.info("plain ünïcode")
    forged, plain = lines(tmp_path)
    assert LINE.match(forged)
    assert "x\\r\\n2026" in forged
    assert "\\x1b[31m\\x85\\u2028z" in forged
    assert (match := LINE.match(plain)) and match[2] == "plain ünïcode"


def test_long_lines_are_cut(tmp_path: Path, logs: Logs, logger: logging.Logger) -> None:
    logger.info("%s", "é" * 5_000_000)
    (line,) = lines(tmp_path)
    assert len(line.encode()) <= MAX_LINE + 100
    assert line.endswith(" ...")


@pytest.mark.parametrize("text", ["a" * MAX_LINE, "a" * (MAX_LINE + 1), "é" * MAX_LINE, "\n" * MAX_LINE, "\ud800" * 9])
def test_the_limit_is_in_bytes(text: str) -> None:
    cut = one_line(text)
    assert len(cut.encode()) <= MAX_LINE
    assert (cut == text) is (text == "a" * MAX_LINE)


def test_secrets_are_replaced_everywhere(tmp_path: Path, logs: Logs, logger: logging.Logger) -> None:
    logs.hide(["sk-CANARY-1", "sk-CANARY-1-longer", None, "", "ab"])
    logger.info("Bearer sk-CANARY-1-longer of %s and ab", "sk-CANARY-1")
    try:
        raise ValueError("key sk-CANARY-1")
    except ValueError:
        logger.info("failed", exc_info=True)
    text = "\n".join(lines(tmp_path)) + str(logs.ring.entries())
    assert "CANARY" not in text
    assert "Bearer *** of *** and ab" in text
    assert "ValueError: key ***" in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("GET /logs/stream?api_key=sk-wrong&x=1", "GET /logs/stream?api_key=***&x=1"),
        ("Authorization: Bearer sk-wrong", "Authorization: Bearer ***"),
        ("lemonade-realtime, bearer.c2std3Jvbmc", "lemonade-realtime, bearer.***"),
        ("X-Api-Key: sk-wrong", "X-Api-Key: ***"),
        ("the token hf_abcdefghijklmnopqrst", "the token ***"),
        ("index https://user:pass@host/simple", "index https://user:***@host/simple"),
        ("http://127.0.0.1:8001/v1 bearers of news, hf_hub", "http://127.0.0.1:8001/v1 bearers of news, hf_hub"),
    ],
)
def test_what_looks_like_a_secret_is_one(logs: Logs, logger: logging.Logger, text: str, shown: str) -> None:
    logger.info(text)
    assert logs.ring.entries()[0].line == shown


def test_a_long_traceback_keeps_its_end(tmp_path: Path, logs: Logs, logger: logging.Logger) -> None:
    def deep(count: int) -> None:
        if count:
            other(count - 1)
        raise ValueError("the very end")

    def other(count: int) -> None:  # two functions, or the traceback folds the repeats
        deep(count)

    try:
        other(100)
    except ValueError:
        logger.info("failed", exc_info=True)
    assert "the very end" in lines(tmp_path)[0]


def test_a_wrong_format_string_is_logged_not_raised() -> None:
    record = logging.makeLogRecord({"msg": "%d", "args": ("x",)})
    assert "cannot be formatted" in message(record)


@pytest.mark.parametrize("level", LEVELS)
def test_levels_can_be_changed_while_running(level: str, logs: Logs, logger: logging.Logger) -> None:
    logs.set_level(level)
    for number in sorted(LEVELS.values())[:-1]:
        logger.log(number, "x")
    severities = ["Trace", "Debug", "Info", "Warning", "Error", "Fatal"]
    assert [entry.severity for entry in logs.ring.entries()] == severities[list(LEVELS).index(level) :]


def test_the_daemons_log_follows_its_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings.open(tmp_path, {})
    paths = Paths(tmp_path, tmp_path, tmp_path / "run", tmp_path / "models")
    logger = logging.getLogger("lemonade.probe")
    with Logs.open(settings, paths):
        logger.debug("not yet")
        settings.change({"log_level": "debug"}, persist=False)
        logger.debug("now")
    text = (tmp_path / "logs" / "lemond.log").read_text()
    assert "not yet" not in text
    assert "now" in text
    assert "now" in capsys.readouterr().err


def test_the_file_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logger: logging.Logger) -> None:
    monkeypatch.setattr(module, "FILE_SIZE", 1000)
    logs = Logs(tmp_path / "lemond.log", stderr=False, loggers=("probe",))
    for number in range(100):
        logger.info("line %d", number)
    logs.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lemond.log", "lemond.log.1"]
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path: Path, logger: logging.Logger) -> None:
    (tmp_path / "logs").write_text("a file where the folder should be")
    logs = Logs(tmp_path / "logs" / "lemond.log", stderr=False, loggers=("probe",))
    logger.info("still here")
    entries = logs.ring.entries()
    logs.close()
    assert "cannot be written" in entries[0].line
    assert entries[1].line == "still here"


def test_the_ring_keeps_the_last_entries_with_growing_numbers(logs: Logs, logger: logging.Logger) -> None:
    def write() -> None:
        for _ in range(1500):
            logger.info("x")

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = logs.ring.entries()
    assert [entry.seq for entry in entries] == list(range(1001, 6001))
    assert [entry.seq for entry in logs.ring.entries(after=5998)] == [5999, 6000]


def test_listeners_hear_each_new_entry(logs: Logs, logger: logging.Logger) -> None:
    heard: list[LogEntry] = []

    def broken(entry: LogEntry) -> None:
        raise RuntimeError

    logs.ring.subscribe(broken)
    stop = logs.ring.subscribe(heard.append)
    logger.info("one")
    stop()
    logger.info("two")
    assert [(entry.tag, entry.line) for entry in heard] == [("probe.sub", "one")]
