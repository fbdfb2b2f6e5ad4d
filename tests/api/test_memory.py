from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon, wait_for

PATH = "/internal/simulate-vram-pressure"


@pytest.fixture
def two(make_daemon: Any) -> Any:
    one = make_daemon(config={"max_loaded_models": 2, "auto_evict": True})
    for name in ("a", "b"):
        one.add_model(name)
    with one:
        yield one


def names(daemon: Daemon) -> list[str]:
    return sorted(each["model_name"] for each in daemon.loaded())


def test_pressure_lets_the_older_one_go(two: Daemon) -> None:
    for name in ("a", "b"):
        assert two.post("/v1/load", {"model_name": name}).status == 200
    assert two.post(PATH, {"pct": 0.5}).json() == {"status": "ok"}
    assert names(two) == ["a", "b"]
    two.post(PATH, {"pct": 0.95})
    wait_for(lambda: names(two) == ["b"])


def test_an_idle_evaluation(two: Daemon) -> None:
    two.post("/v1/load", {"model_name": "a", "downsize_idle_timeout": 0})
    two.post("/v1/load", {"model_name": "b", "downsize_idle_timeout": 0, "pinned": True})
    wait_for(lambda: two.post(PATH, {"pct": -1}) and states(two)["a"] == "downsized")
    assert states(two)["b"] == "ready"
    assert two.chat("a").status == 200
    assert states(two)["a"] == "ready"


def states(daemon: Daemon) -> dict[str, str]:
    return {each["model_name"]: each["status"] for each in daemon.loaded()}


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({}, "missing_argument"),
        ({"pct": "x"}, "invalid_argument"),
        ({"pct": 2}, "invalid_argument"),
        ({"pct": -2}, "invalid_argument"),
        (b"{bad", "invalid_json"),
    ],
)
def test_what_is_refused(daemon: Daemon, body: Any, code: str) -> None:
    answer = daemon.post(PATH, body)
    assert (answer.status, answer.error["code"]) == (400, code)
