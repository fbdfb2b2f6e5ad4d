from __future__ import annotations

import pytest

from tests.daemon import Daemon, gguf, wait_for
from tests.hub.fake_hub import FakeHub


def listed(daemon: Daemon, name: str, query: str = "") -> list[tuple[str, str, int, bool]]:
    answer = daemon.get(f"/v1/models/{name}/files{query}").json()
    return [(each["name"], each["role"], each["size_bytes"], each["exists"]) for each in answer["files"]]


def test_a_file_of_the_users_own(site: Daemon) -> None:
    name = site.add_model("mine")
    wait_for(lambda: site.get("/v1/models/mine").status == 200)
    size = (site.models / "mine.gguf").stat().st_size
    plain = site.get(f"/v1/models/{name}/files").json()
    expected = {"name": "mine.gguf", "role": "main", "size_bytes": size, "exists": True}
    assert plain == {"model_id": "mine", "files": [expected]}
    with_paths = site.get(f"/v1/models/extra.{name}/files?include_paths=true").json()
    assert with_paths == {"model_id": "mine", "files": [{**expected, "path": str(site.models / "mine.gguf")}]}


def test_what_is_not_here(site: Daemon) -> None:
    assert listed(site, "Qwen3-0.6B-GGUF") == [("models--unsloth--Qwen3-0.6B-GGUF", "main", 0, False)]


def test_shards_and_a_projector(site: Daemon, hub: FakeHub) -> None:
    shards = [f"Q4_K_M/big-Q4_K_M-0000{number}-of-00002.gguf" for number in (1, 2)]
    for number, shard in enumerate(shards):
        hub.write("o/sharded", shard, gguf({}) + b"x" * (2000 + number))
    hub.write("o/sharded", "mmproj-F16.gguf", gguf({}) + b"p" * 3000)
    checkpoints = {"main": "o/sharded:Q4_K_M", "mmproj": "o/sharded:mmproj-F16.gguf"}
    body = {"model_name": "user.Sharded", "recipe": "llamacpp", "checkpoints": checkpoints, "vision": True}
    assert site.post("/v1/pull", body).json()["status"] == "success"
    head = len(gguf({}))
    assert listed(site, "Sharded") == [
        ("big-Q4_K_M-00001-of-00002.gguf", "main", head + 2000, True),
        ("big-Q4_K_M-00002-of-00002.gguf", "main", head + 2001, True),
        ("mmproj-F16.gguf", "mmproj", head + 3000, True),
    ]
    assert "vision" in site.get("/v1/models/Sharded").json()["labels"]


def test_a_folder_is_summed(site: Daemon, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("voice")
    (folder / "deep").mkdir()
    (folder / "index.json").write_bytes(b"12345")
    (folder / "deep" / "voice.bin").write_bytes(b"1234567")
    definition = {"model_name": "user.Voice", "recipe": "trellis", "checkpoint": str(folder), "source": "local_path"}
    site.post("/internal/set", {"disable_model_filtering": True})
    try:
        assert site.post("/v1/models/register", definition).status == 200
        assert listed(site, "Voice") == [(folder.name, "main", 12, True)]
    finally:
        site.post("/internal/set", {"disable_model_filtering": False})


def test_an_alias_is_refused(site: Daemon) -> None:
    site.post("/internal/aliases", {"alias": "nick", "target": "Qwen3-0.6B-GGUF"})
    answer = site.get("/v1/models/nick/files")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert "Qwen3-0.6B-GGUF" in answer.error["message"]


def test_unknown_models(site: Daemon) -> None:
    answer = site.get("/v1/models/nobody/files")
    assert (answer.status, answer.error["code"]) == (404, "model_not_found")
    assert site.post("/v1/models/Qwen3-0.6B-GGUF/files", {}).status == 405
