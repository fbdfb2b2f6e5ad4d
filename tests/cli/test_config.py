from __future__ import annotations

import json

import pytest

from tests.cli.conftest import Shell
from tests.cli.fake_daemon import FakeDaemon


def test_shows_what_the_daemon_has(lemonade: Shell) -> None:
    rows = [line.split() for line in lemonade("config").out.splitlines()]
    assert ["ctx_size", "2048"] in rows
    assert ["llamacpp.args", "(empty)"] in rows
    assert json.loads(lemonade("config", "--json").out)["llamacpp"]["backend"] == "auto"


def test_origins(lemonade: Shell) -> None:
    assert ["ctx_size", "2048", "LEMONADE_X"] in [
        line.split() for line in lemonade("config", "--show-origin").out.splitlines()
    ]
    shown = json.loads(lemonade("config", "--show-origin", "--json").out)
    assert shown["llamacpp.backend"] == {"value": "auto", "origin": "LEMONADE_X"}


def test_set(lemonade: Shell, daemon: FakeDaemon) -> None:
    pairs = ["ctx-size=8192", "llamacpp.args=--threads 4", "offline=true", "telemetry.otlp.headers={}", "x=0.5", "y=1e"]
    assert lemonade("config", "set", *pairs).code == 0
    assert daemon.bodies("/internal/set") == [
        {
            "ctx_size": 8192,
            "llamacpp.args": "--threads 4",
            "offline": True,
            "telemetry.otlp.headers": {},
            "x": 0.5,
            "y": "1e",
        }
    ]


@pytest.mark.parametrize(("pair", "code"), [("nonsense=1", 1), ("nonsense", 2), ("=1", 2)])
def test_set_refuses(lemonade: Shell, pair: str, code: int) -> None:
    ended = lemonade("config", "set", pair)
    assert ended.code == code
    assert "nonsense" in ended.err or "KEY=VALUE" in ended.err


def test_without_a_daemon_the_file_is_shown_and_changed(alone: Shell) -> None:
    assert alone("config", "set", "ctx_size=8192").code == 0
    assert json.loads((alone.home / "config" / "config.json").read_text()) == {"ctx_size": 8192}
    shown = json.loads(alone("config", "--json", "--show-origin").out)
    assert shown["ctx_size"] == {"value": 8192, "origin": str(alone.home / "config" / "config.json")}
    assert shown["port"]["origin"] == "LEMONADE_PORT"
    ended = alone("config", "set", "ctx_size=-7")
    assert ended.code == 1
    assert "'ctx_size' must be a whole number" in ended.err


def test_another_machine_without_a_daemon_is_a_failure(alone: Shell) -> None:
    ended = alone("config", "set", "ctx_size=1", "--host", "nowhere.invalid")
    assert ended.code == 1
    assert not (alone.home / "config" / "config.json").exists()


def test_a_variable_that_comes_before_what_is_set_is_named(alone: Shell) -> None:
    port = alone.env["LEMONADE_PORT"]
    said = alone("config", "set", "port=4321", "ctx_size=2048").err
    assert "LEMONADE_PORT is set here" in said and "unset LEMONADE_PORT" in said
    assert "is set here" not in alone("config", "set", f"port={port}").err
    assert "is set here" not in alone("config", "set", "ctx_size=4096").err
