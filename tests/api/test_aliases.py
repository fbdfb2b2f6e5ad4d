from __future__ import annotations

from typing import Any

import pytest

from tests.daemon import Daemon

PATH = "/internal/aliases"


def test_from_nothing_to_nothing(daemon: Daemon) -> None:
    assert daemon.get(PATH).json() == {"aliases": []}
    made = daemon.post(PATH, {"alias": "gpt-4o", "target": "a"})
    assert made.json() == {"status": "ok", "alias": "gpt-4o", "target": "a"}
    assert daemon.post(PATH, {"alias": " gpt-5 ", "model": "nobody"}).json()["alias"] == "gpt-5"
    assert daemon.get(PATH).json() == {
        "aliases": [
            {"alias": "gpt-4o", "target": "a", "downloaded": True, "recipe": "llamacpp"},
            {"alias": "gpt-5", "target": "nobody", "downloaded": False, "recipe": "llamacpp"},
        ]
    }
    copy = daemon.get("/v1/models/gpt-4o").json()
    assert copy == {**daemon.get("/v1/models/a").json(), "id": "gpt-4o"}
    assert daemon.get("/v1/models").json()["data"][-1] == copy
    assert daemon.chat("gpt-4o").status == 200
    assert daemon.post("/v1/unload", {"model_name": "gpt-4o"}).status == 200
    for alias in ("gpt-4o", "gpt-5"):
        assert daemon.ask("DELETE", f"{PATH}/{alias}").json() == {"status": "deleted", "alias": alias}
    gone = daemon.ask("DELETE", f"{PATH}/gpt-4o")
    assert (gone.status, gone.error["code"], gone.error["param"]) == (404, "alias_not_found", "alias")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({}, 400, "missing_argument"),
        ({"alias": "x"}, 400, "missing_argument"),
        ({"target": "a"}, 400, "missing_argument"),
        ({"alias": 5, "target": "a"}, 400, "invalid_argument"),
        ({"alias": "", "target": "a"}, 400, "invalid_alias"),
        ({"alias": "a1", "target": "a1"}, 400, "invalid_alias"),
        ({"alias": "user.x", "target": "a"}, 400, "invalid_alias"),
        ({"alias": "extra.x", "target": "a"}, 400, "invalid_alias"),
        ({"alias": "builtin.x", "target": "a"}, 400, "invalid_alias"),
        ({"alias": "b", "target": "a"}, 409, "alias_conflict"),
        ({"alias": "Qwen3-0.6B-GGUF", "target": "a"}, 409, "alias_conflict"),
        (b"{bad", 400, "invalid_json"),
    ],
)
def test_what_is_refused(daemon: Daemon, body: Any, status: int, code: str) -> None:
    answer = daemon.post(PATH, body)
    assert (answer.status, answer.error["code"]) == (status, code)
    assert daemon.get(PATH).json() == {"aliases": []}


def test_a_circle(daemon: Daemon) -> None:
    assert daemon.post(PATH, {"alias": "one", "target": "two"}).status == 200
    assert daemon.post(PATH, {"alias": "two", "target": "one"}).error["code"] == "alias_conflict"
    assert daemon.ask("DELETE", f"{PATH}/one").status == 200
