from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import pytest

from lemonade.errors import DownloadCancelled
from lemonade.hub import progress
from lemonade.hub.progress import Meter, Progress
from lemonade.hub.registry import RemoteFile


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Clock]:
    one = Clock()
    monkeypatch.setattr(progress, "time", one)
    yield one


def meter(stopped: str | None = None) -> tuple[Meter, list[Progress]]:
    seen: list[Progress] = []
    return Meter(lambda each, edge: seen.append(each), lambda: stopped), seen


def test_files_one_after_the_other(clock: Clock) -> None:
    one, seen = meter()
    one.plan(2, 300, 150)
    one.begin(RemoteFile("a", 100), 100, 100)
    one.begin(RemoteFile("b", 200), 200, 50)
    for here in range(50, 201, 50):
        clock.now += 1
        one.advance(here)
    one.done()
    rows = [(each.file, each.file_index, each.percent, each.cumulative_bytes_downloaded) for each in seen]
    assert rows == [
        ("", 0, 0, 0),
        ("a", 1, 100, 100),
        ("a", 1, 100, 100),
        ("b", 2, 25, 150),
        ("b", 2, 25, 150),
        ("b", 2, 50, 200),
        ("b", 2, 75, 250),
        ("b", 2, 100, 300),
        ("b", 2, 100, 300),
        ("", 2, 100, 300),
    ]
    assert {each.bytes_previously_downloaded for each in seen} == {150}
    assert [each.complete for each in seen] == [False] * 9 + [True]


def test_an_empty_file(clock: Clock) -> None:
    one, seen = meter()
    one.plan(1, 0, 0)
    one.begin(RemoteFile("a", 0), 0, 0)
    one.done()
    assert [each.percent for each in seen] == [0, 0, 100, 100]


def test_the_rate_is_that_of_the_line(clock: Clock) -> None:
    one, seen = meter()
    one.plan(2, 10_000_000_400, 10_000_000_000)
    one.begin(RemoteFile("a", 10_000_000_000), 10_000_000_000, 10_000_000_000)
    one.begin(RemoteFile("b", 400), 400, 0)
    for here in (100, 200):
        clock.now += 1
        one.advance(here)
    assert (seen[-1].rate, seen[-1].remaining) == (100.0, 2.0)


def test_no_rate_from_a_moment(clock: Clock) -> None:
    one, seen = meter()
    one.plan(1, 100, 0)
    one.begin(RemoteFile("a", 100), 100, 0)
    clock.now += 0.2
    one.advance(50)
    assert (seen[-1].rate, seen[-1].remaining) == (0.0, None)


def test_starting_over_is_not_shown(clock: Clock) -> None:
    one, seen = meter()
    one.plan(1, 100, 0)
    one.begin(RemoteFile("a", 100), 100, 0)
    for here in (80, 0, 40, 80, 100):
        clock.now += 1
        one.advance(here)
    shown = [each.bytes_downloaded for each in seen]
    assert all(before <= after for before, after in pairwise(shown))
    assert shown[-1] == 100


def test_a_size_that_is_learned_on_the_way(clock: Clock) -> None:
    one, seen = meter()
    one.plan(1, 0, 0)
    one.begin(RemoteFile("a", -1), 500, 0)
    clock.now += 1
    one.advance(250)
    assert (seen[-1].total_download_size, seen[-1].percent) == (500, 50)
    one.done()
    assert seen[-1].cumulative_bytes_downloaded == 500


def test_reports_are_few(clock: Clock) -> None:
    one, seen = meter()
    one.plan(1, 1000, 0)
    one.begin(RemoteFile("a", 1000), 1000, 0)
    for here in range(1000):
        clock.now += 0.001
        one.advance(here)
    assert len(seen) <= 2 + 10


def test_stopping() -> None:
    one, _ = meter("enough")
    with pytest.raises(DownloadCancelled, match="enough"):
        one.check()
    called: list[bool] = []
    one.on_stop(lambda: called.append(True))
    assert called == [True]
