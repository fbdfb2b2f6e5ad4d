"""Engines that die, hang, or never start, as a client sees it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.daemon import Answer, Daemon, alive, wait_for
from tests.stream import Stream, text_of

Make = Callable[..., Daemon]

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals")

NAMES = [f"m{number}" for number in range(16)]
LONG = {"tokens": 2000, "interval": 0.02}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = Daemon(tmp_path_factory.mktemp("daemon"), config={"max_loaded_models": -1})
    for name in NAMES:
        one.add_model(name)
    with one:
        yield one


@pytest.fixture(scope="module")
def names() -> Iterator[str]:
    return iter(NAMES)


@pytest.fixture
def model(daemon: Daemon, names: Iterator[str]) -> str:
    """A model of the test's own, loaded: what crashed before counts against a model for a minute."""
    name = next(names)
    assert daemon.chat(name).status == 200
    return name


def kill(daemon: Daemon, model: str, sig: int = signal.SIGKILL) -> int:
    pid = int(daemon.entry(model)["pid"])
    os.kill(pid, sig)
    return pid


def works_anew(daemon: Daemon, model: str, old: int) -> None:
    assert daemon.chat(model).status == 200
    assert daemon.entry(model)["pid"] != old
    assert not alive(old)


def test_a_kill_in_the_middle_of_a_stream_is_told_in_one_event(daemon: Daemon, model: str) -> None:
    stream = Stream(daemon, {"model": model, "fake": LONG})
    before = stream.take(4)
    old = kill(daemon, model)
    began = time.monotonic()
    *more, last = stream.rest()
    assert time.monotonic() - began < 2
    assert text_of(before + more).startswith("w0 w1 w2 ")
    error = json.loads(last)["error"]
    assert "llama-server" in error["message"]
    assert "SIGKILL" in error["message"]
    assert error["code"] == "backend_unavailable"
    assert not any("error" in json.loads(event) for event in more)
    assert stream.whole
    works_anew(daemon, model, old)


@pytest.mark.parametrize(
    ("switch", "words"),
    [({"crash_after": 3}, "SIGKILL"), ({"exit_after": 3}, "code 3"), ({"cut_after": 3}, "llama-server")],
    ids=str,
)
def test_what_came_before_the_end_is_passed_on(daemon: Daemon, model: str, switch: dict[str, int], words: str) -> None:
    *before, last = Stream(daemon, {"model": model, "fake": {"tokens": 9, **switch}}).rest()
    assert text_of(before) == "w0 w1 "
    assert len(before) == 3
    assert words in json.loads(last)["error"]["message"]
    assert daemon.chat(model).status == 200


@pytest.mark.parametrize(("path", "body"), [("completions", {"prompt": "x"}), ("responses", {"input": "x"})])
def test_every_format_tells_of_the_end_once(daemon: Daemon, model: str, path: str, body: dict[str, Any]) -> None:
    stream = Stream(daemon, {"model": model, "fake": {"tokens": 9, "crash_after": 4}, **body}, path=f"/v1/{path}")
    *before, last = stream.rest()
    assert before and "[DONE]" not in before
    assert "SIGKILL" in json.loads(last)["error"]["message"]
    assert not any("error" in json.loads(event) for event in before)
    assert stream.whole
    assert daemon.chat(model).status == 200


@pytest.mark.parametrize("streamed", [True, False])
def test_an_engine_that_dies_before_its_answer_is_replaced_and_asked_again(
    daemon: Daemon, model: str, streamed: bool
) -> None:
    old = daemon.entry(model)["pid"]
    daemon.switch(model, crash_before=True)
    answer = daemon.chat(model, stream=streamed)
    assert answer.status == 200
    assert b"error" not in answer.body
    works_anew(daemon, model, old)


@pytest.mark.parametrize("streamed", [True, False])
def test_a_request_that_kills_every_engine_is_tried_twice_and_no_more(
    daemon: Daemon, model: str, streamed: bool
) -> None:
    starts = len(daemon.starts)
    answer = daemon.chat(model, stream=streamed, fake={"crash_before": True})
    assert answer.status == 502
    assert answer.error["code"] == "backend_unavailable"
    assert "SIGKILL" in answer.error["message"]
    assert len(daemon.starts) == starts + 1, "the first one ran already"
    assert daemon.chat(model).status == 200


@pytest.mark.parametrize("sig", [signal.SIGKILL, signal.SIGTERM])
def test_health_tells_of_an_idle_engines_end(daemon: Daemon, model: str, sig: int) -> None:
    old = kill(daemon, model, sig)
    wait_for(lambda: model not in [one["model_name"] for one in daemon.loaded()], 2)
    works_anew(daemon, model, old)


def test_a_crash_loop_ends_in_an_error_and_not_in_starts(daemon: Daemon, model: str) -> None:
    answers = [daemon.chat(model, fake={"crash_before": True}) for _ in range(5)]
    starts = len(daemon.starts)
    answers += [daemon.chat(model) for _ in range(5)]
    assert len(daemon.starts) == starts, "not even for a good request, for a while"
    assert answers[-1].status == 500
    assert answers[-1].error["code"] == "model_load_error"
    assert "5 times" in answers[-1].error["message"]
    assert "SIGKILL" in answers[-1].error["message"]
    assert answers[-1].headers["x-should-retry"] == "false"
    assert daemon.post("/v1/load", {"model_name": model}).status == 200, "who asks expressly is obeyed"
    assert daemon.chat(model).status == 200


def test_an_engine_that_cannot_start_says_why_once(make_daemon: Make) -> None:
    one = make_daemon(switches={"exit_at_start": 3})
    one.add_model("a")
    with one:
        answers = [one.chat("a", stream=streamed) for streamed in (False, True, False)]
        assert len(one.starts) == 1, "what failed a moment ago is not tried again for every request"
        assert one.loaded() == []
    for answer in answers:
        assert answer.status == 500
        assert answer.error["code"] == "model_load_error"
        assert answer.error["requested_model"] == "a"
        assert "code 3" in answer.error["message"]
        assert "fatal: the file is no model" in answer.error["message"]
        assert answer.headers["x-should-retry"] == "false"


def test_an_engine_that_is_not_there_is_said_to_be_missing(make_daemon: Make) -> None:
    one = make_daemon()
    one.add_model("a")
    with one:
        (one.folder / "bin" / "llama-server").unlink()
        answer = one.chat("a")
        assert 400 <= answer.status <= 500
        assert answer.error["type"] != "internal_error"
        assert "llama-server" in answer.error["message"]
        assert one.get("/live").status == 200


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with room for one model, whose engines take a second to start."""
    one = Daemon(tmp_path_factory.mktemp("slow"), switches={"slow_start": 1.0})
    for name in ("a", "b", "c"):
        one.add_model(name)
    with one:
        yield one


def test_many_first_requests_and_a_load_are_one_start(slow: Daemon) -> None:
    with ThreadPoolExecutor(21) as pool:
        asked = [pool.submit(slow.chat, "a") for _ in range(20)]
        asked.append(pool.submit(slow.post, "/v1/load", {"model_name": "a"}))
        assert [one.result().status for one in asked] == [200] * 21
    assert len(slow.starts) == 1
    assert slow.post("/v1/load", {"model_name": "a"}).status == 200
    assert len(slow.starts) == 1


def test_what_is_asked_while_another_loads_is_answered_too(slow: Daemon) -> None:
    assert slow.post("/v1/load", {"model_name": "a"}).status == 200
    with ThreadPoolExecutor(3) as pool:
        asked = []
        for name in ("b", "a", "b"):
            asked.append(pool.submit(slow.chat, name))
            time.sleep(0.05)
        answers = [one.result() for one in asked]
    assert [answer.status for answer in answers] == [200] * 3
    assert [answer.json()["model"] for answer in answers] == ["b", "a", "b"]


def test_a_model_is_not_evicted_while_it_answers(slow: Daemon) -> None:
    assert slow.chat("a").status == 200
    done: dict[str, float] = {}

    def ask(name: str, **more: Any) -> Answer:
        answer = slow.chat(name, **more)
        done[name] = time.monotonic()
        return answer

    stream = Stream(slow, {"model": "a", "fake": {"tokens": 40, "interval": 0.05}})
    stream.take(3)
    with ThreadPoolExecutor(2) as pool:
        asked = []
        for name in ("b", "c"):
            asked.append(pool.submit(ask, name))
            time.sleep(0.2)
        starts = len(slow.starts)
        events = stream.rest()
        ended = time.monotonic()
        assert [one.result().status for one in asked] == [200, 200]
    assert events[-1] == "[DONE]"
    assert text_of(events).endswith("w39 ")
    assert len(slow.starts) == starts + 2, "neither had begun before the stream was over"
    assert ended < done["b"] < done["c"]


@pytest.mark.slow
def test_an_engine_that_hangs_is_ended_and_replaced(make_daemon: Make) -> None:
    """Ten seconds of silence are the least that the watchdog may be told to bear."""
    watchdog = {"GRACE_SECONDS": "10", "POLL_SECONDS": "0.2", "PROBE_TIMEOUT_SECONDS": "0.3", "MAX_FAILURES": "2"}
    one = make_daemon(env={f"LEMONADE_BACKEND_WATCHDOG_{name}": value for name, value in watchdog.items()})
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a", "fake": LONG})
        stream.take(3)
        old = kill(one, "a", signal.SIGSTOP)
        *before, last = stream.rest()
        assert json.loads(last)["error"]["code"] == "backend_watchdog_reset"
        assert not any("error" in json.loads(event) for event in before)
        assert stream.comments > 5, "the client was told all the time that somebody is there"
        works_anew(one, "a", old)


def test_repeated_crashes_of_one_model_leave_another_alone(daemon: Daemon, names: Iterator[str]) -> None:
    good, bad = itertools.islice(names, 2)
    stream = Stream(daemon, {"model": good, "fake": {"tokens": 60, "interval": 0.02}})
    stream.take(1)
    for _ in range(2):
        assert daemon.chat(bad, fake={"crash_before": True}).status == 502
    events = stream.rest()
    assert events[-1] == "[DONE]"
    assert text_of(events).endswith("w59 ")
