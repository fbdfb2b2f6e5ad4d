"""Looks for newer files that nobody asked for, on a hub that counts its questions."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.catalog import updates as module
from lemonade.catalog.updates import Updates
from lemonade.errors import HubError, Offline, RegistryUnreachable, RepositoryNotFound
from lemonade.hub.registry import Listing, RemoteFile
from lemonade.hub.store import Store
from lemonade.model import Model
from tests.catalog.world import World

QWEN, OTHER = "Qwen3-0.6B-GGUF", "Qwen3-1.7B-GGUF"


class Hub:
    """Downloads and registry in one, as far as looks need them: each repository has moved on."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.asked: list[str] = []
        self.failure: HubError | None = None

    def registry(self, model: Model) -> Hub:
        if self.world.settings["offline"]:
            raise Offline("no network by choice")
        return self

    def listing(self, repository: str) -> Listing:
        self.asked.append(repository)
        if self.failure is not None:
            raise self.failure
        file = RemoteFile(path="model-Q4_0.gguf", size=5_000, sha256="0" * 64, etag=None)
        return Listing(registry="huggingface", repository=repository, revision="f" * 40, files=(file,))


@pytest.fixture
def world(tmp_path: Path) -> World:
    made = World(tmp_path)
    for name in (QWEN, OTHER):
        made.download(made.catalog.find(name))
    return made


@pytest.fixture
def hub(world: World) -> Hub:
    return Hub(world)


def make(world: World, hub: Hub, wanted: Callable[[Model], bool] = lambda model: True) -> Updates:
    return Updates(world.catalog, Store(world.paths.models), hub, world.settings, wanted)  # type: ignore[arg-type]


async def watch(updates: Updates, *, seconds: float = 0.2) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await updates.watch(first=0, pause=0.01)


def available(world: World) -> dict[str, bool]:
    return {entry.id: entry.update_available for entry in world.catalog.listed(show_all=False)}


async def test_looks_once_a_day(world: World, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    assert available(world) == {QWEN: False, OTHER: False}
    await watch(make(world, hub))
    assert available(world) == {QWEN: True, OTHER: True}
    assert len(hub.asked) == 2
    # Another daemon begins with what this one knew, and does not look on the same day either.
    world.catalog = world.open()
    assert available(world) == {QWEN: True, OTHER: True}
    await watch(make(world, hub))
    assert len(hub.asked) == 2
    now = time.time()
    monkeypatch.setattr(module.time, "time", lambda: now + 90_000)
    await watch(make(world, hub))
    assert len(hub.asked) == 4


async def test_a_model_that_was_brought_up_to_date(world: World, hub: Hub) -> None:
    await watch(make(world, hub))
    world.catalog.arrived(world.catalog.find(QWEN))
    assert available(world) == {QWEN: False, OTHER: True}
    assert world.open().entry(QWEN).update_available is False


async def test_only_what_is_wanted_is_asked_for(world: World, hub: Hub) -> None:
    await watch(make(world, hub, lambda model: False))
    assert hub.asked == []
    await watch(make(world, hub, lambda model: model.name == QWEN))
    assert hub.asked == ["unsloth/Qwen3-0.6B-GGUF"]


async def test_nothing_is_asked_while_offline_or_at_the_start(world: World, hub: Hub) -> None:
    updates = make(world, hub)
    world.settings.change({"offline": True}, persist=False)
    await watch(updates)
    world.settings.change({"offline": False}, persist=False)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await updates.watch()
    assert hub.asked == []


async def test_failures(world: World, hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    hub.failure = RegistryUnreachable("down")
    await watch(make(world, hub))
    # Nobody answered, so the next look need not wait for a day.
    assert len(hub.asked) > 2 and world.catalog.outdated.checked == 0
    hub.failure = RepositoryNotFound("gone")
    await watch(make(world, hub))
    assert world.catalog.outdated.checked > 0 and available(world) == {QWEN: False, OTHER: False}
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "{ no json",
        '{"models": 5, "checked": "x"}',
        '{"models": [1, "builtin.X"]}',
        "[]",
        f'{{"checked": 1{400 * "0"}}}',
        '{"checked": 1e99}',
    ],
)
def test_a_file_that_is_not_what_it_should_be(world: World, text: str) -> None:
    world.paths.cache.mkdir(parents=True, exist_ok=True)
    (world.paths.cache / "updates.json").write_text(text)
    catalog = world.open()
    assert catalog.outdated.checked == 0 and not catalog.entry(QWEN).update_available
    catalog.outdated.note({f"builtin.{QWEN}": True})
    assert world.open().entry(QWEN).update_available


def test_a_file_that_cannot_be_written(world: World) -> None:
    (world.paths.cache / "updates.json").mkdir(parents=True)
    world.catalog.outdated.note({f"builtin.{QWEN}": True})
    assert world.catalog.entry(QWEN).update_available
