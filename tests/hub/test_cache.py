"""The cache is shared: with the library's own tools, with other processes, with a disk that becomes full."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lemonade.errors import NotEnoughSpace
from lemonade.hub.downloads import Downloads
from lemonade.hub.store import Store
from tests.hub.conftest import gathered, model, tree, until
from tests.hub.fake_hub import FakeHub

BYTES = b"GGUF" + os.urandom(2_000_000)

DOWNLOAD = """
import asyncio, sys
from pathlib import Path
from lemonade.hub.downloads import Downloads
from lemonade.hub.store import Store
from lemonade.model import Model

async def main():
    model = Model(name="M", recipe="llamacpp", checkpoints={"main": sys.argv[2]})
    await Downloads(Store(Path(sys.argv[1]))).ensure(model)

asyncio.run(main())
"""


def library(hub: FakeHub, cache: Path, program: str) -> str:
    """What a program says that uses the library as everybody does."""
    env = {**os.environ, "HF_ENDPOINT": hub.url, "HF_HUB_CACHE": str(cache), "HF_HOME": str(cache.parent / "home")}
    env |= {"HF_HUB_DISABLE_TELEMETRY": "1", "HF_HUB_DISABLE_XET": "1"}
    done = subprocess.run([sys.executable, "-c", program], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


async def test_the_library_reads_what_we_wrote(hub: FakeHub, downloads: Downloads, store: Store, cache: Path) -> None:
    hub.write("o/n", "deep/m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "config.json", b"{}")
    one = model("o/n:m-Q4_K_M.gguf")
    await downloads.ensure(one)
    sent, calls = hub.sent(), hub.calls()
    scan = (
        "from huggingface_hub import scan_cache_dir; i = scan_cache_dir(); r, = i.repos; v, = r.revisions; "
        "print(r.repo_id, sorted(f.file_name for f in v.files), sorted(v.refs), r.size_on_disk, "
        "len(i.warnings), len(i.incomplete_files))"
    )
    assert library(hub, cache, scan) == f"o/n ['config.json', 'm-Q4_K_M.gguf'] ['main'] {len(BYTES) + 2} 0 0"
    assert hub.calls() == calls
    get = "from huggingface_hub import hf_hub_download; print(hf_hub_download('o/n', 'deep/m-Q4_K_M.gguf'))"
    assert library(hub, cache, get) == str(store.locate(one)["main"])
    assert hub.sent() == sent


async def test_the_library_sees_what_is_on_its_way(hub: FakeHub, downloads: Downloads, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(stall=1_000_000)
    job = downloads.start(model("o/n:Q4_K_M"))
    await until(lambda: gathered(cache) == 1_000_000)
    await downloads.close()
    assert job.status == "paused"
    scan = (
        "from huggingface_hub import scan_cache_dir; i = scan_cache_dir(); "
        "print(len(i.repos), len(i.warnings), sum(f.size_on_disk for f in i.incomplete_files))"
    )
    assert library(hub, cache, scan) == "1 0 1000000"


async def test_we_read_what_the_library_wrote(hub: FakeHub, downloads: Downloads, store: Store, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "m-Q8_0-00001-of-00002.gguf", BYTES)
    hub.write("o/n", "m-Q8_0-00002-of-00002.gguf", BYTES)
    library(hub, cache, "from huggingface_hub import hf_hub_download as d; d('o/n', 'm-Q4_K_M.gguf')")
    library(hub, cache, "from huggingface_hub import hf_hub_download as d; d('o/n', 'm-Q8_0-00001-of-00002.gguf')")
    calls = hub.calls()
    one, other = model("o/n:Q4_K_M", name="one"), model("o/n:Q8_0", name="other")
    await downloads.ensure(one)
    assert store.is_downloaded(one)
    assert not store.is_downloaded(other)
    assert hub.calls() == calls
    sent = hub.sent()
    await downloads.ensure(other)
    assert store.is_downloaded(other)
    # Both parts have the same bytes, and the library has fetched them already.
    assert hub.sent() == sent


async def test_deleted_by_the_library(hub: FakeHub, downloads: Downloads, store: Store, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    library(
        hub,
        cache,
        "from huggingface_hub import scan_cache_dir as s; i = s(); r, = i.repos; v, = r.revisions; "
        "i.delete_revisions(v.commit_hash).execute()",
    )
    assert not store.is_downloaded(one)
    await downloads.ensure(one)
    assert store.is_downloaded(one)


def start(hub: FakeHub, cache: Path) -> subprocess.Popen[bytes]:
    env = {**os.environ, "HF_ENDPOINT": hub.url}
    return subprocess.Popen([sys.executable, "-c", DOWNLOAD, str(cache), "o/n:Q4_K_M"], env=env)


def wait_for(condition: Callable[[], object], child: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while not condition():
        assert child.poll() is None and time.monotonic() < until
        time.sleep(0.01)


def test_a_killed_process_goes_on_where_it_was(hub: FakeHub, store: Store, cache: Path) -> None:
    content = BYTES * 10
    hub.write("o/n", "m-Q4_K_M.gguf", content)
    hub.set(stall=15_000_000)
    one = model("o/n:Q4_K_M")
    child = start(hub, cache)
    wait_for(lambda: gathered(cache) >= 14_900_000, child)
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    kept = gathered(cache)
    assert not store.is_downloaded(one)
    hub.set()
    child = start(hub, cache)
    assert child.wait(60) == 0
    path = store.locate(one)["main"]
    assert path is not None and path.read_bytes() == content
    last = [each for each in hub.seen if each.server == "storage"][-1]
    assert (last.headers["range"], last.sent) == (f"bytes={kept}-", len(content) - kept)
    assert not [name for name in tree(cache) if "lemonade.incomplete" in name or name.endswith(".tmp")]


def test_two_processes_fetch_once(hub: FakeHub, store: Store, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(rate=4_000_000)
    children = [start(hub, cache) for _ in range(2)]
    assert [child.wait(60) for child in children] == [0, 0]
    assert store.is_downloaded(model("o/n:Q4_K_M"))
    assert hub.sent() == len(BYTES)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    if sys.platform != "linux":
        pytest.skip("a small disk is made with Linux's tmpfs")
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(disk)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip(f"no small disk: mount says {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


async def test_a_disk_that_becomes_full(
    hub: FakeHub, make_downloads: Callable[..., Downloads], small_disk: Path
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    store = Store(small_disk / "hub")
    with pytest.raises(NotEnoughSpace, match=r"needs .* more"):
        await make_downloads(into=store).ensure(one)
    assert hub.calls("storage") == 0
    with pytest.raises(NotEnoughSpace, match=r"became full while 'm-Q4_K_M.gguf'"):
        await make_downloads(into=store, free=lambda folder: 1 << 40).ensure(one)
    assert hub.calls("storage") == 1
    subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
    await make_downloads(into=store).ensure(one)
    assert hub.sent() < 2 * len(BYTES)
