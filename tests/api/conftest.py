"""A daemon whose hub is the fake one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.daemon import Daemon
from tests.hub.fake_hub import FakeHub, running

TOKEN = "hf_secret"


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeHub]:
    with running(tmp_path_factory.mktemp("repositories")) as fake:
        yield fake


@pytest.fixture(autouse=True)
def calm(request: pytest.FixtureRequest) -> None:
    """Every test begins with a hub on which nothing goes wrong."""
    if "hub" in request.fixturenames:
        request.getfixturevalue("hub").set()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, hub: FakeHub) -> Iterator[Daemon]:
    """A running daemon with the fake hub and fake engines."""
    with Daemon(tmp_path_factory.mktemp("site"), env=environment(hub)) as one:
        yield one


def environment(hub: FakeHub) -> dict[str, str]:
    return {
        "HF_ENDPOINT": hub.url,
        "MODELSCOPE_ENDPOINT": hub.url,
        "HF_TOKEN": TOKEN,
        "NO_PROXY": "127.0.0.1,localhost",
    }
