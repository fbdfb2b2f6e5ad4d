"""What the options of a load do; `test_residency.py` has what happens to processes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, wait_for


@pytest.fixture(autouse=True)
def clean(daemon: Daemon) -> Iterator[None]:
    yield
    daemon.post("/v1/unload")
    daemon.ask("DELETE", "/v1/models/a/options")


def load(daemon: Daemon, **more: Any) -> dict[str, Any]:
    answer = daemon.post("/v1/load", {"model_name": "a", **more})
    assert answer.status == 200, answer.body
    return daemon.loaded()[0]


def saved(daemon: Daemon) -> Any:
    return daemon.get("/v1/models/a/options").json()["saved"]


def test_null_passes_over_what_is_saved(daemon: Daemon) -> None:
    daemon.post("/v1/models/a/options", {"ctx_size": 1024, "llamacpp_args": "--temp 0.5"})
    assert "--temp" in load(daemon)["launch_command"]
    entry = load(daemon, llamacpp_args=None)
    assert "--temp" not in entry["launch_command"]
    assert entry["recipe_options"]["ctx_size"] == 1024
    assert saved(daemon) == {"ctx_size": 1024, "llamacpp_args": "--temp 0.5"}


def test_save_options_replaces_what_was_saved(daemon: Daemon) -> None:
    daemon.post("/v1/models/a/options", {"ctx_size": 1024, "llamacpp_args": "--temp 0.5", "llamacpp_device": "none"})
    load(daemon, ctx_size=2048, llamacpp_args=None, save_options=True)
    assert saved(daemon) == {"ctx_size": 2048, "llamacpp_args": "--temp 0.5"}
    load(daemon, save_options=True)
    assert saved(daemon) == {}
    load(daemon, pinned=True, ctx_size=2048, save_options=True)
    assert saved(daemon) == {"ctx_size": 2048, "pinned": True}
    daemon.post("/v1/unload", {"model_name": "a"})
    assert load(daemon)["pinned"] is True


def test_save_options_alone_keeps_the_process(daemon: Daemon) -> None:
    before = load(daemon, ctx_size=2048)["pid"]
    assert load(daemon, ctx_size=2048, save_options=True)["pid"] == before


@pytest.mark.parametrize("saving", [{}, {"llamacpp_args": "--top-k 5 --temp 0.5"}])
def test_effective_is_a_load_that_changes_nothing(make_daemon: Callable[..., Daemon], saving: dict[str, Any]) -> None:
    one = make_daemon(config={"llamacpp": {"backend": "system", "args": "--threads 2"}, "ctx_size": 1024})
    one.add_model("a")
    with one:
        one.post("/v1/models/a/options", saving)
        pid = load(one)["pid"]
        effective = one.get("/v1/models/a/options").json()["effective"]
        assert "--threads 2" in effective["llamacpp_args"]
        assert load(one, **effective)["pid"] == pid


def test_saved_and_set_contexts(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon(config={"ctx_size": 4096})
    one.add_model("a")
    with one:
        one.post("/v1/models/a/options", {"ctx_size": -1})
        assert one.get("/v1/models/a/options").json()["effective"]["ctx_size"] == -1
        for model in (one.get("/v1/models/a").json(), one.get("/v1/models").json()["data"][0]):
            assert model.get("context_length", 1) > 0


def test_a_context_beyond_what_the_model_was_made_for(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon()
    one.add_model("a", **{"llama.context_length": 512})
    with one:
        for arguments, told in (("", 512), ("--rope-scale 4", 2048)):
            load(one, ctx_size=2048, llamacpp_args=arguments)
            for model in (one.get("/v1/models/a").json(), one.get("/v1/models").json()["data"][0]):
                assert model["context_length"] == told


def test_a_bad_option_loads_nothing(daemon: Daemon) -> None:
    answer = daemon.post("/v1/load", {"model_name": "a", "llamacpp_args": 5, "save_options": True})
    assert (answer.status, answer.error["param"]) == (400, "llamacpp_args")
    assert (daemon.loaded(), saved(daemon)) == ([], {})
    answer = daemon.post("/v1/load", {"model_name": "a", "ctx_size": 2**31, "save_options": True})
    assert (answer.status, answer.error["param"]) == (400, "ctx_size")
    assert (daemon.loaded(), saved(daemon)) == ([], {})


def test_a_file_that_is_no_model(daemon: Daemon) -> None:
    (daemon.models / "page.gguf").write_text("<!DOCTYPE html>")
    wait_for(lambda: daemon.get("/v1/models/page").status == 200)
    answer = daemon.post("/v1/load", {"model_name": "page"})
    assert (answer.status, answer.error["code"]) == (404, "file_not_found")
    assert f"'{daemon.models}/page.gguf' is no GGUF file" in answer.error["message"]
    (daemon.models / "page.gguf").unlink()
    wait_for(lambda: daemon.get("/v1/models/page").status == 404)
