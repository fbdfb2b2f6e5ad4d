"""The progress of a download that the daemon makes."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from lemonade.cli.terminal import duration, note, size
from lemonade.client import StreamCut, path_of

if TYPE_CHECKING:
    from rich.progress import TaskID

    from lemonade.client import Client

#: Between two lines for the same file, in per cent of it, where there is no terminal to draw a bar on.
STEP = 10


def fetch(client: Client, body: Mapping[str, Any]) -> None:
    """Has the daemon download what `body` of `POST /v1/pull` names and shows it on stderr until it is done.

    Raises:
        RemoteError: it failed. StreamCut: the daemon went away before the end.
    """
    name = str(body["model_name"])
    _follow(client, "/v1/pull", body, name, f"lemonade pull {name}")


def fetch_backend(client: Client, recipe: str, backend: str, *, force: bool) -> None:
    """Has the daemon install a backend and shows it on stderr until it is done. Raises as `fetch`."""
    body = {"recipe": recipe, "backend": backend, "force": force}
    name = f"{recipe}:{backend}"
    _follow(client, "/v1/install", body, name, f"lemonade backends install {name}")


def _follow(client: Client, path: str, body: Mapping[str, Any], name: str, command: str) -> None:
    complete = False
    try:
        with client.stream(path, {**body, "stream": True}) as events, _display() as display:
            for event in events:
                if event.name == "complete":
                    complete = True
                elif event.name == "progress":
                    display.show(event.json())
    except KeyboardInterrupt:
        note("")
        note("The daemon goes on with the download.")
        note(f"See it again: {command}. Stop it: {command} --cancel")
        raise
    if not complete:
        raise StreamCut(f"The daemon closed the connection before {name} was complete. Go on: {command}")


def fetch_missing(client: Client, model: str) -> dict[str, Any]:
    """Downloads `model` if its files are not here. What the daemon says of it. Raises RemoteError for a name that
    there is not, too."""
    found: dict[str, Any] = client.get(path_of(model))
    if found.get("downloaded") is False:
        fetch(client, {"model_name": model})
    return found


class Display(Protocol):
    """Shows progress events; a context manager."""

    def __enter__(self) -> Display: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
    def show(self, progress: Mapping[str, Any]) -> None: ...


def _display() -> Display:
    return Bars() if sys.stderr.isatty() else Lines()


class Bars:
    """A bar per file, with rate and remaining time."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
        from rich.progress import TransferSpeedColumn as Speed

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            Speed(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
        )
        self._tasks: dict[tuple[int, str], TaskID] = {}

    def __enter__(self) -> Bars:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, progress: Mapping[str, Any]) -> None:
        file, done, total = _file(progress)
        if not file:
            return
        key = (progress.get("file_index", 1), file)
        if key not in self._tasks:
            # What lay on the disk before counts as done, and not into the rate.
            self._tasks[key] = self._progress.add_task(_title(progress, file), total=total, completed=done)
        self._progress.update(self._tasks[key], completed=done, total=total)


class Lines:
    """A line per file and per tenth of it."""

    def __init__(self) -> None:
        self._file: tuple[int, str] | None = None
        self._percent = 0

    def __enter__(self) -> Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, progress: Mapping[str, Any]) -> None:
        file, done, total = _file(progress)
        if not file:
            return
        percent = 100 * done // total if total else 0
        key = (progress.get("file_index", 1), file)
        if key != self._file:
            self._file, self._percent = key, percent
            note(f"{_title(progress, file)}: {size(total) if total else 'unknown size'}, {percent}% here")
        elif percent >= self._percent + STEP or (percent == 100 > self._percent):
            self._percent = percent
            rate, left = progress.get("rate") or 0, progress.get("remaining") or 0
            speed = f", {size(rate)}/s" if rate > 0 else ""
            note(f"{_title(progress, file)}: {percent}%{speed}" + (f", {duration(left)} left" if left >= 0.5 else ""))


def _file(progress: Mapping[str, Any]) -> tuple[str, int, int]:
    """Name, bytes here, bytes in all; the name is empty for an event that shows nothing of a file."""
    done, total = progress.get("bytes_downloaded") or 0, progress.get("bytes_total") or 0
    return (str(progress.get("file") or "") if done > 0 or total > 0 else ""), max(done, 0), total


def _title(progress: Mapping[str, Any], file: str) -> str:
    index, files = progress.get("file_index", 1), progress.get("total_files", 1)
    name = file.rsplit("/", 1)[-1]
    return f"[{index}/{files}] {name}" if files > 1 else name
