from __future__ import annotations

import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.daemon import Daemon, gguf, wait_for
from tests.hub.fake_hub import FakeHub
from tests.stream import Stream


def pull(site: Daemon, name: str, checkpoint: str, **more: Any) -> None:
    body = {"model_name": f"user.{name}", "recipe": "llamacpp", "checkpoint": checkpoint, **more}
    assert site.post("/v1/pull", body).status == 200


def blobs(site: Daemon, folder: str) -> set[int]:
    return {each.stat().st_size for each in (site.folder / "hub" / folder / "blobs").glob("*")}


def test_what_another_model_uses_stays(site: Daemon, hub: FakeHub) -> None:
    head = gguf({})
    sizes = {"m-Q4_K_M.gguf": 3000, "m-Q8_0.gguf": 4000, "mmproj-F16.gguf": 5000}
    for name, size in sizes.items():
        hub.write("o/shared", name, head + b"x" * size)
    for name, variant in (("Four", "Q4_K_M"), ("Eight", "Q8_0")):
        pull(site, name, f"o/shared:{variant}", mmproj="mmproj-F16.gguf", vision=True)
    site.post("/v1/models/Four/options", {"ctx_size": 1024})
    assert site.post("/v1/load", {"model_name": "Four"}).status == 200
    answer = site.post("/v1/delete", {"model": "Four"})
    assert answer.json() == {"status": "success", "message": "Deleted model: Four"}
    assert not site.loaded()
    assert blobs(site, "models--o--shared") == {len(head) + 4000, len(head) + 5000}
    assert site.get("/v1/models/Eight").json()["downloaded"] is True
    assert site.chat("Eight").status == 200
    # The options are there again when the model is.
    pull(site, "Four", "o/shared:Q4_K_M", mmproj="mmproj-F16.gguf")
    assert site.get("/v1/models/Four/options").json()["saved"] == {"ctx_size": 1024}
    for name in ("Four", "Eight"):
        assert site.post("/v1/delete", {"model_name": name}).status == 200
    assert not (site.folder / "hub" / "models--o--shared").exists()


@pytest.mark.parametrize("kind", ["definition", "files"])
def test_a_load_that_waits_for_room_finds_the_model_deleted(site: Daemon, hub: FakeHub, kind: str) -> None:
    hub.write("o/late", "m.gguf", gguf({"general.architecture": "llama"}))
    pull(site, "Late", "o/late:m.gguf")
    hub.write("o/busy", "m.gguf", gguf({"general.architecture": "llama"}))
    pull(site, "Busy", "o/busy:m.gguf")
    assert site.chat("Busy").status == 200
    stream = Stream(site, {"model": "Busy", "fake": {"tokens": 500, "interval": 0.02}})
    stream.take(1)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(site.chat, "Late")
        wait_for(lambda: "evicting" in {entry["status"] for entry in site.loaded()}, 10)
        if kind == "definition":
            assert site.post("/v1/delete", {"model": "Late"}).status == 200
        else:
            shutil.rmtree(site.folder / "hub" / "models--o--late")
        stream.hang_up()
        answer = waiting.result(30)
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert answer.error["message"] == "'Late' was deleted while it was being loaded."
    assert [entry["model_name"] for entry in site.loaded()] == []


def test_what_another_daemon_or_program_deletes_is_noticed(site: Daemon, hub: FakeHub) -> None:
    for name in ("One", "Two"):
        hub.write(f"o/{name}", "m-Q4_K_M.gguf", gguf({}) + name.encode() * 1000)
        pull(site, name, f"o/{name}:Q4_K_M")
    # The same folders, another process.
    with Daemon(site.folder, env=site.env) as other:

        def shown(daemon: Daemon) -> set[str]:
            return {row["id"] for row in daemon.get("/v1/models").json()["data"]} & {"One", "Two"}

        assert shown(other) == shown(site) == {"One", "Two"}
        assert other.post("/v1/delete", {"model": "One"}).status == 200
        wait_for(lambda: shown(site) == {"Two"}, 5)
        shutil.rmtree(site.folder / "hub" / "models--o--Two")
        wait_for(lambda: shown(site) == shown(other) == set(), 5)
        assert site.get("/v1/models/Two").json()["downloaded"] is False


def test_a_built_in_model_stays_known(site: Daemon) -> None:
    for _ in range(2):
        assert site.post("/v1/delete", {"model_name": "Qwen3-0.6B-GGUF"}).status == 200
    assert site.get("/v1/models/Qwen3-0.6B-GGUF").json()["downloaded"] is False


def test_a_model_that_cannot_run_here(site: Daemon) -> None:
    name = next(
        name
        for name in ("Qwen3-4B-Hybrid", "SmolLM-135M-Instruct-Hybrid")
        if site.get(f"/v1/models/{name}").status == 404
    )
    assert site.get(f"/v1/models/{name}").error["code"] == "model_not_supported"
    assert site.post("/v1/delete", {"model_name": name}).status == 200


def test_collections_and_aliases(site: Daemon) -> None:
    kit = {"model_name": "user.Kit", "recipe": "collection.omni", "components": ["Qwen3-0.6B-GGUF"]}
    assert site.post("/v1/models/register", kit).status == 200
    site.post("/internal/aliases", {"alias": "nick", "target": "user.Kit"})
    assert site.post("/v1/delete", {"model_name": "nick"}).status == 200
    assert site.get("/v1/models/user.Kit").status == 404
    assert site.get("/v1/models/Qwen3-0.6B-GGUF").status == 200


def test_a_file_in_the_users_folder(site: Daemon) -> None:
    site.add_model("mine")
    wait_for(lambda: site.get("/v1/models/mine").status == 200)
    assert site.post("/v1/delete", {"model_name": "mine"}).status == 400
    assert (site.models / "mine.gguf").exists()


def test_a_local_path_keeps_its_file(site: Daemon, tmp_path: Path) -> None:
    file = tmp_path / "own.gguf"
    file.write_bytes(gguf({}))
    pull(site, "Own", str(file))
    assert site.post("/v1/delete", {"model_name": "user.Own"}).status == 200
    assert file.exists() and site.get("/v1/models/Own").status == 404


def test_a_running_download(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/slow", "m-Q4_K_M.gguf", gguf({}) + b"x" * 1_000_000)
    hub.set(rate=100_000)
    body = {"model_name": "user.Slow", "recipe": "llamacpp", "checkpoint": "o/slow:Q4_K_M"}
    site.post("/v1/pull", {**body, "stream": True, "subscribe": False})
    wait_for(lambda: any(each["bytes_downloaded"] for each in site.get("/v1/downloads").json()))
    assert site.post("/v1/delete", {"model_name": "user.Slow"}).status == 200
    assert not (site.folder / "hub" / "models--o--slow").exists()
    assert "model:user.Slow" not in [each["id"] for each in site.get("/v1/downloads").json()]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_argument"),
        ({"model_name": 5}, 400, "invalid_argument"),
        (b"{bad", 400, "invalid_json"),
        ({"model_name": "nobody"}, 422, "model_not_found"),
    ],
)
def test_what_is_refused(site: Daemon, body: Any, status: int, code: str) -> None:
    answer = site.post("/v1/delete", body)
    assert (answer.status, answer.error["code"]) == (status, code)
