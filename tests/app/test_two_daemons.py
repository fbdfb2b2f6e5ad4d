"""One daemon is the other's provider, with a real model: how a small machine uses a bigger one."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from tests.daemon import Daemon, alive, events, wait_for
from tests.stream import Stream, text_of
from tests.weights import smollm2

pytestmark = [pytest.mark.real]

KEY = "sk-CANARY-far-daemon"
ASK = [{"role": "user", "content": "What is the capital of France?"}]
OPTIONS: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "seed": 1}


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """The one with the model, which asks for a key."""
    one = Daemon(tmp_path_factory.mktemp("far"), fake_engine=False, env={"LEMONADE_API_KEY": KEY})
    (one.models / "smol.gguf").symlink_to(smollm2())
    with one:
        body = {"model_name": "smol", "ctx_size": 2048, "llamacpp_args": "--threads 1"}
        assert one.post("/v1/load", body, headers={"x-api-key": KEY}).status == 200
        yield one


@pytest.fixture
def near(tmp_path: Any, far: Daemon) -> Iterator[Daemon]:
    """The one without."""
    with Daemon(tmp_path / "near", fake_engine=False) as one:
        body = {"backend": "cloud", "provider": "far", "base_url": f"{far.url}/v1", "allow_insecure_http": True}
        assert one.post("/v1/install", {**body, "api_key": KEY}).json()["models_discovered"] == 1
        yield one


def is_busy(far: Daemon) -> bool:
    (entry,) = far.get("/v1/health", headers={"x-api-key": KEY}).json()["all_models_loaded"]
    return bool(entry["is_busy"])


def test_answers_are_those_of_the_far_one(near: Daemon, far: Daemon) -> None:
    assert [row["id"] for row in near.get("/v1/models").json()["data"]] == ["far.smol"]
    assert near.get("/v1/models/far.smol").json()["context_length"] == 2048
    whole = near.chat("far.smol", ASK[0]["content"], **OPTIONS).json()
    direct = far.chat("smol", ASK[0]["content"], headers=None, **OPTIONS)
    assert direct.status == 401
    direct = far.post("/v1/chat/completions", {"model": "smol", "messages": ASK, **OPTIONS}, headers={"x-api-key": KEY})
    text = whole["choices"][0]["message"]["content"]
    assert text == direct.json()["choices"][0]["message"]["content"] != ""
    assert whole["model"] == "far.smol"
    streamed = near.chat("far.smol", ASK[0]["content"], stream=True, **OPTIONS)
    told = events(streamed.body)
    assert text_of(told) == text
    assert {json.loads(event)["model"] for event in told[:-1]} == {"far.smol"}
    assert all(json.loads(event)["choices"] for event in told[:-1]), "nobody asked for the figures"
    assert near.get("/v1/stats").json()["output_tokens"] == whole["usage"]["completion_tokens"]
    assert near.loaded() == []
    response = near.post("/v1/responses", {"model": "far.smol", "input": "Hi", "max_output_tokens": 5}).json()
    assert response["output"][0]["content"][0]["text"]
    completion = near.post("/v1/completions", {"model": "far.smol", "prompt": "One, two,", "max_tokens": 5}).json()
    assert completion["choices"][0]["text"]


def test_a_tool_call_comes_back(near: Daemon) -> None:
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}
    more = {"tools": [tool], "tool_choice": {"type": "function", "function": {"name": "weather"}}, "max_tokens": 30}
    (choice,) = near.chat("far.smol", "How is the weather?", **more).json()["choices"]
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "weather"


def test_an_error_of_the_far_one_is_told(near: Daemon) -> None:
    refused = near.chat("far.smol", "word " * 4000)
    assert (refused.status, refused.error["code"]) == (400, "context_length_exceeded")
    assert "cloud (far) request failed" in refused.error["message"]


def test_who_leaves_the_near_one_stops_the_far_engine(near: Daemon, far: Daemon) -> None:
    stream = Stream(near, {"model": "far.smol", "messages": ASK, "max_tokens": 1500, "ignore_eos": True})
    stream.take(5)
    assert is_busy(far)
    stream.hang_up()
    wait_for(lambda: not is_busy(far), 15)


def test_the_death_of_the_near_one_stops_the_far_engine(near: Daemon, far: Daemon) -> None:
    stream = Stream(near, {"model": "far.smol", "messages": ASK, "max_tokens": 1500, "ignore_eos": True})
    stream.take(5)
    assert is_busy(far)
    assert near.process is not None
    near.stop(signal.SIGKILL)
    wait_for(lambda: not is_busy(far), 15)
    stream.close()
    assert not alive(near.process.pid)
    assert KEY not in near.log


def test_a_far_one_that_dies_is_told_and_left_alone(near: Daemon, tmp_path: Any) -> None:
    with Daemon(tmp_path / "mortal", fake_engine=False) as mortal:
        (mortal.models / "smol.gguf").symlink_to(smollm2())
        assert mortal.post("/v1/load", {"model_name": "smol", "ctx_size": 512}).status == 200
        body = {"backend": "cloud", "provider": "mortal", "base_url": f"{mortal.url}/v1", "allow_insecure_http": True}
        assert near.post("/v1/install", body).json()["models_discovered"] == 1
        stream = Stream(near, {"model": "mortal.smol", "messages": ASK, "max_tokens": 400, "ignore_eos": True})
        stream.take(3)
        mortal.stop(signal.SIGKILL)
        error = json.loads(stream.rest()[-1])["error"]
    assert error["code"] == "provider_unreachable"
    seen = [near.chat("mortal.smol").status for _ in range(5)]
    assert seen[0] == 502
    assert seen[-1] == 503
    assert near.chat("far.smol", max_tokens=2).status == 200
