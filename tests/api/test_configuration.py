from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from tests.daemon import Daemon, free_port, wait_for


@pytest.mark.parametrize(
    ("change", "updated"),
    [
        ({"max_loaded_models": 3}, {"max_loaded_models": 3}),
        ({"llamacpp": {"args": "--threads 1"}}, {"llamacpp": {"args": "--threads 1"}}),
        ({"llamacpp_args": "--threads 2"}, {"llamacpp": {"args": "--threads 2"}}),
        ({"llamacpp.args": ""}, {"llamacpp": {"args": ""}}),
    ],
)
def test_settings_are_changed_and_saved(daemon: Daemon, change: dict[str, Any], updated: dict[str, Any]) -> None:
    answer = daemon.post("/internal/set", change)
    assert answer.json() == {"status": "success", "updated": updated}
    shown = daemon.get("/internal/config").json()
    for key, value in updated.items():
        assert shown[key] == value if not isinstance(value, dict) else value.items() <= shown[key].items()
    saved = json.loads((daemon.folder / "config" / "config.json").read_text())
    assert "port" not in saved, "the file holds only what differs from the defaults"


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"nope": 1}, "nope"),
        ({"max_loaded_models": "many"}, "max_loaded_models"),
        ({"max_loaded_models": 0}, "max_loaded_models"),
        ({"port": 99999}, "port"),
        ({"log_level": "loud"}, "log_level"),
        ({"llamacpp": {"backend": "nope"}}, "llamacpp.backend"),
        ({"config_version": 3}, "config_version"),
        ({"max_loaded_models": 4, "port": 0}, "port"),
    ],
)
def test_what_cannot_hold_changes_nothing(daemon: Daemon, change: dict[str, Any], param: str) -> None:
    before = daemon.get("/internal/config").json()
    answer = daemon.post("/internal/set", change)
    assert answer.status == 400
    assert answer.error["param"] == param
    assert param in answer.error["message"]
    assert daemon.get("/internal/config").json() == before


def test_an_empty_change_is_refused(daemon: Daemon) -> None:
    assert daemon.post("/internal/set", {}).status == 400


def test_where_a_value_comes_from(daemon: Daemon) -> None:
    origins = daemon.get("/internal/config?origin=true").json()
    assert origins["port"]["origin"] == "command line"
    assert origins["extra_models_dir"]["origin"].endswith("config.json")
    assert origins["ctx_size"] == {"value": -1, "origin": "default"}


def test_the_daemon_moves_to_another_port_and_stays_when_it_cannot(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon() as one, make_daemon() as other:
        taken, old, new = other.port, one.port, free_port()
        refused = one.post("/internal/set", {"port": taken})
        assert refused.status == 400
        assert "already in use" in refused.error["message"]
        assert one.get("/live").status == 200
        assert one.post("/internal/set", {"port": new}).status == 200
        one.port = new
        wait_for(lambda: reachable(one))
        one.port = old
        assert not reachable(one)


def test_a_folder_that_cannot_be_written_is_said_to_be_one(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon() as one:
        config = one.folder / "config"
        shutil.rmtree(config)
        config.write_text("no folder any more")
        answer = one.post("/internal/set", {"ctx_size": 4096})
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert str(config) in answer.error["message"]
        assert one.get("/internal/config").json()["ctx_size"] == -1


def test_a_file_that_somebody_broke_meanwhile_is_kept(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon() as one:
        file = one.folder / "config" / "config.json"
        file.write_text('{"ctx_size": ')
        answer = one.post("/internal/set", {"ctx_size": 4096})
        assert (answer.status, answer.error["code"]) == (500, "internal_error")
        assert "config.json cannot be read" in answer.error["message"]
        assert file.read_text() == '{"ctx_size": '


def reachable(daemon: Daemon) -> bool:
    try:
        return daemon.get("/live").status == 200
    except OSError:
        return False
