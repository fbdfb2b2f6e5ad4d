"""Options with which no model could start: refused before they are kept, and before anything is stopped for them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, wait_for

#: A token takes 1000 * 100 * 1000 * 4 bytes: of 10^6 there is no machine that holds them.
WIDE = {
    "llama.block_count": 1000,
    "llama.attention.head_count_kv": 100,
    "llama.attention.key_length": 1000,
    "llama.context_length": 4096,
}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with `calm` and `wide`, of which one at a time is loaded. `auto` means a (fake) llama-server."""
    one = Daemon(tmp_path_factory.mktemp("unstartable"))
    one.add_model("calm")
    one.add_model("wide", **WIDE)
    with one:
        wait_for(lambda: one.get("/v1/models/wide").status == 200)
        yield one


def kept(world: Daemon, name: str) -> Any:
    file = world.folder / "config" / name
    return json.loads(file.read_text()) if file.exists() else {}


@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"llamacpp_args": "--port 1"}, "llamacpp_args"),
        ({"llamacpp_args": "--api-key=x"}, "llamacpp_args"),
        ({"llamacpp_args": "--temp '1"}, "llamacpp_args"),
        ({"llamacpp_backend": "cpu", "llamacpp_args": "--bogus"}, "llamacpp_args"),
        ({"llamacpp_backend": "cpu", "llamacpp_args": "--threads many"}, "llamacpp_args"),
        ({"llamacpp_backend": "cpu", "llamacpp_device": "CUDA0"}, "llamacpp_device"),
        ({"llamacpp_backend": "imagined"}, "llamacpp_backend"),
    ],
    ids=str,
)
def test_options_are_not_kept(world: Daemon, options: dict[str, Any], param: str) -> None:
    for path, body in (
        ("/v1/models/calm/options", options),
        ("/v1/models/calm/options", {**options, "dry_run": True}),
        ("/v1/load", {"model_name": "calm", "save_options": True, **options}),
        (
            "/v1/models/register",
            {"model_name": "user.new", "recipe": "llamacpp", "checkpoint": "a/b:c.gguf", "recipe_options": options},
        ),
    ):
        answer = world.post(path, body)
        assert (answer.status, answer.error.get("param")) == (400, param), (path, answer.body)
    assert kept(world, "recipe_options.json") == kept(world, "user_models.json") == {}


def test_a_llama_server_may_know_more(world: Daemon) -> None:
    """Only the daemon's own arguments are known of one, and only the bundled engine's of that."""
    assert world.post("/v1/models/calm/options", {"llamacpp_args": "--bogus"}).status == 200
    answer = world.post("/v1/models/calm/options", {"llamacpp_backend": "cpu"})
    assert (answer.status, answer.error["param"]) == (400, "llamacpp_args")
    assert kept(world, "recipe_options.json")["extra.calm"] == {"llamacpp_args": "--bogus"}
    assert world.ask("DELETE", "/v1/models/calm/options").status == 200


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("llamacpp.args", "--port 1"),
        ("llamacpp.cpu_args", "--bogus"),
        ("whispercpp.args", "--beam-size 99"),
        ("moonshine.cpu_args", "--tcp-port 1"),
        ("sdcpp.cpu_args", "--listen-port 1"),
        ("onnxruntime.args", "--host a"),
        ("fasterwhisper.args", "--bogus"),
    ],
)
def test_settings_are_not_kept(world: Daemon, key: str, value: str) -> None:
    before = kept(world, "config.json")
    answer = world.post("/internal/set", {key: value})
    assert (answer.status, answer.error["param"]) == (400, key)
    assert value.split()[0] in answer.error["message"]
    assert kept(world, "config.json") == before


def test_arguments_come_with_the_backend_that_takes_them(world: Daemon) -> None:
    answer = world.post("/internal/set", {"llamacpp": {"args": "--rpc a:1", "backend": "cpu"}})
    assert (answer.status, answer.error["param"]) == (400, "llamacpp.args")
    assert world.get("/internal/config").json()["llamacpp"]["backend"] == "system"
    assert world.post("/internal/set", {"llamacpp.backend": "cpu"}).status == 200
    both = {"llamacpp.args": "--rpc a:1", "llamacpp.backend": "system"}
    assert world.post("/internal/set", both).status == 200
    assert world.post("/internal/set", {"llamacpp.args": ""}).status == 200


def test_a_context_for_which_there_is_no_memory_costs_no_model(world: Daemon) -> None:
    assert world.chat("calm").status == 200
    (before,) = world.loaded()
    for path, body in (
        ("/v1/load", {"model_name": "wide"}),
        ("/v1/chat/completions", {"model": "wide", "messages": [{"role": "user", "content": "x"}]}),
        ("/v1/models/wide/options", {}),
    ):
        answer = world.post(path, {**body, "ctx_size": 10**6})
        assert (answer.status, answer.error["param"], answer.error["code"]) == (400, "ctx_size", "invalid_argument")
        assert "GiB" in answer.error["message"]
    assert [one["pid"] for one in world.loaded()] == [before["pid"]]
    # Nobody else has to suffer for it.
    assert world.chat("wide").status == 200
    (now,) = world.loaded()
    answer = world.post("/v1/load", {"model_name": "wide", "ctx_size": 10**6})
    assert answer.status == 400
    assert [one["pid"] for one in world.loaded()] == [now["pid"]]
