from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lemonade.errors import (
    DownloadCancelled,
    FileNotInRepository,
    IntegrityError,
    RegistryReplied,
    RegistryUnreachable,
)
from lemonade.hub.progress import Meter
from lemonade.hub.releases import Releases, choose
from lemonade.hub.transfer import Patience
from tests.hub.fake_releases import REPOSITORY, FakeReleases, running

PATTERNS = ("llama-{tag}-x64.tar.gz",)
CONTENT = b"archive" * 5000


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeReleases]:
    with running(tmp_path / "releases") as one:
        one.add("b5", "llama-b5-x64.tar.gz", CONTENT)
        one.add("b7", "llama-b7-x64.tar.gz", CONTENT + b"7")
        one.add("b9", "other.txt", b"nothing yet")
        yield one


@pytest.fixture
def releases(fake: FakeReleases) -> Releases:
    return Releases({"LEMONADE_RELEASES_ENDPOINT": fake.url}, patience=Patience(attempts=3, first_pause=0.01))


def meter(stop: list[str] | None = None) -> Meter:
    return Meter(lambda progress, edge: None, lambda: stop[0] if stop else None)


def test_which_files_are_meant() -> None:
    names = ["x-b5-cuda-12.4.zip", "x-b5-cuda-12.10.zip", "x-b5-cuda-13.1.zip", "rt-cuda-12.4.zip"]
    assert choose(("x-{tag}-cuda-12*.zip", "rt-cuda-12*.zip"), "b5", names) == [
        "x-b5-cuda-12.10.zip",
        "rt-cuda-12.4.zip",
    ]
    assert choose(("x-{tag}-cuda-12*.zip",), "b6", names) is None
    assert choose(("x-{tag}-cuda-*",), "b5", ["x-b5-cuda-12-evil.zip"]) is None


def test_a_pinned_file_asks_nobody_what_there_is(fake: FakeReleases, releases: Releases, tmp_path: Path) -> None:
    sha256 = fake.add("b5", "llama-b5-x64.tar.gz", CONTENT)
    release = releases.find(REPOSITORY, "b5", PATTERNS, {"llama-b5-x64.tar.gz": sha256})
    assert (release.tag, release.archives[0].file.size) == ("b5", len(CONTENT))
    (path,) = releases.fetch(release, tmp_path / "shelf", meter())
    assert path.read_bytes() == CONTENT
    assert not any(path.startswith("/api/") for path in fake.seen)


def test_another_tag_takes_the_hash_that_its_release_tells(releases: Releases, tmp_path: Path) -> None:
    release = releases.find(REPOSITORY, "b7", PATTERNS, {})
    (path,) = releases.fetch(release, tmp_path, meter())
    assert path.read_bytes() == CONTENT + b"7"


def test_the_newest_is_the_newest_that_has_the_file(releases: Releases) -> None:
    assert releases.find(REPOSITORY, "latest", PATTERNS, {}).tag == "b7"


def test_a_file_of_which_nobody_tells_a_hash(fake: FakeReleases, releases: Releases) -> None:
    fake.set(digests=False)
    with pytest.raises(IntegrityError, match="TAG@sha256:HEX"):
        releases.find(REPOSITORY, "b7", PATTERNS, {})


def test_a_hash_that_differs_from_the_one_that_is_known(releases: Releases) -> None:
    with pytest.raises(IntegrityError, match="should have the sha256 0000"):
        releases.find(REPOSITORY, "latest", PATTERNS, {"llama-b7-x64.tar.gz": "0" * 64})


def test_other_bytes_never_arrive(fake: FakeReleases, releases: Releases, tmp_path: Path) -> None:
    release = releases.find(REPOSITORY, "b7", PATTERNS, {})
    fake.set(wrong=True)
    with pytest.raises(IntegrityError, match="its hash is wrong"):
        releases.fetch(release, tmp_path / "shelf", meter())
    assert [path for path in (tmp_path / "shelf").iterdir() if path.suffix != ".lock"] == []


def test_a_cut_line_goes_on_where_it_stopped(fake: FakeReleases, releases: Releases, tmp_path: Path) -> None:
    release = releases.find(REPOSITORY, "b5", PATTERNS, {})
    fake.set(cut=10_000)
    (path,) = releases.fetch(release, tmp_path, meter())
    assert path.read_bytes() == CONTENT
    assert len(fake.seen) == 2


def test_it_can_be_called_off(releases: Releases, tmp_path: Path) -> None:
    release = releases.find(REPOSITORY, "b5", PATTERNS, {})
    with pytest.raises(DownloadCancelled, match="enough"):
        releases.fetch(release, tmp_path, meter(["enough"]))


def test_what_there_is_not(releases: Releases) -> None:
    with pytest.raises(FileNotInRepository, match="no release b6"):
        releases.find(REPOSITORY, "b6", PATTERNS, {})
    with pytest.raises(FileNotInRepository, match=r"has no llama-b9-x64.tar.gz in its release b9"):
        releases.find(REPOSITORY, "b9", PATTERNS, {})
    with pytest.raises(FileNotInRepository, match="in any of its newest 3 releases"):
        releases.find(REPOSITORY, "latest", ("mac.zip",), {})
    with pytest.raises(FileNotInRepository, match=r"no file 'llama-b6-x64.tar.gz' in its release b6"):
        releases.find(REPOSITORY, "b6", PATTERNS, {"llama-b6-x64.tar.gz": "0" * 64})


def test_a_host_that_does_not_answer_well(fake: FakeReleases, releases: Releases) -> None:
    fake.set(status=403)
    with pytest.raises(RegistryReplied, match="sixty in an hour"):
        releases.find(REPOSITORY, "b5", PATTERNS, {})
    fake.set(status=500)
    with pytest.raises(RegistryReplied, match="HTTP 500"):
        releases.find(REPOSITORY, "b5", PATTERNS, {})
    nobody = Releases({"LEMONADE_RELEASES_ENDPOINT": "http://127.0.0.1:9"})
    with pytest.raises(RegistryUnreachable, match=r"127.0.0.1:9 cannot be reached"):
        nobody.find(REPOSITORY, "b5", PATTERNS, {})
