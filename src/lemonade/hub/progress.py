"""How far a download is."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from lemonade.errors import DownloadCancelled
from lemonade.hub.registry import RemoteFile

#: Seconds between two reports; a person sees no more, and a fast line would make hundreds per second.
INTERVAL = 0.1
#: Seconds over which the rate is taken, and the fewest that say anything.
_RATE_SPAN = 5.0
_RATE_MINIMUM = 0.5


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """One moment of a download. Sizes are bytes; nothing of one file, and nothing over all files, ever goes back.

    Attributes:
        file: the current file, `""` before the first and after the last one.
        file_index: its number, from 1.
        bytes_downloaded: of the current file, what an earlier try brought included.
        bytes_total: of the current file.
        total_download_size: of all files.
        bytes_previously_downloaded: what was here before this download began.
        completed_files_bytes: of the files that are done.
        cumulative_bytes_downloaded: of the files that are done and the current one.
        percent: of the current file, whole numbers from 0 to 100; 100 at the end.
        rate: bytes per second that came over the last seconds; 0 while it cannot be told.
        remaining: seconds to the end at this rate; None while it cannot be told.
        complete: the last one of a download that succeeded.
    """

    file: str = ""
    file_index: int = 0
    total_files: int = 0
    bytes_downloaded: int = 0
    bytes_total: int = 0
    total_download_size: int = 0
    bytes_previously_downloaded: int = 0
    completed_files_bytes: int = 0
    cumulative_bytes_downloaded: int = 0
    percent: int = 0
    rate: float = 0.0
    remaining: float | None = None
    complete: bool = False


class Meter:
    """Follows the transfers of one download (a `registry.Watch`) and reports. Lives in the download's thread.

    Args:
        report: takes each progress, and whether it is the first or the last one of a file, which is never left out.
        stopped: why the download is to stop, or None.
    """

    def __init__(self, report: Callable[[Progress, bool], None], stopped: Callable[[], str | None]) -> None:
        self._report = report
        self._stopped = stopped
        self._hang_up: Callable[[], None] | None = None
        self._name = ""
        self._index = 0
        self._files = 0
        self._size = 0
        self._here = 0
        self._total = 0
        self._previously = 0
        self._completed = 0
        self._reported = 0.0
        self._at = 0
        self._moved = 0
        self._samples: list[tuple[float, int]] = []

    def plan(self, files: int, total: int, previously: int) -> None:
        """What there is to do, beside what was said before: so many files and bytes, of which some are here already."""
        self._close_file()
        self._files += files
        self._total += total
        self._previously += previously
        self._say(edge=True)

    def check(self) -> None:
        if reason := self._stopped():
            raise DownloadCancelled(reason)

    def on_stop(self, hang_up: Callable[[], None] | None) -> None:
        self._hang_up = hang_up
        if self._stopped():
            self.stop()

    def stop(self) -> None:
        """Ends a wait for bytes; may be called in any thread, after `stopped` has its reason."""
        if hang_up := self._hang_up:
            hang_up()

    def begin(self, file: RemoteFile, size: int, already: int) -> None:
        self._close_file()
        self._name = file.path
        self._index = min(self._index + 1, self._files) or 1
        self._files = max(self._files, self._index)
        self._size = max(size, 0)
        self._here = self._at = min(already, self._size)
        if file.size < 0:
            self._total += self._size
        self._say(edge=True)

    def advance(self, here: int) -> None:
        # A transfer that starts over goes back; what people see waits until it is there again.
        self._here = max(self._here, here)
        self._moved += max(here - self._at, 0)
        self._at = here
        self._size = max(self._size, self._here)
        now = time.monotonic()
        if now - self._reported >= INTERVAL:
            self._say()

    def done(self) -> None:
        """All files are here."""
        self._close_file()
        self._report(self._progress(complete=True), True)

    def _close_file(self) -> None:
        if self._name:
            self._here = self._size
            self._report(self._progress(percent=100), True)
            self._completed += self._size
        self._name = ""
        self._size = self._here = 0

    def _say(self, *, edge: bool = False) -> None:
        self._reported = time.monotonic()
        self._report(self._progress(), edge)

    def _progress(self, *, complete: bool = False, percent: int | None = None) -> Progress:
        total = max(self._total, self._completed + self._here)
        cumulative = total if complete else self._completed + self._here
        rate = self._rate()
        if percent is None:
            percent = self._here * 100 // self._size if self._size else 0
        return Progress(
            file=self._name,
            file_index=self._files if complete else self._index,
            total_files=self._files,
            bytes_downloaded=self._here,
            bytes_total=self._size,
            total_download_size=total,
            bytes_previously_downloaded=self._previously,
            completed_files_bytes=self._completed,
            cumulative_bytes_downloaded=cumulative,
            percent=100 if complete else percent,
            rate=rate,
            remaining=0.0 if complete else (total - cumulative) / rate if rate > 0 else None,
            complete=complete,
        )

    def _rate(self) -> float:
        """Of what came over the line: what was here before costs no time, and what comes twice does."""
        now = time.monotonic()
        self._samples.append((now, self._moved))
        while len(self._samples) > 2 and now - self._samples[0][0] > _RATE_SPAN:
            del self._samples[0]
        (then, before) = self._samples[0]
        return (self._moved - before) / (now - then) if now - then >= _RATE_MINIMUM else 0.0
