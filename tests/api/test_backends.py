"""Engines that are fetched, by a real daemon from releases that lie on this machine."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.llamacpp import builds
from tests.daemon import FAKE_ENGINE, Daemon, alive, events, wait_for
from tests.hub.fake_releases import FakeReleases, running, tar

TAG = "b12000"
VULKAN = {"recipe": "llamacpp", "backend": "vulkan"}
ARCHIVE = f"llama-{TAG}-bin-ubuntu-vulkan-x64.tar.gz"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the archives are for this system"
)


def engine_archive(size: int = 0) -> bytes:
    """The fake engine, packed as llama.cpp packs its own."""
    script = f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_ENGINE}" "$@"\n'.encode()
    return tar({f"llama-{TAG}/llama-server": script, f"llama-{TAG}/filling": os.urandom(size)})


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeReleases]:
    with running(tmp_path_factory.mktemp("releases")) as fake:
        yield fake


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, releases: FakeReleases) -> Iterator[Daemon]:
    env = {"LEMONADE_RELEASES_ENDPOINT": releases.url, "NO_PROXY": "127.0.0.1"}
    config = {"llamacpp": {"backend": "cpu", "vulkan_bin": TAG, "cuda_bin": TAG}}
    with Daemon(tmp_path_factory.mktemp("site"), env=env, config=config) as one:
        one.add_model("m")
        yield one


@pytest.fixture(autouse=True)
def calm(site: Daemon, releases: FakeReleases) -> Iterator[None]:
    releases.set()
    releases.add(TAG, ARCHIVE, engine_archive())
    yield
    site.post("/internal/set", {"offline": False, "no_fetch_executables": False})
    site.post("/v1/uninstall", VULKAN)


def state(site: Daemon, backend: str = "vulkan") -> dict[str, Any]:
    shown: dict[str, Any] = site.get("/v1/system-info").json()["recipes"]["llamacpp"]["backends"][backend]
    return shown


def installed(site: Daemon) -> Path:
    return site.folder / "cache" / "bin" / "llamacpp" / "vulkan"


def test_from_the_releases_to_an_answer_and_back(site: Daemon) -> None:
    assert state(site)["state"] == "installable"
    assert state(site)["action"] == "lemonade backends install llamacpp:vulkan"
    assert site.post("/v1/install", VULKAN).json() == {"status": "success", **VULKAN}
    assert (installed(site) / "version.txt").read_text() == f"{TAG}\n"
    assert (state(site)["state"], state(site)["version"], state(site)["can_uninstall"]) == ("installed", TAG, True)
    assert not list((site.folder / "cache" / "bin" / ".downloads").glob("*gz*")), "archives are not kept"
    assert site.post("/v1/load", {"model_name": "m", "llamacpp_backend": "vulkan"}).status == 200
    assert site.chat("m").status == 200
    entry = site.entry("m")
    assert entry["launch_command"][0] == str(installed(site) / "llama-server")
    assert entry["device"] == "gpu"
    assert site.post("/v1/uninstall", VULKAN).json() == {"status": "success", **VULKAN}
    assert site.loaded() == []
    wait_for(lambda: not alive(entry["pid"]))
    assert not installed(site).exists()
    assert state(site)["state"] == "installable"


def test_a_load_fetches_the_backend_that_it_names(site: Daemon, releases: FakeReleases) -> None:
    load = {"model_name": "m", "llamacpp_backend": "vulkan"}
    site.post("/internal/set", {"offline": True})
    offline = site.post("/v1/load", load)
    assert (offline.status, offline.error["code"]) == (400, "lemond_offline")
    assert "llamacpp:vulkan" in offline.error["message"]
    site.post("/internal/set", {"offline": False, "no_fetch_executables": True})
    forbidden = site.post("/v1/load", load)
    assert (forbidden.status, forbidden.error["code"]) == (500, "model_load_error")
    assert "no_fetch_executables" in forbidden.error["message"]
    site.post("/internal/set", {"no_fetch_executables": False})
    releases.set(status=503)
    unreachable = site.post("/v1/load", load)
    assert (unreachable.status, installed(site).exists()) == (502, False)
    releases.set()
    assert site.post("/v1/load", load).status == 200
    assert site.entry("m")["launch_command"][0] == str(installed(site) / "llama-server")
    assert "backend:llamacpp:vulkan" in {job["id"] for job in site.get("/v1/downloads").json()}


def test_auto_fetches_nothing(site: Daemon, releases: FakeReleases) -> None:
    seen = len(releases.seen)
    site.post("/v1/load", {"model_name": "m"})
    site.post("/v1/load", {"model_name": "m", "llamacpp_backend": "auto"})
    assert len(releases.seen) == seen and not installed(site).exists()


def test_progress_as_events(site: Daemon, releases: FakeReleases) -> None:
    answer = site.post("/v1/install", {**VULKAN, "stream": True})
    assert answer.status == 200
    parts = [json.loads(event) for event in events(answer.body)]
    assert parts[-1]["complete"] is True
    assert {part["file"] for part in parts} == {"", ARCHIVE}
    seen = len(releases.seen)
    again = site.post("/v1/install", {**VULKAN, "stream": True, "subscribe": False})
    assert b"event: complete" in again.body
    assert len(releases.seen) == seen, "what is installed asks nobody"
    assert site.post("/v1/install", {**VULKAN, "force": True}).status == 200
    assert len(releases.seen) > seen


def test_a_job_that_is_paused_goes_on_and_one_that_is_cancelled_leaves_nothing(
    site: Daemon, releases: FakeReleases
) -> None:
    releases.add(TAG, ARCHIVE, engine_archive(600_000))
    releases.set(rate=400_000)
    job = site.post("/v1/install", {**VULKAN, "stream": True, "subscribe": False}).json()
    assert (job["id"], job["type"], job["model_name"]) == ("backend:llamacpp:vulkan", "backend", "llamacpp:vulkan")

    def shown() -> dict[str, Any]:
        (row,) = (row for row in site.get("/v1/downloads").json() if row["id"] == job["id"])
        return row  # type: ignore[no-any-return]

    wait_for(lambda: shown()["bytes_downloaded"] > 0)
    control = {"id": job["id"]}
    assert site.post("/v1/downloads/control", {**control, "action": "pause"}).json()["status"] == "paused"
    wait_for(lambda: not shown()["running"])
    assert "lemonade backends install llamacpp:vulkan" in shown()["error"]
    releases.set()
    assert site.post("/v1/downloads/control", {**control, "action": "resume"}).status == 200
    wait_for(lambda: shown()["status"] == "completed")
    assert installed(site).is_dir()
    site.post("/v1/uninstall", VULKAN)
    releases.set(rate=100_000)
    site.post("/v1/install", {**VULKAN, "stream": True, "subscribe": False})
    wait_for(lambda: shown()["bytes_downloaded"] > 0)
    site.post("/v1/downloads/control", {**control, "action": "cancel"})
    wait_for(lambda: not shown()["running"])
    assert not installed(site).exists()
    assert not list((site.folder / "cache" / "bin").rglob("*.incomplete"))


def test_bytes_that_are_others(site: Daemon, releases: FakeReleases) -> None:
    releases.set(wrong=True)
    assert site.post("/v1/install", VULKAN).error["code"] == "integrity_error"
    releases.set(digests=False)
    assert site.post("/v1/install", VULKAN).error["code"] == "integrity_error"
    assert not installed(site).exists()


def test_an_archive_that_leads_out(site: Daemon, releases: FakeReleases) -> None:
    releases.add(TAG, ARCHIVE, tar({"llama-server": b"x", "../../../../evil": b"x"}))
    before = sorted(site.folder.rglob("*"))
    answer = site.post("/v1/install", VULKAN)
    assert (answer.status, answer.error["code"]) == (500, "archive_refused")
    assert ARCHIVE in answer.error["message"]
    made = set(site.folder.rglob("*")) - set(before)
    assert {path.name for path in made} <= {"bin", "llamacpp", ".downloads"}
    releases.add(TAG, ARCHIVE, tar({"other": b"x"}))
    assert "holds no llama-server" in site.post("/v1/install", VULKAN).error["message"]


def test_what_settings_forbid(site: Daemon) -> None:
    site.post("/internal/set", {"offline": True})
    answer = site.post("/v1/install", VULKAN)
    assert (answer.status, answer.error["code"]) == (400, "lemond_offline")
    site.post("/internal/set", {"offline": False, "no_fetch_executables": True})
    answer = site.post("/v1/install", VULKAN)
    assert (answer.status, answer.error["type"]) == (400, "unsupported_operation")
    assert "no_fetch_executables" in answer.error["message"]
    assert answer.error["recipe"] == "llamacpp"
    assert state(site)["state"] == "unsupported"
    assert site.get("/v1/system-info").json()["no_fetch_executables"] is True


def test_offline_what_is_installed_is_enough(site: Daemon) -> None:
    site.post("/v1/install", VULKAN)
    site.post("/internal/set", {"offline": True})
    assert site.post("/v1/install", VULKAN).status == 200
    assert site.post("/v1/install", {**VULKAN, "force": True}).error["code"] == "lemond_offline"


def test_nothing_is_to_be_done_for_what_comes_by_other_means(site: Daemon, releases: FakeReleases) -> None:
    for backend in ("cpu", "system"):
        assert site.post("/v1/install", {"recipe": "llamacpp", "backend": backend}).status == 200
        assert site.post("/v1/uninstall", {"recipe": "llamacpp", "backend": backend}).status == 200
    assert releases.seen == []


def test_what_this_machine_cannot_run_wants_force(site: Daemon, releases: FakeReleases) -> None:
    cuda = {"recipe": "llamacpp", "backend": "cuda"}
    if state(site, "cuda")["state"] != "unsupported":
        pytest.skip("it can")
    answer = site.post("/v1/install", cuda)
    assert (answer.status, answer.error["type"]) == (400, "unsupported_operation")
    assert "No NVIDIA GPU" in answer.error["message"]
    assert "force" in answer.error["message"]
    releases.add(TAG, f"llama-{TAG}-bin-ubuntu-cuda-12.8-x64.tar.gz", engine_archive())
    releases.add(TAG, f"cudart-llama-{TAG}-bin-ubuntu-cuda-12.8-x64.tar.gz", tar({"rt/libcudart.so.12": b"lib"}))
    assert site.post("/v1/install", {**cuda, "force": True}).status == 200
    folder = site.folder / "cache" / "bin" / "llamacpp" / "cuda"
    assert {path.name for path in folder.iterdir()} >= {"llama-server", "libcudart.so.12", "version.txt"}
    assert state(site, "cuda")["state"] == "installed"
    assert site.post("/v1/uninstall", cuda).status == 200


@pytest.mark.parametrize("path", ["/v1/install", "/v1/uninstall", "/v1/install/dry-run"])
def test_mistakes(site: Daemon, path: str) -> None:
    for body, code, param in (
        ({"recipe": "llamacpp"}, "missing_argument", "backend"),
        ({"backend": "cpu"}, "missing_argument", "recipe"),
        ({"recipe": "nope", "backend": "cpu"}, "invalid_argument", "recipe"),
        ({"recipe": "llamacpp", "backend": "../../x"}, "invalid_argument", "backend"),
        ({"recipe": 5, "backend": "cpu"}, "invalid_argument", "recipe"),
    ):
        answer = site.post(path, body)
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, code, param), body
    assert site.post(path, b"{bad").error["code"] == "invalid_json"
    assert "yet" in site.post(path, {"recipe": "flm", "backend": "npu"}).error["message"]


def test_a_look_at_what_would_be_fetched(site: Daemon, releases: FakeReleases) -> None:
    shown = site.post("/v1/install/dry-run", VULKAN).json()
    assert (shown["filename"], shown["version"], shown["supported"]) == (ARCHIVE, TAG, True)
    assert shown["url"] == f"{releases.url}/ggml-org/llama.cpp/releases/download/{TAG}/{ARCHIVE}"
    assert len(shown["hashes"][ARCHIVE]) == 64
    assert not installed(site).exists()
    rocm = site.post("/v1/install/dry-run", {"recipe": "llamacpp", "backend": "rocm"}).json()
    assert rocm["version"] == builds.TAG
    assert rocm["hashes"] == {rocm["filename"]: builds.HASHES[rocm["filename"]]}
    assert site.post("/v1/install/dry-run", {**VULKAN, "arch": "sparc"}).error["type"] == "unsupported_operation"
    nothing = site.post("/v1/install/dry-run", {"recipe": "llamacpp", "backend": "system"}).json()
    assert (nothing["filename"], nothing["files"]) == ("", [])
