from __future__ import annotations

import json
from typing import Any

import pytest

from tests.daemon import Daemon


def test_params_are_the_settings(daemon: Daemon) -> None:
    assert daemon.get("/v1/params").json() == daemon.get("/internal/config").json()


def test_a_change_holds_and_is_not_kept(daemon: Daemon) -> None:
    before = (daemon.folder / "config" / "config.json").read_text()
    answer = daemon.post("/v1/params", {"global_timeout": 700})
    assert answer.json() == {"status": "success", "updated": {"global_timeout": 700}}
    assert daemon.get("/v1/params").json()["global_timeout"] == 700
    assert (daemon.folder / "config" / "config.json").read_text() == before
    # Something else that is kept does not keep it along.
    assert daemon.post("/internal/set", {"ctx_size": 2048}).status == 200
    assert json.loads((daemon.folder / "config" / "config.json").read_text()).get("global_timeout") is None


@pytest.mark.parametrize(
    "body", [{}, {"nope": 1}, {"ctx_size": "x"}, {"ctx_size": 2**31}, {"ctx_size": 1024, "nope": 1}, b"{bad"]
)
def test_what_cannot_hold_changes_nothing(daemon: Daemon, body: Any) -> None:
    before = daemon.get("/v1/params").json()
    assert daemon.post("/v1/params", body).status == 400
    assert daemon.get("/v1/params").json() == before


def test_the_log_level(daemon: Daemon) -> None:
    assert daemon.post("/v1/log-level", {"level": "debug"}).json() == {"status": "success", "level": "debug"}
    assert daemon.get("/v1/params").json()["log_level"] == "debug"
    refused = daemon.post("/v1/log-level", {"level": "nope"})
    assert refused.status == 400
    assert "trace, debug, info" in refused.error["message"]
    assert daemon.post("/v1/log-level", {}).error["code"] == "missing_argument"
    assert daemon.post("/v1/log-level", {"level": "info"}).status == 200
