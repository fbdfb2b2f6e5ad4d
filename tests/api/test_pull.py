from __future__ import annotations

import http.client
import json
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.api.conftest import TOKEN, environment
from tests.daemon import Answer, Daemon, gguf, wait_for
from tests.hub.fake_hub import FakeHub


def weights(seed: str, size: int = 3000) -> bytes:
    return gguf({"general.architecture": "llama"}) + (seed.encode() * size)[:size]


def own(name: str, checkpoint: str, **more: Any) -> dict[str, Any]:
    return {"model_name": f"user.{name}", "recipe": "llamacpp", "checkpoint": checkpoint, **more}


def stream(answer: Answer) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for block in answer.body.decode().strip().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((lines["event"], json.loads(lines["data"])))
    return found


def test_a_model_of_ones_own(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/plain", "m-Q4_K_M.gguf", weights("a"))
    answer = site.post("/v1/pull", own("Plain", "o/plain:Q4_K_M"))
    assert answer.json() == {"status": "success", "message": "Installed model: user.Plain", "model_name": "user.Plain"}
    model = site.get("/v1/models/Plain").json()
    assert (model["downloaded"], model["checkpoint_status"][0]["present"]) == (True, True)
    assert site.chat("Plain").status == 200


def test_the_same_again_changes_nothing(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/again", "m-Q4_K_M.gguf", weights("a"))
    assert site.post("/v1/pull", own("Again", "o/again:Q4_K_M")).status == 200
    blob = next((site.folder / "hub" / "models--o--again" / "blobs").iterdir())
    before, sent = blob.stat().st_mtime_ns, hub.sent()
    assert site.post("/v1/pull", own("Again", "o/again:Q4_K_M")).status == 200
    assert (blob.stat().st_mtime_ns, hub.sent()) == (before, sent)
    other = site.post("/v1/pull", own("Again", "o/again:Q8_0"))
    assert (other.status, other.error["param"]) == (400, "model_name")
    assert "checkpoints" in other.error["message"]


def test_progress(site: Daemon, hub: FakeHub) -> None:
    files = {f"m-Q4_K_M-0000{number}-of-00002.gguf": weights(str(number)) for number in (1, 2)}
    for name, content in files.items():
        hub.write("o/progress", name, content)
    answer = site.post("/v1/pull", {**own("Progress", "o/progress:Q4_K_M"), "stream": True})
    assert answer.headers["content-type"] == "text/event-stream"
    seen = stream(answer)
    assert [name for name, _ in seen[:-1]] == ["progress"] * (len(seen) - 1)
    name, last = seen[-1]
    total = sum(map(len, files.values()))
    assert name == "complete"
    assert last["file"] == "" and last["percent"] == 100 and last["file_index"] == last["total_files"] == 2
    assert last["total_download_size"] == last["cumulative_bytes_downloaded"] == total
    assert set(files) <= {data["file"] for _, data in seen}
    counts = [data["cumulative_bytes_downloaded"] for _, data in seen]
    assert counts == sorted(counts)


def test_a_job_instead_of_the_progress(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/job", "m-Q4_K_M.gguf", weights("a"))
    job = site.post("/v1/pull", {**own("Job", "o/job:Q4_K_M"), "stream": True, "subscribe": False}).json()
    assert (job["id"], job["type"], job["model_name"]) == ("model:user.Job", "model", "user.Job")
    wait_for(lambda: next(each for each in site.get("/v1/downloads").json() if each["id"] == job["id"])["complete"])
    # The listing knows at once, with nobody waiting for the download.
    assert site.get("/v1/models/Job").json()["downloaded"] is True


def test_roles_and_flags(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/seeing", "m-Q4_K_M.gguf", weights("a"))
    hub.write("o/seeing", "mmproj-F16.gguf", weights("p"))
    answer = site.post("/v1/pull", own("Seeing", "o/seeing:Q4_K_M", mmproj="mmproj-F16.gguf", vision=True))
    assert answer.status == 200
    model = site.get("/v1/models/Seeing").json()
    assert model["checkpoints"] == {"main": "o/seeing:Q4_K_M", "mmproj": "o/seeing:mmproj-F16.gguf"}
    assert [each["present"] for each in model["checkpoint_status"]] == [True, True]
    assert "vision" in model["labels"]


def test_options_in_the_body_are_saved(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/opts", "m-Q4_K_M.gguf", weights("a"))
    body = own("Opts", "o/opts:Q4_K_M", recipe_options={"ctx_size": 1024})
    assert site.post("/v1/pull", body).status == 200
    assert site.get("/v1/models/Opts/options").json()["saved"] == {"ctx_size": 1024}
    named = {"model_name": "Opts", "recipe_options": {"llamacpp_args": "--no-mmap"}, "do_not_upgrade": True}
    assert site.post("/v1/pull", named).status == 200
    assert site.get("/v1/models/Opts/options").json()["saved"] == {"ctx_size": 1024, "llamacpp_args": "--no-mmap"}


def test_do_not_upgrade_asks_nobody(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/quiet", "m-Q4_K_M.gguf", weights("a"))
    assert site.post("/v1/pull", own("Quiet", "o/quiet:Q4_K_M")).status == 200
    calls = hub.calls()
    assert site.post("/v1/pull", {"model_name": "Quiet", "do_not_upgrade": True}).status == 200
    assert hub.calls() == calls


@pytest.mark.parametrize("key", ["model", "model_name"])
@pytest.mark.parametrize("streamed", [False, True])
def test_unknown_names(site: Daemon, key: str, streamed: bool) -> None:
    for name in ("does-not-exist", "user.does-not-exist"):
        answer = site.post("/v1/pull", {key: name, "stream": streamed})
        assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "unknown_model", "model")
        assert "checkpoint" in answer.error["message"]


def test_reserved_names(site: Daemon) -> None:
    site.add_model("mine")
    wait_for(lambda: site.get("/v1/models/mine").status == 200)
    for name in ("extra.mine", "extra.nobody", "builtin.nobody", "user.extra.nobody"):
        assert site.post("/v1/pull", {"model_name": name}).status == 400


def test_a_name_is_needed(site: Daemon) -> None:
    answer = site.post("/v1/pull", {})
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "missing_argument", "model")
    assert site.post("/v1/pull", {"model_name": 5}).error["code"] == "invalid_argument"


def test_import_of_what_lies_in_the_cache(site: Daemon) -> None:
    folder = site.folder / "hub" / "models--Mine"
    folder.mkdir()
    (folder / "mine.gguf").write_bytes(weights("a"))
    body = {"model_name": "user.Mine", "recipe": "llamacpp", "local_import": True, "embedding": True}
    message = "Model imported and registered successfully"
    assert site.post("/v1/pull", body).json() == {"status": "success", "model_name": "user.Mine", "message": message}
    model = site.get("/v1/models/Mine").json()
    assert (model["downloaded"], model["source"]) == (True, "local_upload")
    assert model["checkpoint"] == "models--Mine/mine.gguf"
    assert model["labels"] == ["custom", "embeddings"]
    absent = site.post("/v1/pull", {**body, "model_name": "user.Absent"})
    assert (absent.status, absent.error["param"]) == (400, "local_import")
    assert "models--Absent" in absent.error["message"]


# Collections


def test_a_collection_with_its_models(site: Daemon, hub: FakeHub) -> None:
    for name in ("one", "two"):
        hub.write(f"o/{name}", "m-Q4_K_M.gguf", weights(name))
    models = [
        {"id": "One", "recipe": "llamacpp", "checkpoint": "o/one:Q4_K_M", "labels": ["chat", "custom"], "size": 1},
        {"model_name": "user.Two", "recipe": "llamacpp", "checkpoints": {"main": "o/two:Q4_K_M"}},
    ]
    body = {"model_name": "user.Pair", "recipe": "collection.omni", "components": ["One", "Two"], "models": models}
    seen = stream(site.post("/v1/pull", {**body, "stream": True}))
    assert [name for name, _ in seen].count("complete") == 1
    assert seen[-1][1]["total_files"] == 2
    pair = site.get("/v1/models/user.Pair").json()
    assert (pair["downloaded"], pair["components"]) == (True, ["One", "Two"])
    # An export can be imported again, also where everything is here.
    exported = {**pair, "model_name": "user.Copy"}
    assert site.post("/v1/pull", {**exported, "checkpoint": None, "checkpoints": None}).status == 200
    assert site.post("/v1/load", {"model_name": "user.Pair"}).json()["recipe"] == "collection.omni"
    assert "One" in [each["model_name"] for each in site.loaded()] or "Two" in str(site.loaded())


@pytest.mark.parametrize(
    "models",
    [
        [{"id": "Good", "recipe": "llamacpp", "checkpoint": "o/good:Q4_0"}],
        [{"id": "Good", "recipe": "llamacpp", "checkpoint": "o/good:Q4_0"}, {"id": "Lost", "recipe": "llamacpp"}],
        [
            {"id": "Good", "recipe": "llamacpp", "checkpoint": "o/good:Q4_0"},
            {"id": "Lost", "recipe": "llamacpp", "checkpoint": "o/lost:Q4_0", "labels": ["chat", "embeddings"]},
        ],
    ],
)
def test_a_collection_is_registered_whole_or_not_at_all(site: Daemon, models: list[Any]) -> None:
    body = {"model_name": "user.Half", "recipe": "collection.omni", "components": ["Good", "Lost"], "models": models}
    assert site.post("/v1/pull", body).status == 400
    shown = [row["id"] for row in site.get("/v1/models?show_all=true").json()["data"]]
    assert not {"Good", "Lost", "user.Half"} & set(shown)


def test_a_collection_that_a_repository_describes(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/part", "m-Q4_K_M.gguf", weights("part"))
    part = {"model_name": "Part", "recipe": "llamacpp", "checkpoint": "o/part:Q4_K_M"}
    manifest = {"recipe": "collection.omni", "components": ["Part"], "models": [part], "system_prompt": "Be kind."}
    hub.write("o/Kit", "Kit.json", json.dumps(manifest).encode())
    offered = site.get("/v1/pull/variants?checkpoint=o/Kit").json()
    assert (offered["repo_kind"], offered["component_count"], offered["variants"]) == ("collection", 1, [])
    body = {"model_name": "user.Kit", "recipe": "collection.omni", "checkpoint": "o/Kit"}
    assert site.post("/v1/pull", body).status == 200
    kit = site.get("/v1/models/user.Kit").json()
    assert (kit["downloaded"], kit["components"], kit["system_prompt"]) == (True, ["Part"], "Be kind.")


# Hubs that refuse


def test_a_repository_that_there_is_not(site: Daemon, hub: FakeHub) -> None:
    answer = site.post("/v1/pull", own("Nowhere", "o/nowhere:Q4_K_M"))
    assert (answer.status, answer.error["code"]) == (404, "repository_not_found")
    assert answer.headers["x-should-retry"] == "false"
    # What the failed pull has left behind is said, once.
    assert answer.error["message"].endswith(
        "'user.Nowhere' stays defined: pull it by its name to try again, or delete it."
    )
    assert "stays defined" not in site.post("/v1/pull", {"model_name": "Nowhere"}).error["message"]
    streamed = stream(site.post("/v1/pull", {**own("Nowhere2", "o/nowhere:Q4_K_M"), "stream": True}))[-1]
    assert "'user.Nowhere2' stays defined" in streamed[1]["error"]


def test_a_gated_repository(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/gated", "m-Q4_K_M.gguf", weights("a"))
    hub.set(gated=True)
    answer = site.post("/v1/pull", own("Gated", "o/gated:Q4_K_M"))
    assert (answer.status, answer.error["code"]) == (403, "repository_gated")
    streamed = stream(site.post("/v1/pull", {"model_name": "Gated", "stream": True}))[-1]
    assert (streamed[0], streamed[1]["code"]) == ("error", "repository_gated")


def test_a_private_repository(site: Daemon, hub: FakeHub, make_daemon: Callable[..., Daemon]) -> None:
    hub.write("o/private", "m-Q4_K_M.gguf", weights("a"))
    hub.set(token=TOKEN, redirects=1)
    assert site.post("/v1/pull", own("Private", "o/private:Q4_K_M")).status == 200
    storage = [each for each in hub.seen if each.server == "storage" and "o/private" in each.path]
    assert storage and TOKEN not in str([each.headers for each in storage])
    with make_daemon(env={**environment(hub), "HF_TOKEN": ""}) as stranger:
        answer = stranger.post("/v1/pull", own("Private", "o/private:Q4_K_M"))
        assert (answer.status, answer.error["code"]) == (404, "repository_not_found")
        assert "HF_TOKEN" in answer.error["message"]
    assert TOKEN not in site.log


def test_a_hub_that_is_out_of_reach(hub: FakeHub, make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon(env={**environment(hub), "HF_ENDPOINT": "http://127.0.0.1:9"}) as lonely:
        answer = lonely.post("/v1/pull", {"model_name": "Qwen3-0.6B-GGUF"})
        assert (answer.status, answer.error["code"]) == (502, "registry_unreachable")
        assert lonely.get("/v1/registry/search?query=qwen").error["code"] == "registry_unreachable"
        assert lonely.get("/v1/pull/variants?checkpoint=o/n").error["code"] == "registry_unreachable"


def test_offline(make_daemon: Callable[..., Daemon], hub: FakeHub) -> None:
    calls = hub.calls()
    with make_daemon(env=environment(hub), config={"offline": True}) as off:
        for streamed in (False, True):
            answer = off.post("/v1/pull", {"model_name": "Qwen3-0.6B-GGUF", "stream": streamed})
            assert (answer.status, answer.error["code"]) == (400, "lemond_offline")
        assert off.get("/v1/pull/variants?checkpoint=o/n").error["code"] == "lemond_offline"
        assert off.get("/v1/registry/search?query=qwen").error["code"] == "lemond_offline"
        assert off.post("/v1/models/check-updates").status == 409
    assert hub.calls() == calls


# ModelScope


def test_a_model_of_modelscope(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/scope", "m-Q4_K_M.gguf", weights("scope"))
    assert site.post("/v1/pull", own("Scope", "o/scope:Q4_K_M", source="modelscope")).status == 200
    model = site.get("/v1/models/Scope?include_paths=true").json()
    assert (model["downloaded"], model["registry_source"]) == (True, "modelscope")
    path = model["checkpoint_status"][0]["path"]
    assert "/modelscope--models--o--scope/snapshots/modelscope-master-" in path
    assert site.chat("Scope").status == 200


# Interruptions


def test_the_client_leaves_and_comes_back(site: Daemon, hub: FakeHub) -> None:
    hub.write("o/left", "m-Q4_K_M.gguf", weights("a", 1_000_000))
    hub.set(rate=500_000)
    body = {**own("Left", "o/left:Q4_K_M"), "stream": True}
    connection = http.client.HTTPConnection("127.0.0.1", site.port)
    connection.request("POST", "/v1/pull", json.dumps(body), {"Content-Type": "application/json"})
    assert connection.getresponse().readline().startswith(b"event: progress")
    connection.close()
    # Who asks again, twice, joins the same download.
    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(lambda _: site.post("/v1/pull", body), range(2)))
    assert [stream(answer)[-1][0] for answer in answers] == ["complete", "complete"]
    assert sum(each.server == "storage" and "o/left" in each.path for each in hub.seen) == 1


def test_a_kill_in_the_middle(hub: FakeHub, make_daemon: Callable[..., Daemon]) -> None:
    content = weights("a", 1_000_000)
    hub.write("o/killed", "m-Q4_K_M.gguf", content)
    hub.set(rate=500_000)
    one = make_daemon(env=environment(hub)).start()
    one.post("/v1/pull", {**own("Killed", "o/killed:Q4_K_M"), "stream": True, "subscribe": False})
    wait_for(lambda: one.get("/v1/downloads").json()[0]["bytes_downloaded"] > 100_000)
    one.stop(signal.SIGKILL)
    with one:
        model = one.get("/v1/models/Killed").json()
        assert (model["downloaded"], model["checkpoint_status"][0]["present"]) == (False, False)
        assert one.get("/v1/downloads").json() == []
        hub.set()
        sent = hub.sent()
        # A chat is enough: what is missing is fetched, from where it stopped.
        assert one.chat("Killed").status == 200
        assert hub.sent() - sent < len(content)
