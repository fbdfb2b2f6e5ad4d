from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.errors import RegistryUnreachable
from lemonade.hub.downloads import Downloads
from lemonade.hub.freshness import is_outdated
from lemonade.hub.registry import Listing
from tests.hub.conftest import model
from tests.hub.fake_hub import FakeHub

Ask = Callable[[str], Listing]


@pytest.fixture
def latest(downloads: Downloads) -> Ask:
    return lambda repository: downloads.registry(model(repository)).listing(repository)


async def test_only_the_models_own_files_count(hub: FakeHub, downloads: Downloads, cache: Path, latest: Ask) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"a" * 2000)
    hub.write("o/n", "m-Q8_0.gguf", b"GGUF" + b"b" * 2000)
    four, eight = model("o/n:Q4_K_M", name="four"), model("o/n:Q8_0", name="eight")
    for each in (four, eight):
        await downloads.ensure(each)
        assert not is_outdated(cache, each, latest)
    hub.write("o/n", "README.md", b"news")
    assert not is_outdated(cache, four, latest)
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"c" * 2000)
    assert is_outdated(cache, four, latest)
    assert not is_outdated(cache, eight, latest)


async def test_files_that_the_repository_has_lost(hub: FakeHub, downloads: Downloads, cache: Path, latest: Ask) -> None:
    file = hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"a" * 2000)
    wanted = model("o/n:Q4_K_M")
    await downloads.ensure(wanted)
    file.unlink()
    hub.write("o/n", "other-Q8_0.gguf", b"GGUF")
    assert not is_outdated(cache, wanted, latest)


async def test_a_projector_elsewhere_counts(hub: FakeHub, downloads: Downloads, cache: Path, latest: Ask) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"a" * 2000)
    hub.write("o/eyes", "mmproj.gguf", b"GGUF" + b"p" * 2000)
    wanted = model("o/n:Q4_K_M", roles={"mmproj": "o/eyes:mmproj.gguf"})
    await downloads.ensure(wanted)
    hub.write("o/eyes", "mmproj.gguf", b"GGUF" + b"q" * 2000)
    assert is_outdated(cache, wanted, latest)


async def test_what_another_tool_fetched(hub: FakeHub, downloads: Downloads, cache: Path, latest: Ask) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"a" * 2000)
    wanted = model("o/n:Q4_K_M")
    await downloads.ensure(wanted)
    for note in (cache / "models--o--n" / ".lemonade").iterdir():
        note.unlink()
    hub.write("o/n", "README.md", b"news")
    assert not is_outdated(cache, wanted, latest)
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF" + b"b" * 2000)
    assert is_outdated(cache, wanted, latest)


async def test_a_hub_that_does_not_answer(hub: FakeHub, downloads: Downloads, cache: Path, latest: Ask) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", b"GGUF")
    wanted = model("o/n:Q4_K_M")
    await downloads.ensure(wanted)
    hub.set(listing_times=-1)
    with pytest.raises(RegistryUnreachable):
        is_outdated(cache, wanted, latest)
