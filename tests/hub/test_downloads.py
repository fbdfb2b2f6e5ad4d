from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import (
    DownloadCancelled,
    FileNotInRepository,
    HubError,
    IntegrityError,
    NotEnoughSpace,
    Offline,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryNotFound,
)
from lemonade.hub.downloads import Downloads, Job
from lemonade.hub.progress import Progress
from lemonade.hub.store import Store
from lemonade.hub.transfer import Patience
from tests.hub.conftest import QUICK, gathered, model, tree, until
from tests.hub.fake_hub import FakeHub

BYTES = b"GGUF" + os.urandom(3_000_000)


async def listen(job: Job) -> list[Progress]:
    return [progress async for progress in job.events()]


async def test_a_model_arrives(hub: FakeHub, downloads: Downloads, store: Store, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "m-Q8_0.gguf", BYTES + b"8")
    hub.write("o/n", "config.json", b"{}")
    one = model("o/n:Q4_K_M")
    assert not store.is_downloaded(one)
    await downloads.ensure(one)
    assert store.is_downloaded(one)
    path = store.locate(one)["main"]
    assert path is not None and path.read_bytes() == BYTES
    assert store.size(one) == len(BYTES) + 2
    assert not store.is_downloaded(model("o/n:Q8_0"))
    assert not [name for name in tree(cache) if "incomplete" in name or name.endswith(".tmp")]


async def test_roles_in_several_repositories(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "mmproj-F16.gguf", b"GGUFp")
    hub.write("other/vae", "deep/ae.safetensors", b"vae")
    roles = {"mmproj": "o/n:mmproj-F16.gguf", "vae": "other/vae:deep/ae.safetensors", "npu_cache": "none/none:x.rai"}
    one = model("o/n:Q4_K_M", roles=roles)
    await downloads.ensure(one)
    found = store.locate(one)
    assert {role: path and path.name for role, path in found.items()} == {
        "main": "m-Q4_K_M.gguf",
        "mmproj": "mmproj-F16.gguf",
        "vae": "ae.safetensors",
        "npu_cache": None,
    }
    mmproj = found["mmproj"]
    assert mmproj is not None
    mmproj.unlink()
    assert not store.is_downloaded(one)
    await downloads.ensure(one)
    assert store.is_downloaded(one)


async def test_a_whole_folder(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    for name in ("encoder.ort", "decoder.ort", "tokenizer.bin"):
        hub.write("o/n", f"onnx/tiny/{name}", b"x" * 2000 + name.encode())
    hub.write("o/n", "onnx/base/encoder.ort", b"y")
    one = model("o/n:onnx/tiny", recipe="moonshine")
    await downloads.ensure(one)
    folder = store.locate(one)["main"]
    assert folder is not None
    assert tree(folder) == {"encoder.ort", "decoder.ort", "tokenizer.bin"}
    (folder / "decoder.ort").unlink()
    assert not store.is_downloaded(one)


async def test_what_is_here_needs_nobody(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    calls = hub.calls()
    await downloads.ensure(one)
    job = downloads.start(one)
    await job.wait()
    assert job.snapshot()["status"] == "completed"
    assert [progress.complete for progress in await listen(job)][-1]
    assert hub.calls() == calls


async def test_progress_never_goes_back(hub: FakeHub, make_downloads: Callable[..., Downloads]) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "config.json", b"{}")
    hub.set(cut=700_000, cut_times=2, wrong_times=1, rate=20_000_000)
    seen = await listen(make_downloads().start(model("o/n:Q4_K_M")))
    overall = [progress.cumulative_bytes_downloaded for progress in seen]
    assert overall == sorted(overall)
    places = [(progress.file_index, progress.bytes_downloaded) for progress in seen if not progress.complete]
    assert places == sorted(places)
    assert all(progress.percent <= 100 and progress.bytes_downloaded <= progress.bytes_total for progress in seen)
    assert all(progress.cumulative_bytes_downloaded <= progress.total_download_size for progress in seen[1:])
    assert {progress.file for progress in seen} == {"", "config.json", "m-Q4_K_M.gguf"}
    last = seen[-1]
    assert (last.complete, last.percent, last.cumulative_bytes_downloaded) == (True, 100, len(BYTES) + 2)


async def test_a_snapshot_has_the_documented_keys(hub: FakeHub, downloads: Downloads) -> None:
    job = downloads.start(model("o/none:Q4_0", name="N"))
    with pytest.raises(RepositoryNotFound):
        await job.wait()
    facts = job.snapshot()
    documented = (
        "id type model_name status running file file_index total_files bytes_downloaded bytes_total "
        "total_download_size bytes_previously_downloaded completed_files_bytes cumulative_bytes_downloaded "
        "overall_bytes_downloaded percent complete error code"
    )
    assert set(documented.split()) <= set(facts)
    assert (facts["id"], facts["type"], facts["status"], facts["running"]) == ("model:N", "model", "error", False)
    assert facts["code"] == "repository_not_found"


async def test_two_callers_share_one_job(hub: FakeHub, downloads: Downloads) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    assert downloads.start(one) is downloads.start(one)
    await asyncio.gather(*(downloads.ensure(one) for _ in range(8)))
    assert hub.sent() == len(BYTES)


async def test_two_variants_of_one_repository_follow_each_other(
    hub: FakeHub, downloads: Downloads, store: Store
) -> None:
    models = [model(f"o/n:{variant}", name=variant) for variant in ("Q4_0", "Q8_0")]
    for variant in ("Q4_0", "Q8_0"):
        hub.write("o/n", f"m-{variant}.gguf", BYTES + variant.encode())
    await asyncio.gather(*map(downloads.ensure, models))
    assert all(map(store.is_downloaded, models))


async def test_a_second_model_of_a_repository_waits_for_the_first(
    hub: FakeHub, downloads: Downloads, store: Store, cache: Path
) -> None:
    for variant in ("Q4_0", "Q8_0"):
        hub.write("o/n", f"m-{variant}.gguf", BYTES + variant.encode())
    hub.set(stall=1_000_000)
    first = downloads.start(model("o/n:Q4_0", name="first"))
    await until(lambda: gathered(cache) == 1_000_000)
    second = downloads.start(model("o/n:Q8_0", name="second"))
    await asyncio.sleep(0.3)
    assert len([each for each in hub.seen if each.path.startswith("/api/")]) == 1
    hub.set()
    first.cancel()
    await second.wait()
    assert store.is_downloaded(second.model)
    assert not store.is_downloaded(first.model)


async def test_a_client_that_leaves_does_not_end_the_job(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(rate=6_000_000)
    one = model("o/n:Q4_K_M")
    waiter = asyncio.ensure_future(downloads.ensure(one))
    await until(lambda: hub.sent())
    waiter.cancel()
    events = downloads.start(one).events()
    await anext(events)
    await events.aclose()
    await downloads.start(one).wait()
    assert store.is_downloaded(one)
    assert hub.sent() == len(BYTES)


async def test_a_failure_is_told_to_all_and_then_forgotten(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    one = model("o/n:Q4_K_M")
    results = await asyncio.gather(downloads.ensure(one), downloads.ensure(one), return_exceptions=True)
    assert [type(result) for result in results] == [RepositoryNotFound, RepositoryNotFound]
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    await downloads.ensure(one)
    assert store.is_downloaded(one)


async def test_a_file_that_the_repository_lacks(hub: FakeHub, downloads: Downloads, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    with pytest.raises(FileNotInRepository, match="Q4_K_M"):
        await downloads.ensure(model("o/n:Q5_K_M"))
    assert not cache.exists()


async def test_pause_keeps_and_the_next_start_goes_on(
    hub: FakeHub, make_downloads: Callable[..., Downloads], store: Store, cache: Path
) -> None:
    # A line that is silent for longer than the test may take: only hanging up ends the wait for it.
    downloads = make_downloads(patience=Patience(silence=600))
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(stall=1_000_000)
    one = model("o/n:Q4_K_M")
    job = downloads.start(one)
    await until(lambda: gathered(cache) == 1_000_000)
    job.pause()
    assert job.snapshot()["status"] == "paused"
    with pytest.raises(DownloadCancelled, match="paused"):
        await asyncio.wait_for(job.wait(), 20)
    assert not job.running
    assert not store.is_downloaded(one)
    hub.set()
    again = downloads.start(one)
    seen = await listen(again)
    assert seen[-1].bytes_previously_downloaded == 1_000_000
    assert hub.sent() == len(BYTES)


@pytest.mark.parametrize("paused_first", [False, True])
async def test_cancel_removes_everything(
    hub: FakeHub, downloads: Downloads, store: Store, cache: Path, paused_first: bool
) -> None:
    hub.write("o/n", "a-00001-of-00002.gguf", BYTES[:50_000])
    hub.write("o/n", "a-00002-of-00002.gguf", BYTES)
    hub.set(stall=1_000_000)
    one = model("o/n:a-00001-of-00002.gguf")
    job = downloads.start(one)
    await until(lambda: gathered(cache) == 1_000_000)
    if paused_first:
        job.pause()
        await until(lambda: not job.running)
    job.cancel()
    assert job.snapshot()["status"] == "cancelled"
    with pytest.raises(DownloadCancelled):
        await job.wait()
    await until(lambda: not tree(cache))
    assert downloads.remove(job)
    assert downloads.jobs() == []


async def test_cancel_leaves_other_models_alone(hub: FakeHub, downloads: Downloads, store: Store, cache: Path) -> None:
    hub.write("o/n", "m-Q4_0.gguf", BYTES)
    hub.write("o/n", "m-Q8_0.gguf", BYTES + b"8")
    first = model("o/n:Q4_0", name="first")
    await downloads.ensure(first)
    hub.set(stall=1_000_000)
    job = downloads.start(model("o/n:Q8_0", name="second"))
    await until(lambda: gathered(cache) == 1_000_000)
    assert store.is_downloaded(first)
    job.cancel()
    with pytest.raises(DownloadCancelled):
        await job.wait()
    assert store.is_downloaded(first)


async def test_closing_pauses(hub: FakeHub, downloads: Downloads, cache: Path) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(stall=1_000_000)
    job = downloads.start(model("o/n:Q4_K_M"))
    await until(lambda: gathered(cache) == 1_000_000)
    await downloads.close()
    assert (job.status, job.running) == ("paused", False)
    assert [name for name in tree(cache) if name.endswith(".incomplete")]
    with pytest.raises(DownloadCancelled, match="stopping"):
        await downloads.ensure(model("o/n:Q4_K_M"))


async def test_completed_jobs_are_forgotten(
    hub: FakeHub, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    job = downloads.start(model("o/n:Q4_K_M"))
    await job.wait()
    assert downloads.job("model:M") is job
    monkeypatch.setattr("lemonade.hub.downloads.COMPLETED_FOR", -1.0)
    assert downloads.job("model:M") is None


async def test_offline(hub: FakeHub, make_downloads: Callable[..., Downloads]) -> None:
    with pytest.raises(Offline, match="offline") as caught:
        await make_downloads(offline=lambda: True).ensure(model("o/n:Q4_K_M"))
    assert caught.value.code == "lemond_offline"
    assert hub.calls() == 0


@pytest.mark.parametrize(
    ("more", "kind", "says"),
    [
        ({"registry": "modelscope"}, HubError, "cannot be used yet"),
        ({"source": "local_path", "main": "/nowhere/m.gguf"}, FileNotInRepository, "your own files"),
        ({"checkpoints": {}}, FileNotInRepository, "no checkpoint"),
    ],
)
async def test_what_cannot_be_downloaded(
    hub: FakeHub, downloads: Downloads, more: dict[str, Any], kind: type[HubError], says: str
) -> None:
    import msgspec

    one = model(more.pop("main", "o/n:Q4_0"))
    with pytest.raises(kind, match=says):
        await downloads.ensure(msgspec.structs.replace(one, **more))
    assert hub.calls() == 0


# What goes wrong with bytes.


async def test_a_cut_line_goes_on_where_it_stopped(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    content = b"GGUF" + os.urandom(1 << 20) * 100
    hub.write("o/n", "m-Q4_K_M.gguf", content)
    hub.set(cut=40_000_000, cut_times=2)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    path = store.locate(one)["main"]
    assert path is not None
    assert hashlib.sha256(path.read_bytes()).digest() == hashlib.sha256(content).digest()
    assert hub.sent() == len(content)
    ranges = [each.headers.get("range") for each in hub.seen if each.server == "storage"]
    assert ranges == [None, "bytes=40000000-", "bytes=80000000-"]


@pytest.mark.parametrize(
    ("switches", "sent"),
    [
        ({"wrong_times": 1}, 2),
        ({"page_times": 1}, 1),
        ({"empty_times": 1}, 1),
        ({"status": 503, "status_times": 2}, 1),
        ({"status": 429, "status_times": 1}, 1),
        ({"cut": 1_000_000, "cut_times": 1, "refuse_range_times": 1}, 4 / 3),
        ({"cut": 1_000_000, "cut_times": 1, "ignore_range": True}, 4 / 3),
        ({"cut": 1_000_000, "cut_times": 1, "new_etag": True}, 4 / 3),
        ({"redirects": 3}, 1),
    ],
)
async def test_what_a_second_attempt_repairs(
    hub: FakeHub, downloads: Downloads, store: Store, switches: dict[str, Any], sent: float
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(**switches)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    path = store.locate(one)["main"]
    assert path is not None and path.read_bytes() == BYTES
    assert hub.sent() == pytest.approx(len(BYTES) * sent, rel=0.01)


async def test_a_part_of_another_version_is_not_appended(hub: FakeHub, downloads: Downloads) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(cut=1_000_000, cut_times=1, new_etag=True, ignore_if_range=True)
    await downloads.ensure(model("o/n:Q4_K_M"))
    ranges = [each.headers.get("range") for each in hub.seen if each.server == "storage"]
    assert ranges == [None, "bytes=1000000-", None]


@pytest.mark.parametrize(
    ("switches", "kind", "says"),
    [
        ({"wrong_times": -1}, IntegrityError, "its hash is wrong"),
        ({"page_times": -1}, IntegrityError, "web page"),
        ({"empty_times": -1}, IntegrityError, "0 bytes instead of"),
        ({"cut": 0}, RegistryUnreachable, "the connection"),
        ({"status": 500, "status_times": -1}, RegistryUnreachable, "HTTP 500"),
        ({"status": 418, "status_times": -1}, RegistryReplied, "HTTP 418"),
        ({"redirects": 50}, RegistryReplied, "redirects more than"),
        ({"storage": "ftp://127.0.0.1"}, RegistryReplied, "no web address"),
        ({"storage": "http://127.0.0.1:9"}, RegistryUnreachable, "no connection"),
    ],
)
async def test_what_cannot_be_repaired_is_one_clean_error(
    hub: FakeHub,
    downloads: Downloads,
    store: Store,
    cache: Path,
    switches: dict[str, Any],
    kind: type[HubError],
    says: str,
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(**switches)
    one = model("o/n:Q4_K_M")
    with pytest.raises(kind, match=says) as caught:
        await downloads.ensure(one)
    assert "m-Q4_K_M.gguf" in caught.value.message or "redirect" in caught.value.message
    assert "secret" not in caught.value.message
    assert not store.is_downloaded(one)
    assert tree(cache) == set()


async def test_a_file_that_is_no_gguf_is_refused_at_its_first_bytes(hub: FakeHub, downloads: Downloads) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", b"<!DOCTYPE html>" + bytes(3_000_000))
    with pytest.raises(IntegrityError, match="does not begin as a GGUF"):
        await downloads.ensure(model("o/n:Q4_K_M"))


async def test_a_silent_line_is_given_up(hub: FakeHub, make_downloads: Callable[..., Downloads]) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(stall=500_000)
    patience = Patience(attempts=2, first_pause=0.01, silence=0.3)
    one = model("o/n:Q4_K_M")
    job = make_downloads(patience=patience).start(one)
    await until(lambda: hub.calls("storage") >= 2)
    hub.set()
    await job.wait()
    assert hub.sent() <= len(BYTES) + 500_000


async def test_space_is_looked_at_before_the_first_byte(
    hub: FakeHub, make_downloads: Callable[..., Downloads], cache: Path
) -> None:
    hub.write("o/n", "m-00001-of-00002.gguf", BYTES)
    hub.write("o/n", "m-00002-of-00002.gguf", BYTES + b"2")
    one = model("o/n:m-00001-of-00002.gguf")
    with pytest.raises(NotEnoughSpace, match=r"needs 5\.7 MB more .* 4\.8 MB free"):
        await make_downloads(free=lambda folder: 5_000_000).ensure(one)
    assert hub.calls("storage") == 0
    await make_downloads(free=lambda folder: 2 * len(BYTES) + 1).ensure(one)


async def test_what_is_damaged_on_disk_is_fetched_again_by_a_pull(
    hub: FakeHub, downloads: Downloads, store: Store
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.write("o/n", "config.json", b"{}")
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    path = store.locate(one)["main"]
    assert path is not None
    config = path.with_name("config.json")
    before = config.stat().st_mtime_ns
    with path.open("r+b") as file:
        file.seek(1000)
        file.write(b"damage")
    await downloads.start(one, upgrade=True).wait()
    assert path.read_bytes() == BYTES
    assert config.stat().st_mtime_ns == before
    assert hub.sent() == 2 * len(BYTES)


async def test_a_truncated_file_is_not_there(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    path = store.locate(one)["main"]
    assert path is not None
    os.truncate(path, 1_000_000)
    assert not store.is_downloaded(one)
    await downloads.ensure(one)
    assert path.read_bytes() == BYTES


async def test_a_newer_commit_reuses_what_did_not_change(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    old = store.locate(one)["main"]
    hub.write("o/n", "config.json", b"{}")
    await downloads.start(one, upgrade=True).wait()
    new = store.locate(one)["main"]
    assert old is not None and new is not None
    assert new.parent.name == hub.revision("o/n") != old.parent.name
    assert new.resolve() == old.resolve()
    assert hub.sent() == len(BYTES)


async def test_the_token_goes_to_the_hub_and_nowhere_else(
    hub: FakeHub, downloads: Downloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(token="hf_CANARY", redirects=2)
    await downloads.ensure(model("o/n:Q4_K_M"))
    assert {each.headers.get("authorization") for each in hub.seen if each.server == "hub"} == {"Bearer hf_CANARY"}
    storage = [each for each in hub.seen if each.server == "storage"]
    assert storage and not [each for each in storage if "CANARY" in str(each.headers)]


async def test_same_bytes_under_two_names(hub: FakeHub, downloads: Downloads, store: Store) -> None:
    for name in ("a.onnx", "b.onnx"):
        hub.write("o/n", f"f/{name}", b"same" * 1000)
    one = model("o/n:f", recipe="moonshine")
    await downloads.ensure(one)
    assert store.is_downloaded(one)
    assert hub.calls("storage") == 1
    assert store.size(one) == 4000


@pytest.mark.parametrize("links", [True, False])
@pytest.mark.parametrize("same", [True, False])
async def test_deleting_one_of_two(
    hub: FakeHub,
    downloads: Downloads,
    store: Store,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    links: bool,
    same: bool,
) -> None:
    """With and without symbolic links, and with the same bytes under both names."""

    def refuse(*args: object, **more: object) -> None:
        raise OSError("a required privilege is not held by the client")

    if not links:
        monkeypatch.setattr(Path, "symlink_to", refuse)
    one, other = model("o/n:Q4_0", name="one"), model("o/n:Q8_0", name="other")
    hub.write("o/n", "m-Q4_0.gguf", BYTES)
    hub.write("o/n", "m-Q8_0.gguf", BYTES if same else BYTES + b"8")
    await downloads.ensure(one)
    await downloads.ensure(other)
    assert hub.sent() == len(BYTES) if same else 2 * len(BYTES) + 1
    path = store.locate(one)["main"]
    assert path is not None and path.is_symlink() is links
    store.delete(one, [one, other])
    assert not store.is_downloaded(one)
    assert store.is_downloaded(other)
    assert len(list((cache / "models--o--n" / "blobs").iterdir())) == 1


async def test_bytes_that_another_program_left_wrong(
    hub: FakeHub, downloads: Downloads, store: Store, cache: Path
) -> None:
    sha256, _ = hub.digests(hub.write("o/n", "m-Q4_K_M.gguf", BYTES))
    blob = cache / "models--o--n" / "blobs" / sha256
    blob.parent.mkdir(parents=True)
    blob.write_bytes(BYTES[:-1] + b"!")
    one = model("o/n:Q4_K_M")
    await downloads.ensure(one)
    path = store.locate(one)["main"]
    assert path is not None and path.read_bytes() == BYTES


async def test_starting_again_right_after_cancelling(
    hub: FakeHub, downloads: Downloads, store: Store, cache: Path
) -> None:
    hub.write("o/n", "m-Q4_K_M.gguf", BYTES)
    hub.set(stall=1_000_000)
    one = model("o/n:Q4_K_M")
    first = downloads.start(one)
    await until(lambda: gathered(cache) == 1_000_000)
    hub.set()
    first.cancel()
    second = downloads.start(one)
    assert second is not first
    await second.wait()
    assert store.is_downloaded(one)


def test_patience_is_what_the_tests_say() -> None:
    assert QUICK.attempts < Patience().attempts == 10
