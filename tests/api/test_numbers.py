"""Numbers that JSON can write and nothing can hold, in fields that the endpoint looks at and in others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon

CHAT = {"model": "a", "max_tokens": 2, "messages": [{"role": "user", "content": "x"}]}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("daemon"), config={"offline": True}, switches={"tokens": 2})
    one.add_model("a")
    with one:
        yield one


@pytest.mark.parametrize("number", ["1e400", "-1e400", "9" * 5000], ids=["large", "small", "long"])
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"model": "a", "input": "x"}),
        ("/v1/messages", CHAT),
        ("/v1/tokenize", {"model": "a", "content": "x"}),
        ("/v1/load", {"model_name": "a"}),
        ("/v1/pull", {"model_name": "user.b", "recipe": "llamacpp", "checkpoint": "a/b:c"}),
        ("/v1/models/register", {"model_name": "user.b", "recipe": "llamacpp", "checkpoint": "a/b:c"}),
        ("/v1/models/a/options", {}),
        ("/v1/params", {}),
        ("/internal/set", {}),
    ],
)
def test_a_number_that_nothing_holds(daemon: Daemon, path: str, body: dict[str, Any], number: str) -> None:
    answer = daemon.post(path, json.dumps({**body, "more": "@"}).replace('"@"', number).encode())
    assert answer.status == 400, answer.body
    assert "too large" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("model", "option"), [("a", "ctx_size"), ("SD-Turbo", "steps"), ("SD-Turbo", "cfg_scale")], ids=str
)
def test_an_option_of_hundreds_of_digits(daemon: Daemon, model: str, option: str) -> None:
    answer = daemon.post(f"/v1/models/{model}/options", {option: 10**400})
    assert (answer.status, answer.error["param"]) == (400, option)
