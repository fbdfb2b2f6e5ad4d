"""Collections: one job for several models."""

from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.errors import DownloadCancelled, RepositoryNotFound
from lemonade.hub.downloads import Downloads
from lemonade.hub.store import Store
from lemonade.model import Model
from tests.hub.conftest import gathered, model, until
from tests.hub.fake_hub import FakeHub

KIT = Model(name="Kit", recipe="collection.omni", origin="user")


def parts(hub: FakeHub, size: int = 3000) -> list[Model]:
    made = []
    for name in ("one", "two"):
        hub.write(f"o/{name}", "m-Q4_K_M.gguf", b"GGUF" + name.encode() * size)
        made.append(model(f"o/{name}:Q4_K_M", name=name))
    return made


async def test_one_job_with_one_end(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    wanted = parts(hub)

    async def ask() -> list[Model]:
        return wanted

    job = downloads.start(KIT, parts=ask)
    seen = [progress async for progress in job.events()]
    assert [progress.complete for progress in seen].count(True) == 1
    assert all(store.is_downloaded(each) for each in wanted)
    last = seen[-1]
    total = sum(store.size(each) for each in wanted)
    assert (last.total_files, last.total_download_size, last.cumulative_bytes_downloaded) == (2, total, total)
    counts = [progress.cumulative_bytes_downloaded for progress in seen]
    assert counts == sorted(counts)
    assert job.snapshot()["status"] == "completed"


async def test_what_is_here_is_not_asked_for(hub: FakeHub, downloads: Downloads) -> None:
    wanted = parts(hub)
    for each in wanted:
        await downloads.ensure(each)

    async def ask() -> list[Model]:
        return wanted

    calls = hub.calls()
    await downloads.start(KIT, parts=ask).wait()
    assert hub.calls() == calls
    await downloads.start(KIT, parts=ask, upgrade=True).wait()
    assert hub.calls() == calls + 2


async def test_a_file_of_the_users_own(hub: FakeHub, downloads: Downloads, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(b"GGUF")
    own = model(str(file), name="own", source="local_path")

    async def ask() -> list[Model]:
        return [own, *parts(hub)]

    await downloads.start(KIT, parts=ask, upgrade=True).wait()


async def test_one_part_that_fails(hub: FakeHub, downloads: Downloads) -> None:
    first = parts(hub)[0]

    async def ask() -> list[Model]:
        return [first, model("o/nowhere:Q4_K_M", name="lost")]

    with pytest.raises(RepositoryNotFound):
        await downloads.start(KIT, parts=ask).wait()


async def test_cancel_in_the_middle(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    wanted = parts(hub, size=300_000)
    hub.set(rate=200_000)

    async def ask() -> list[Model]:
        return wanted

    job = downloads.start(KIT, parts=ask)
    await until(lambda: gathered(store.models))
    job.cancel()
    with pytest.raises(DownloadCancelled):
        await job.wait()
    assert gathered(store.models) == 0
    hub.set()
    await downloads.resume(job).wait()
    assert all(store.is_downloaded(each) for each in wanted)
