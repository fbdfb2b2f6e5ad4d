"""Collections that a repository describes: downloaded with their models when they are first asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.app.omni import ask, ask_streaming, call, content, media, studio
from tests.daemon import Daemon, gguf
from tests.hub.fake_hub import FakeHub, running
from tests.stream import text_of

NAME = "LMX-Omni-5.5B-Lite"
PICTURE = [call("generate_image", prompt="an apple", size="32x32")]
DONE = {"text": "There it is."}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[FakeHub]:
    with running(tmp_path / "repositories") as one:
        one.write("o/plan", "m-Q4_K_M.gguf", gguf({"general.architecture": "llama"}) + bytes(3000))
        one.write("o/paint", "paint.safetensors", bytes(3000))
        models = [
            {"model_name": "Plan", "recipe": "llamacpp", "checkpoint": "o/plan:Q4_K_M", "labels": ["chat"]},
            {"model_name": "Paint", "recipe": "sd-cpp", "checkpoint": "o/paint:paint.safetensors", "labels": ["image"]},
        ]
        manifest = {"recipe": "collection.omni", "components": ["Plan", "Paint"], "models": models}
        one.write(f"lemonade-sdk/{NAME}", f"{NAME}.json", json.dumps(manifest | {"system_prompt": "Be kind."}).encode())
        yield one


@pytest.fixture
def daemon(tmp_path: Path, hub: FakeHub) -> Iterator[Daemon]:
    env = {"HF_ENDPOINT": hub.url, "NO_PROXY": "127.0.0.1,localhost"}
    with studio(tmp_path / "studio", env=env) as one:
        yield one


def test_a_collection_of_the_catalog_comes_with_its_first_chat(daemon: Daemon) -> None:
    shown = daemon.get(f"/v1/models/{NAME}").json()
    assert (shown["downloaded"], shown["components"], shown["models"]) == (False, [], [])
    assert len(media(content(ask(daemon, PICTURE, DONE, model=NAME)))) == 1
    system, user = daemon.seen("Plan")["requests"][0]["body"]["messages"]
    assert (system["content"], user["role"]) == ("Be kind.", "user")
    shown = daemon.get(f"/v1/models/{NAME}").json()
    assert (shown["downloaded"], shown["components"]) == (True, ["Plan", "Paint"])
    assert [model["id"] for model in shown["models"]] == ["Plan", "Paint"]
    assert NAME in [row["id"] for row in daemon.get("/v1/models").json()["data"]]


def test_a_stream_waits_for_the_download(daemon: Daemon, hub: FakeHub) -> None:
    hub.set(rate=2000)
    stream = ask_streaming(daemon, PICTURE, DONE, model=NAME)
    assert len(media(text_of(stream.rest()))) == 1
    assert stream.comments >= 1


def test_a_hub_that_has_nothing(daemon: Daemon, hub: FakeHub) -> None:
    hub.set(listing_status=404, listing_times=-1)
    for stream in (False, True):
        answer = ask(daemon, DONE, model=NAME, stream=stream)
        assert (answer.status, answer.error["code"]) == (404, "repository_not_found")
    assert daemon.post("/internal/set", {"offline": True}).status == 200
    answer = ask(daemon, DONE, model=NAME)
    assert (answer.status, answer.error["code"]) == (400, "lemond_offline")


def test_an_export_is_a_whole_collection_elsewhere(daemon: Daemon, tmp_path: Path, hub: FakeHub) -> None:
    assert daemon.post("/v1/pull", {"model_name": NAME}).status == 200
    exported = daemon.get(f"/v1/models/{NAME}").json()
    (tmp_path / "other").mkdir()
    with studio(tmp_path / "other" / "studio", env=daemon.env) as other:
        named = ("recipe", "components", "models", "system_prompt")
        body = {"model_name": "user.Mine", **{key: exported[key] for key in named}}
        assert other.post("/v1/pull", body).status == 200
        assert len(media(content(ask(other, PICTURE, DONE, model="Mine")))) == 1
        again = other.get("/v1/models/user.Mine").json()
        assert {key: again[key] for key in ("components", "system_prompt")} == {
            key: exported[key] for key in ("components", "system_prompt")
        }
