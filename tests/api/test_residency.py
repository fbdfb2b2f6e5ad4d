from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, wait_for


@pytest.fixture(autouse=True)
def nothing_loaded(daemon: Daemon) -> Iterator[None]:
    yield
    assert daemon.post("/v1/unload").status == 200
    assert not daemon.loaded()


def names(daemon: Daemon) -> list[str]:
    return [one["model_name"] for one in daemon.loaded()]


def test_load_says_what_it_did(daemon: Daemon) -> None:
    answer = daemon.post("/v1/load", {"model_name": "a", "ctx_size": 2048, "unknown_option": 1})
    assert answer.status == 200
    body = answer.json()
    assert body["status"] == "success"
    assert (body["model_name"], body["recipe"]) == ("a", "llamacpp")
    assert body["checkpoint"].endswith("a.gguf")
    entry = daemon.loaded()[0]
    assert entry["recipe_options"]["ctx_size"] == 2048
    assert entry["status"] == "ready"
    assert entry["slot_pool"] == "standard/llm"
    assert daemon.get("/v1/health").json()["model_loaded"] == "a"
    assert daemon.get("/v1/models/a").json()["context_length"] == 2048


def test_the_same_load_again_keeps_the_process_and_another_one_replaces_it(daemon: Daemon) -> None:
    def load(**options: Any) -> int:
        assert daemon.post("/v1/load", {"model_name": "a", **options}).status == 200
        pid: int = daemon.loaded()[0]["pid"]
        return pid

    first = load(ctx_size=2048)
    assert load(ctx_size=2048) == first
    assert load(ctx_size=4096) != first


def test_ctx_size_counts_in_the_request_that_loads(daemon: Daemon) -> None:
    daemon.chat("a", ctx_size=1024)
    assert daemon.loaded()[0]["recipe_options"]["ctx_size"] == 1024
    daemon.chat("a", ctx_size=2048)
    assert daemon.loaded()[0]["recipe_options"]["ctx_size"] == 1024


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_argument"),
        ({"model_name": 5}, 400, "invalid_argument"),
        ({"model_name": None}, 400, "invalid_argument"),
        ({"model": "a"}, 400, "missing_argument"),
        ({"model_name": "nope"}, 404, "model_not_found"),
        ({"model_name": "a", "ctx_size": "8192"}, 400, "invalid_argument"),
        ({"model_name": "a", "ctx_size": -2}, 400, "invalid_argument"),
        ({"model_name": "a", "llamacpp_args": 5}, 400, "invalid_argument"),
        ({"model_name": "a", "pinned": "yes"}, 400, "invalid_argument"),
    ],
)
def test_loads_that_cannot_be(daemon: Daemon, body: dict[str, Any], status: int, code: str) -> None:
    answer = daemon.post("/v1/load", body)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert not daemon.loaded()


def test_reserved_arguments_are_named(daemon: Daemon) -> None:
    answer = daemon.post("/v1/load", {"model_name": "a", "llamacpp_args": "--port 1234"})
    assert 400 <= answer.status <= 500
    assert "--port" in answer.error["message"]
    assert not daemon.loaded()


def test_unload(daemon: Daemon) -> None:
    daemon.post("/v1/load", {"model_name": "a"})
    assert daemon.post("/v1/unload", {"model_name": "b"}).error["code"] == "model_not_loaded"
    answer = daemon.post("/v1/unload", {"model": "a"})
    assert answer.json() == {"status": "success", "message": "Model unloaded successfully", "model_name": "a"}
    assert daemon.post("/v1/unload", {"model_name": "a"}).status == 404
    for body in (None, b"{bad", b"[]", b"{}", b'{"model_name": null}'):
        assert daemon.post("/v1/unload", body).status == 200


def test_a_misspelled_unload_does_not_unload_everything(daemon: Daemon) -> None:
    daemon.post("/v1/load", {"model_name": "a"})
    assert daemon.post("/v1/unload", {"model_name": 5}).status == 400
    assert names(daemon) == ["a"]


def test_one_model_per_type_unless_said_otherwise(daemon: Daemon) -> None:
    daemon.chat("a")
    daemon.chat("b")
    assert names(daemon) == ["b"]


def test_a_pinned_model_is_not_evicted(daemon: Daemon) -> None:
    daemon.chat("a")
    answer = daemon.post("/internal/pin", {"model": "a", "pinned": True})
    assert answer.json() == {"status": "success", "model_name": "a", "pinned": True}
    assert daemon.get("/v1/health").json()["pinned_models"]["llm"] == 1
    refused = daemon.chat("b")
    assert (refused.status, refused.error["code"]) == (409, "slots_pinned_error")
    assert refused.error["requested_model"] == "b"
    assert daemon.post("/internal/pin", {"model_name": "a", "pinned": False}).status == 200
    assert daemon.chat("b").status == 200
    assert names(daemon) == ["b"]


@pytest.mark.parametrize(
    "body", [{}, {"model": "a"}, {"pinned": True}, {"model": "nope", "pinned": True}, {"model": "a", "pinned": 1}]
)
def test_pins_that_cannot_be(daemon: Daemon, body: dict[str, Any]) -> None:
    assert daemon.post("/internal/pin", body).status == 400


def test_a_model_whose_file_was_taken_away_is_shown_until_it_is_unloaded(daemon: Daemon) -> None:
    daemon.add_model("fleeting")
    wait_for(lambda: daemon.get("/v1/models/fleeting").status == 200)
    assert daemon.post("/v1/load", {"model_name": "fleeting"}).status == 200
    (daemon.models / "fleeting.gguf").unlink()
    wait_for(lambda: daemon.get("/v1/models/fleeting").status == 404)
    assert names(daemon) == ["extra.fleeting"]
    assert daemon.post("/v1/unload", {"model_name": "extra.fleeting"}).status == 200
    assert names(daemon) == []
