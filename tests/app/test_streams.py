"""Streams through the whole daemon: what arrives, when, and what happens when somebody leaves."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from urllib.request import Request, urlopen

import psutil
import pytest

from tests.daemon import Daemon, wait_for
from tests.stream import Stream, text_of

Make = Callable[..., Daemon]

TEXT = "안녕하세요 🌍 北京 naïve \u2028 end"


@pytest.fixture
def model(daemon: Daemon) -> Iterator[str]:
    """`a`, loaded, with nothing recorded yet."""
    assert daemon.chat("a").status == 200
    yield "a"
    wait_for(lambda: daemon.seen("a")["in_flight"] == 0, 5)
    wait_for(lambda: not daemon.entry("a")["is_busy"], 5)


def test_the_head_of_a_stream(daemon: Daemon, model: str) -> None:
    stream = Stream(daemon, {"model": model}, headers={"Accept-Encoding": "gzip, deflate, br, zstd"})
    headers = stream.response.headers
    assert stream.status == 200
    assert headers["content-type"].partition(";")[0] == "text/event-stream"
    assert headers["cache-control"] == "no-cache"
    assert headers["content-encoding"] is None
    assert headers["content-length"] is None
    assert stream.rest()[-1] == "[DONE]"
    assert stream.whole


def test_pieces_come_when_they_are_made(daemon: Daemon, model: str) -> None:
    stream = Stream(daemon, {"model": model, "fake": {"tokens": 20, "interval": 0.05}})
    stream.rest()
    assert len(stream.times) == 23
    assert stream.times[10] - stream.times[0] > 0.25
    assert stream.times[-1] - stream.times[10] > 0.25


@pytest.mark.parametrize("split", [0, 1])
def test_characters_stay_whole_however_the_engine_writes(daemon: Daemon, model: str, split: int) -> None:
    events = Stream(daemon, {"model": model, "fake": {"text": TEXT, "split": split}}).rest()
    assert text_of(events) == TEXT
    assert events[-1] == "[DONE]"


@pytest.mark.parametrize("streamed", [True, False])
def test_several_tool_calls_of_one_answer_arrive_as_the_engine_makes_them(
    daemon: Daemon, model: str, streamed: bool
) -> None:
    calls = [{"name": "weather", "arguments": '{"place":"Paris"}'}, {"name": "time", "arguments": '{"zone":"CET"}'}]
    messages = [{"role": "user", "content": "hi"}]
    body = {"model": model, "messages": messages, "stream": streamed, "fake": {"text": "", "tool_calls": calls}}
    request = Request(f"{daemon.engine()}/v1/chat/completions", json.dumps(body).encode())
    with urlopen(request, timeout=30) as direct:
        expected = direct.read()
    through = daemon.post("/v1/chat/completions", body).body
    assert through == expected
    if not streamed:
        (choice,) = json.loads(through)["choices"]
        assert [call["function"] for call in choice["message"]["tool_calls"]] == calls
        assert choice["finish_reason"] == "tool_calls"


@pytest.mark.parametrize("streamed", [True, False])
def test_a_prompt_beyond_the_context_is_the_clients_mistake(daemon: Daemon, model: str, streamed: bool) -> None:
    answer = daemon.chat(model, stream=streamed, fake={"err400": True})
    assert answer.status == 400
    assert answer.error["code"] == "context_length_exceeded"
    assert "context size" in answer.error["message"]
    assert answer.headers["content-type"] == "application/json"


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("status", [400, 422, 500, 501, 503])
@pytest.mark.parametrize(
    ("form", "words"),
    [
        ({"json": {"error": {"message": "no such thing"}}}, "no such thing"),
        ({"text": "plain words"}, "plain"),
        ({}, ""),
    ],
    ids=["json", "text", "empty"],
)
def test_an_engines_error_keeps_its_status_and_its_reason(
    daemon: Daemon, model: str, streamed: bool, status: int, form: dict[str, Any], words: str
) -> None:
    answer = daemon.chat(model, stream=streamed, fake={"error": {"status": status, **form}})
    assert answer.status == status
    assert words in answer.error["message"]
    assert answer.error["message"]
    assert answer.error["type"]


@pytest.mark.parametrize("streamed", [True, False])
def test_an_empty_answer_is_no_success(daemon: Daemon, model: str, streamed: bool) -> None:
    answer = daemon.chat(model, stream=streamed, fake={"silent200": True})
    assert answer.status == 502
    assert answer.error["type"] == "backend_error"
    assert b"[DONE]" not in answer.body


def test_an_error_inside_a_stream_is_an_event(daemon: Daemon, model: str) -> None:
    events = Stream(daemon, {"model": model, "fake": {"tokens": 5, "error_after": 3}}).rest()
    (failure,) = (event for event in events if event.startswith('{"error"'))
    assert json.loads(failure)["error"]["message"] == "the engine failed inside the answer"


def test_a_stream_that_ended_well_ends_with_done(daemon: Daemon, model: str) -> None:
    events = Stream(daemon, {"model": model, "fake": {"tokens": 3, "no_done": True}}).rest()
    assert events[-1] == "[DONE]"
    assert events.count("[DONE]") == 1


def test_silence_is_filled_with_comments(daemon: Daemon, model: str) -> None:
    stream = Stream(daemon, {"model": model, "fake": {"tokens": 1, "interval": 1.3}})
    assert text_of(stream.rest()) == "w0 "
    assert stream.comments >= 2


def test_reasoning_alone_is_an_answer(daemon: Daemon, model: str) -> None:
    fake = {"text": "", "reasoning": "hm, well"}
    message = daemon.chat(model, fake=fake).json()["choices"][0]["message"]
    assert message["content"] == ""
    assert message["reasoning_content"] == "hm, well"
    *events, done = Stream(daemon, {"model": model, "fake": fake}).rest()
    choices = [json.loads(event)["choices"][0] for event in events]
    assert "hm, well" in [choice["delta"].get("reasoning_content") for choice in choices]
    assert choices[-1]["finish_reason"] == "stop"
    assert done == "[DONE]"


@pytest.mark.parametrize("switch", ["empty_choices", "empty_message"])
def test_an_answer_without_a_message_is_no_success(daemon: Daemon, model: str, switch: str) -> None:
    answer = daemon.chat(model, fake={switch: True})
    assert answer.status == 502
    assert answer.error["message"]


@pytest.mark.parametrize(
    ("given", "thinks"),
    [
        ({"enable_thinking": False}, False),
        ({"thinking": False}, False),
        ({"thinking": {"type": "disabled"}}, False),
        ({"thinking": True, "enable_thinking": False}, False),
        ({"thinking": False, "enable_thinking": True}, True),
    ],
    ids=str,
)
def test_the_switches_for_thinking_reach_the_engine(
    daemon: Daemon, model: str, given: dict[str, Any], thinks: bool
) -> None:
    assert daemon.chat(model, **given).status == 200
    body = daemon.seen(model)["requests"][-1]["body"]
    assert (body.get("chat_template_kwargs", {}).get("enable_thinking") is False) is not thinks
    assert "thinking" not in body


def test_a_request_reaches_the_engine_as_it_was_sent(daemon: Daemon, model: str) -> None:
    more = {"temperature": 0.25, "logit_bias": {"5": -100}, "min_p": 0.05, "grammar": 'root ::= "x"'}
    assert daemon.chat(model, TEXT, **more).status == 200
    request = daemon.seen(model)["requests"][-1]
    assert request["body"] == {"model": model, "messages": [{"role": "user", "content": TEXT}], **more}
    headers = {name.lower(): value for name, value in request["headers"].items()}
    assert headers["content-type"] == "application/json"
    assert "authorization" not in headers


# Clients that leave.


def hung_up(daemon: Daemon, model: str) -> bool:
    return bool(daemon.seen(model)["requests"][-1]["hung_up"])


@pytest.mark.parametrize(
    ("body", "events"),
    [
        ({"fake": {"stall": "headers"}}, 0),
        ({"fake": {"tokens": 9, "stall": 2}}, 2),
        ({"fake": {"tokens": 2000, "interval": 0.02}}, 2),
        ({"fake": {"tokens": 9, "interval": 5}, "stream": False}, 0),
        ({"fake": {"stall": "headers"}, "stream": False}, 0),
    ],
    ids=["before its first byte", "in silence", "in the middle", "whole", "whole, before the head"],
)
def test_a_client_that_leaves_stops_the_engine(daemon: Daemon, model: str, body: dict[str, Any], events: int) -> None:
    asked = len(daemon.seen(model)["requests"])
    stream = Stream(daemon, {"model": model, **body})
    wait_for(lambda: len(daemon.seen(model)["requests"]) > asked)
    stream.take(events)
    assert daemon.seen(model)["in_flight"] == 1
    assert daemon.entry(model)["is_busy"]
    left = stream.hang_up()
    wait_for(lambda: hung_up(daemon, model), 3)
    assert daemon.seen(model)["requests"][-1]["hung_up"] - left < 2
    wait_for(lambda: not daemon.entry(model)["is_busy"], 2)
    assert daemon.seen(model)["in_flight"] == 0


def test_one_client_that_leaves_does_not_disturb_another(daemon: Daemon, model: str) -> None:
    stays = Stream(daemon, {"model": model, "fake": {"tokens": 40, "interval": 0.02}})
    leaves = Stream(daemon, {"model": model, "fake": {"tokens": 2000, "interval": 0.02}})
    stays.take(2)
    leaves.take(2)
    leaves.hang_up()
    events = stays.rest()
    assert events[-1] == "[DONE]"
    assert text_of(events).endswith("w39 ")


def test_a_start_for_a_client_that_left_never_begins(daemon: Daemon, model: str) -> None:
    running = Stream(daemon, {"model": model, "fake": {"tokens": 2000, "interval": 0.02}})
    running.take(2)
    starts = len(daemon.starts)
    waiting = [Stream(daemon, {"model": "b", "stream": streamed}) for streamed in (True, False)]
    time.sleep(0.3)
    for one in waiting:
        one.hang_up()
    time.sleep(0.2)
    running.hang_up()
    time.sleep(0.5)
    assert len(daemon.starts) == starts
    assert [one["model_name"] for one in daemon.loaded()] == [model]


def test_leaving_during_a_load_leaves_the_model_idle(make_daemon: Make) -> None:
    one = make_daemon(switches={"slow_start": 1.0})
    one.add_model("a")
    with one:
        stream = Stream(one, {"model": "a"})
        wait_for(lambda: one.starts)
        stream.hang_up()
        (entry,) = wait_for(one.loaded)
        assert not entry["is_busy"]
        assert one.seen("a")["requests"] == []
        assert one.chat("a").status == 200
        assert len(one.starts) == 1


# Many at once.


def test_a_client_that_reads_slowly_costs_no_memory(daemon: Daemon, model: str) -> None:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    before = process.memory_info().rss
    # Some 30 MB, of which the client reads the beginning.
    stream = Stream(daemon, {"model": model, "fake": {"tokens": 150_000}})
    stream.take(3)
    most = 0
    for _ in range(20):
        time.sleep(0.1)
        most = max(most, process.memory_info().rss)
        assert daemon.get("/live").status == 200
    stream.hang_up()
    assert most - before < 15 * 2**20


def test_nobody_gets_anothers_answer(daemon: Daemon) -> None:
    assert daemon.post("/internal/set", {"max_loaded_models": 2}).status == 200
    try:
        with ThreadPoolExecutor(8) as pool:
            for problem in pool.map(lambda number: talk(daemon, number), range(8)):
                assert problem is None
    finally:
        daemon.post("/internal/set", {"max_loaded_models": 1})


def talk(daemon: Daemon, number: int) -> str | None:
    """Ten requests of one client, every third one given up; what was wrong, if anything."""
    model = "ab"[number % 2]
    for turn in range(10):
        marker = f"client{number}turn{turn}"
        fake = {"text": " ".join([marker] * 20), "interval": 0.002}
        stream = Stream(daemon, {"model": model, "stream": turn % 2 == 0, "fake": fake})
        if turn % 3 == 2:
            stream.hang_up()
            continue
        whole = turn % 2 == 1
        text = stream.answer().json()["choices"][0]["message"]["content"] if whole else text_of(stream.rest())
        if text != fake["text"]:
            return f"{marker} got {text}"
    return None
