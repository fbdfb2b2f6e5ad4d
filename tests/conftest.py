"""Fixtures for tests that look at the daemon from outside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon


@pytest.fixture
def make_daemon(tmp_path: Path) -> Iterator[Callable[..., Daemon]]:
    """Makes daemons that are not started yet; all are gone after the test."""
    made: list[Daemon] = []

    def make(**more: Any) -> Daemon:
        made.append(Daemon(tmp_path / f"daemon{len(made)}", **more))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """One running daemon for the tests of a module, with fake engines and the models `a`, `b` and `c`."""
    one = Daemon(tmp_path_factory.mktemp("daemon"))
    for name in ("a", "b", "c"):
        one.add_model(name)
    with one:
        yield one
