"""The daemon's log: to stderr, to a file that stays small, and to a ring that can be followed while running.

A line is one record, whatever a client or a model file wrote into it: control characters are escaped, long lines are
cut and registered secrets are replaced.
"""

from __future__ import annotations

import contextlib
import logging
import logging.handlers
import os
import re
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import NamedTuple, TextIO

from lemonade.paths import Paths
from lemonade.settings import Settings

#: The setting's levels. `trace` is below what Python's logging knows; `none` is above everything.
LEVELS: dict[str, int] = {
    "trace": 5,
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
    "fatal": logging.CRITICAL,
    "none": logging.CRITICAL + 10,
}

#: Names of levels on the wire of the log stream.
SEVERITIES = {5: "Trace", 10: "Debug", 20: "Info", 30: "Warning", 40: "Error", 50: "Fatal"}

#: Longest line in bytes; one request must not be able to fill a log with its body.
MAX_LINE = 2048

FILE_SIZE = 5 * 1024 * 1024
FILES_KEPT = 2
RING_SIZE = 5000

#: Shorter strings are no secrets, and replacing them would garble every line.
MIN_SECRET = 4

#: What is a secret wherever it stands, also one that nobody registered: the wrong key that a client tried, a token that
#: a registry repeats in its answer.
_TELLTALE = re.compile(
    r"(?i)(api_key=|\bbearer[ .]|\bx-api-key: ?|://[^/\s:@]*:(?=[^/\s@]*@))[^\s&@\"',;]+|\bhf_[A-Za-z0-9]{16,}"
)

_ESCAPES = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160))}
_ESCAPES |= {9: "\\t", 10: "\\n", 13: "\\r", 0x2028: "\\u2028", 0x2029: "\\u2029"}


class LogEntry(NamedTuple):
    """One line of the log stream; `seq` grows strictly."""

    seq: int
    timestamp: str
    severity: str
    tag: str
    line: str


class Secrets:
    """Strings that must never be seen in a log."""

    def __init__(self) -> None:
        self._known: tuple[str, ...] = ()

    def add(self, *secrets: str | None) -> None:
        """Registers secrets; None, blanks and very short strings are overlooked."""
        new = {secret.strip() for secret in secrets if secret and len(secret.strip()) >= MIN_SECRET}
        # The longest first: one secret may be the beginning of another.
        self._known = tuple(sorted(new.union(self._known), key=len, reverse=True))

    def hide(self, text: str) -> str:
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, "***")
        return _TELLTALE.sub(lambda match: f"{match[1] or ''}***", text)


#: The secrets of this process: keys, tokens.
secrets = Secrets()


class LineFormatter(logging.Formatter):
    """`2026-11-29 23:50:01.123 [Info] (tag) message`, in local time, on exactly one line."""

    def format(self, record: logging.LogRecord) -> str:
        return f"{timestamp(record)} [{severity(record)}] ({record.name}) {message(record)}"


def timestamp(record: logging.LogRecord) -> str:
    seconds = int(record.created)
    return f"{time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(seconds))}.{int(record.created * 1000) % 1000:03d}"


def severity(record: logging.LogRecord) -> str:
    return SEVERITIES.get(record.levelno // 10 * 10 or 5, "Fatal")


def message(record: logging.LogRecord) -> str:
    """The record's text with its traceback, without secrets, on one line of at most `MAX_LINE` bytes."""
    # Three handlers ask for it; each record is made into a line once.
    line: str | None = getattr(record, "lemonade_line", None)
    if line is None:
        line = record.lemonade_line = one_line(_text(record))
    return line


def _text(record: logging.LogRecord) -> str:
    try:
        text = record.getMessage()
    except Exception as error:  # noqa: BLE001 - a wrong format string must not take the request down
        text = f"{record.msg!r} (cannot be formatted: {error})"
    if record.exc_info and record.exc_info[0] is not None:
        # The end of a traceback says what happened, so a long one loses its beginning.
        trace = secrets.hide(logging.Formatter().formatException(record.exc_info))
        text = f"{text}\n{trace[-(MAX_LINE - 200) :]}" if len(text) + len(trace) > MAX_LINE else f"{text}\n{trace}"
    return secrets.hide(text)


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """Control characters escaped, and cut to `limit` bytes of UTF-8."""
    cut = text[:limit].translate(_ESCAPES)
    raw = cut.encode("utf-8", "backslashreplace")
    if len(raw) <= limit and len(text) <= limit:
        return raw.decode()
    return raw[: limit - 4].decode("utf-8", "ignore") + " ..."


class Ring(logging.Handler):
    """The last entries, for those who come later, and a call for each new one."""

    def __init__(self, size: int = RING_SIZE) -> None:
        super().__init__()
        self._entries: deque[LogEntry] = deque(maxlen=size)
        self._seq = 0
        self._listeners: tuple[Callable[[LogEntry], None], ...] = ()
        self._mutex = threading.Lock()

    def emit(self, record: logging.LogRecord) -> None:
        with self._mutex:
            self._seq += 1
            entry = LogEntry(self._seq, timestamp(record), severity(record), record.name, message(record))
            self._entries.append(entry)
            listeners = self._listeners
        for listener in listeners:
            with contextlib.suppress(Exception):
                listener(entry)

    def entries(self, after: int = 0) -> list[LogEntry]:
        """The entries that are kept, of those with a larger `seq`."""
        with self._mutex:
            return [entry for entry in self._entries if entry.seq > after]

    def subscribe(self, listener: Callable[[LogEntry], None]) -> Callable[[], None]:
        """Calls `listener`, in the thread that logs, for each new entry; answers how to stop that."""
        with self._mutex:
            self._listeners = (*self._listeners, listener)

        def unsubscribe() -> None:
            with self._mutex:
                self._listeners = tuple(each for each in self._listeners if each is not listener)

        return unsubscribe


class Logs:
    """What the daemon logs to.

    Args:
        file: the log file, rotated at 5 MB; None for no file. A file that cannot be written is said once on stderr.
        level: one of `LEVELS`.
        stderr: whether to log there as well. It is left out when it is the file itself, as with a daemon that was
            started in the background, so that no line comes twice.
        loggers: names whose records are taken; everything below them is, too.
    """

    def __init__(
        self,
        file: Path | None,
        level: str = "info",
        *,
        stderr: bool = True,
        loggers: Iterable[str] = ("lemonade", "uvicorn"),
    ) -> None:
        self.ring = Ring()
        self._handlers: list[logging.Handler] = [self.ring]
        if stderr and not _writes_to(sys.stderr, file):
            self._handlers.append(logging.StreamHandler(sys.stderr))
        self._loggers = [logging.getLogger(name) for name in loggers]
        problem: OSError | None = None
        if file is not None:
            try:
                file.parent.mkdir(parents=True, exist_ok=True)
                self._handlers.append(
                    logging.handlers.RotatingFileHandler(
                        file,
                        maxBytes=FILE_SIZE,
                        backupCount=FILES_KEPT - 1,
                        encoding="utf-8",
                        errors="backslashreplace",
                    )
                )
            except OSError as error:
                problem = error
        for handler in self._handlers:
            handler.setFormatter(LineFormatter())
        for logger in self._loggers:
            logger.propagate = False
            for handler in self._handlers:
                logger.addHandler(handler)
        self.set_level(level)
        if problem is not None:
            self._loggers[0].error("The log file cannot be written: %s", problem)

    @classmethod
    def open(cls, settings: Settings, paths: Paths) -> Logs:
        """The daemon's log, `<cache>/logs/lemond.log`, at the level of the settings, now and after each change."""
        logs = cls(paths.cache / "logs" / "lemond.log", settings["log_level"])
        settings.subscribe(lambda changes: logs.set_level(changes["log_level"]) if "log_level" in changes else None)
        return logs

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @staticmethod
    def hide(strings: Iterable[str | None]) -> None:
        """Has these secrets replaced in every line from now on."""
        secrets.add(*strings)

    def set_level(self, level: str) -> None:
        """Changes how much is logged from now on.

        Raises:
            KeyError: not one of `LEVELS`.
        """
        for logger in self._loggers:
            logger.setLevel(LEVELS[level])

    def close(self) -> None:
        """Takes the handlers off again and closes the file."""
        for logger in self._loggers:
            for handler in self._handlers:
                logger.removeHandler(handler)
            logger.propagate = True
            logger.setLevel(logging.NOTSET)
        for handler in self._handlers:
            handler.close()


def _writes_to(stream: TextIO | None, file: Path | None) -> bool:
    """Whether what is written to `stream` lands in `file`."""
    try:
        return stream is not None and file is not None and os.path.samestat(os.fstat(stream.fileno()), file.stat())
    except (OSError, ValueError):  # no such file yet, or a stream without a descriptor
        return False
