from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, wait_for

MODEL = "Qwen3-4B-GGUF"
OPTIONS = f"/v1/models/{MODEL}/options"

#: The specification's example of a model that is not downloaded; the backend is the one that this machine has.
DEFAULTS = {
    "auto_evict": None,
    "auto_update": None,
    "ctx_size": -1,
    "downsize_idle_timeout": 60,
    "evict_idle_timeout": 300,
    "evict_weight_factor": 1.0,
    "llamacpp_args": "--parallel 1",
    "llamacpp_backend": "system",
    "llamacpp_device": "",
    "merge_args": True,
    "model_name": MODEL,
}


@pytest.fixture(autouse=True)
def forget(daemon: Daemon) -> None:
    assert daemon.ask("DELETE", OPTIONS).status == 200


def test_the_answer_is_the_specifications(daemon: Daemon) -> None:
    shown = daemon.get(OPTIONS).json()
    size = shown.pop("resolved_ctx_size")
    assert isinstance(size, int) and size > 0
    # Byte for byte, the order of keys included.
    expected = {"model_name": MODEL, "recipe": "llamacpp", "saved": {}, "effective": DEFAULTS, "defaults": DEFAULTS}
    assert json.dumps(shown) == json.dumps(expected)


def test_an_architecture_brings_its_arguments(daemon: Daemon) -> None:
    daemon.add_model("arch", **{"general.architecture": "qwen3"})
    wait_for(lambda: daemon.get("/v1/models/arch").status == 200)
    effective = daemon.get("/v1/models/arch/options").json()["effective"]
    arguments = "--temp 0.6 --top-p 0.85 --top-k 20 --min-p 0.0 --repeat-penalty 1.0 --parallel 1"
    assert effective["llamacpp_args"] == arguments


def test_saving_and_erasing(daemon: Daemon) -> None:
    saved = daemon.post(OPTIONS, {"ctx_size": 8192}).json()
    assert saved["saved"] == {"ctx_size": 8192}
    assert saved["effective"] == {**DEFAULTS, "ctx_size": 8192}
    assert saved["defaults"] == DEFAULTS
    assert saved["resolved_ctx_size"] == 8192
    file = daemon.folder / "config" / "recipe_options.json"
    assert json.loads(file.read_text()) == {f"builtin.{MODEL}": {"ctx_size": 8192}}
    assert daemon.get(OPTIONS).json() == saved
    assert daemon.post(OPTIONS, {"llamacpp_args": "--no-mmap"}).json()["saved"] == {
        "ctx_size": 8192,
        "llamacpp_args": "--no-mmap",
    }
    gone = daemon.ask("DELETE", OPTIONS).json()
    assert (gone["saved"], gone["effective"]) == ({}, DEFAULTS)
    assert json.loads(file.read_text()) == {}


def test_a_dry_run_saves_nothing(daemon: Daemon) -> None:
    daemon.post(OPTIONS, {"llamacpp_args": "--no-mmap"})
    shown = daemon.post(OPTIONS, {"dry_run": True, "ctx_size": 4096}).json()
    assert shown["saved"] == {"llamacpp_args": "--no-mmap"}
    assert shown["effective"]["ctx_size"] == shown["resolved_ctx_size"] == 4096
    assert daemon.get(OPTIONS).json()["effective"]["ctx_size"] == -1


@pytest.mark.parametrize("cleared", [None, "", "auto", -1])
def test_what_clears_an_option(daemon: Daemon, cleared: object) -> None:
    daemon.post(OPTIONS, {"llamacpp_args": "--no-mmap"})
    assert daemon.post(OPTIONS, {"llamacpp_args": cleared}).json()["saved"] == {}


def test_an_automatic_context_can_be_saved(daemon: Daemon) -> None:
    assert daemon.post(OPTIONS, {"ctx_size": -1}).json()["saved"] == {"ctx_size": -1}
    assert daemon.post(OPTIONS, {"ctx_size": None}).json()["saved"] == {}


def test_effective_can_be_sent_back(daemon: Daemon) -> None:
    before = daemon.get(OPTIONS).json()
    after = daemon.post(OPTIONS, before["effective"]).json()
    assert after["effective"] == before["effective"]


@pytest.mark.parametrize(
    ("body", "code", "param"),
    [
        (b"{bad", "invalid_json", None),
        (b"", "invalid_json", None),
        (b"[1]", "invalid_json", None),
        (b"null", "invalid_json", None),
        ({"ctx_size": "8192"}, "invalid_argument", "ctx_size"),
        ({"dry_run": "yes"}, "invalid_argument", "dry_run"),
        ({"model_name": 5}, "invalid_argument", "model_name"),
        ({"nope": 1}, None, "nope"),
        ({"whispercpp_args": "--convert"}, None, "whispercpp_args"),
        ({"pinned": True}, None, "pinned"),
        ({"llamacpp_args": 5}, None, "llamacpp_args"),
        ({"merge_args": "yes"}, None, "merge_args"),
        ({"ctx_size": 0}, None, "ctx_size"),
        ({"ctx_size": 1.5}, None, "ctx_size"),
        ({"ctx_size": -2}, None, "ctx_size"),
        ({"ctx_size": 2**31}, None, "ctx_size"),
        ({"ctx_size": 2**64 - 1}, None, "ctx_size"),
        ({"evict_idle_timeout": 1.5}, None, "evict_idle_timeout"),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_what_is_refused_saves_nothing(
    daemon: Daemon, body: Any, code: str | None, param: str | None, dry_run: bool
) -> None:
    if isinstance(body, dict):
        body = {"llamacpp_device": "x", "dry_run": dry_run, **body}
    answer = daemon.post(OPTIONS, body)
    assert answer.status == 400
    assert answer.error.get("code") == code
    assert answer.error.get("param") == param
    assert daemon.get(OPTIONS).json()["saved"] == {}


@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_names(daemon: Daemon, method: str) -> None:
    daemon.post("/internal/aliases", {"alias": "nick", "target": MODEL})
    for name in ("nick", f"{MODEL}:latest", f"builtin.{MODEL}"):
        answer = daemon.ask(method, f"/v1/models/{name}/options", {} if method == "POST" else None)
        assert answer.status == 200
        assert answer.json()["model_name"] == answer.json()["effective"]["model_name"] == name
    unknown = daemon.ask(method, "/v1/models/nobody/options", {} if method == "POST" else None)
    assert (unknown.status, unknown.error["code"]) == (404, "model_not_found")
    assert unknown.error["requested_model"] == "nobody"


def test_a_file_that_cannot_be_written(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon()
    (one.folder / "config" / "recipe_options.json").write_text("{ no json")
    with one:
        answer = one.post(OPTIONS, {"ctx_size": 8192})
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert "recipe_options.json" in answer.error["message"]
        assert one.get("/v1/health").status == 200
    assert (one.folder / "config" / "recipe_options.json").read_text() == "{ no json"
