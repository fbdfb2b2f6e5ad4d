"""What the text endpoints answer, on fake engines."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lemonade.inference.choices import PARALLEL
from tests.api.text_world import MINIMAL, add_models, seen
from tests.daemon import Daemon, events, wait_for
from tests.stream import Stream

TEXT = "The capital of France is Paris."


@pytest.fixture(scope="module")
def world(daemon: Daemon) -> Daemon:
    add_models(daemon)
    return daemon


def completion(**more: Any) -> dict[str, Any]:
    return {"model": "a", "prompt": "x", **more}


def chunks(body: bytes) -> list[dict[str, Any]]:
    """The events of a stream, which ends as it should."""
    told = events(body)
    assert told[-1] == "[DONE]"
    assert body.endswith(b"data: [DONE]\n\n")
    return [json.loads(one) for one in told[:-1]]


def texts(told: list[dict[str, Any]]) -> dict[int, str]:
    """The text of each choice of a streamed completion."""
    made: dict[int, str] = {}
    for chunk in told:
        for choice in chunk["choices"]:
            made[choice["index"]] = made.get(choice["index"], "") + choice["text"]
    return made


def test_a_completion(world: Daemon) -> None:
    world.post("/internal/aliases", {"alias": "gpt-x", "target": "a"})
    for name in ("a", "gpt-x"):
        answer = world.post("/v1/completions", completion(model=name)).json()
        assert answer["object"] == "text_completion"
        assert answer["model"] == name
        assert answer["choices"] == [{"text": TEXT, "index": 0, "logprobs": None, "finish_reason": "stop"}]
        assert answer["usage"]["total_tokens"] == 13


def test_a_streamed_completion(world: Daemon) -> None:
    answer = world.post("/v1/completions", completion(stream=True))
    assert answer.headers["content-type"].startswith("text/event-stream")
    told = chunks(answer.body)
    assert texts(told) == {0: TEXT}
    assert {chunk["model"] for chunk in told} == {"a"}
    assert told[-1]["choices"][0]["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [False, True])
def test_the_choices_of_several_prompts(world: Daemon, stream: bool) -> None:
    body = completion(prompt=["p", "q"], n=2, echo=True, stream=stream)
    answer = world.post("/v1/completions", body)
    if stream:
        told = chunks(answer.body)
        made = texts(told)
        assert len({chunk["id"] for chunk in told}) == 1
        endings = [choice["index"] for chunk in told for choice in chunk["choices"] if choice["finish_reason"]]
        assert sorted(endings) == [0, 1, 2, 3]
        timings = told[-1]["timings"]
    else:
        whole = answer.json()
        made = {choice["index"]: choice["text"] for choice in whole["choices"]}
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
        # Seven tokens of each prompt, six of each of the four answers.
        assert whole["usage"]["prompt_tokens"] == 14
        assert whole["usage"]["completion_tokens"] == 24
        assert whole["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
        timings = whole["timings"]
    assert made == {0: "p" + TEXT, 1: "p" + TEXT, 2: "q" + TEXT, 3: "q" + TEXT}
    assert timings["predicted_n"] == 24
    assert timings["predicted_per_second"] == pytest.approx(300)


def test_the_echo_of_tokens_is_their_text(world: Daemon) -> None:
    answer = world.post("/v1/completions", completion(prompt=[[5, 6], "q"], echo=True))
    assert [choice["text"] for choice in answer.json()["choices"]] == ["<5><6>" + TEXT, "q" + TEXT]


def test_no_tokens_at_all(world: Daemon) -> None:
    whole = world.post("/v1/completions", completion(max_tokens=0, echo=True)).json()
    assert whole["choices"][0]["text"] == "x"
    assert whole["usage"] == {
        "prompt_tokens": 7,
        "completion_tokens": 0,
        "total_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 2},
    }
    told = chunks(world.post("/v1/completions", completion(max_tokens=0, stream=True)).body)
    assert texts(told) == {0: ""}


@pytest.mark.parametrize("stream", [False, True])
def test_several_answers_to_a_chat(world: Daemon, stream: bool) -> None:
    body = {**MINIMAL["chat/completions"], "n": 3, "stream": stream, "stream_options": {"include_usage": True}}
    answer = world.post("/v1/chat/completions", body)
    if stream:
        told = chunks(answer.body)
        made: dict[int, str] = {}
        for chunk in told:
            for choice in chunk["choices"]:
                at = choice["index"]
                made[at] = made.get(at, "") + (choice["delta"].get("content") or "")
        assert [bool(chunk.get("usage")) for chunk in told] == [False] * (len(told) - 1) + [True]
        assert told[-1]["choices"] == []
        usage = told[-1]["usage"]
    else:
        whole = answer.json()
        made = {choice["index"]: choice["message"]["content"] for choice in whole["choices"]}
        usage = whole["usage"]
    assert made == {0: TEXT, 1: TEXT, 2: TEXT}
    assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (7, 18, 25)


@pytest.mark.parametrize("path", ["completions", "chat/completions"])
def test_an_error_among_several_answers(world: Daemon, path: str) -> None:
    body = {**MINIMAL[path], "n": 3, "stream": True}
    refused = {"error": {"status": 422, "json": {"error": {"message": "m", "type": "t"}}}}
    answer = world.post(f"/v1/{path}", {**body, "fake": refused})
    assert (answer.status, answer.error["message"]) == (422, "m")
    answer = world.post(f"/v1/{path}", {**body, "fake": {"error_after": 2}})
    assert answer.status == 200
    told = events(answer.body)
    assert "[DONE]" not in told
    failures = [json.loads(one)["error"] for one in told if "error" in json.loads(one)]
    assert [failure["message"] for failure in failures] == ["the engine failed inside the answer"]
    assert "error" in json.loads(told[-1])
    assert world.post(f"/v1/{path}", {**body, "stream": False}).status == 200


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_work_on_all_answers(make_daemon: Callable[..., Daemon], stream: bool) -> None:
    fresh = make_daemon(switches={"tokens": 500, "interval": 0.05})
    fresh.add_model("a")
    with fresh:
        fresh.post("/v1/load", {"model_name": "a"})
        left = Stream(fresh, {"model": "a", "n": 3, "stream": stream})
        wait_for(lambda: fresh.record()["in_flight"] == 3)
        left.hang_up()
        wait_for(lambda: fresh.record()["in_flight"] == 0)
        assert [bool(request["hung_up"]) for request in fresh.record()["requests"]] == [True] * 3
        assert not fresh.loaded()[0]["is_busy"]


def test_no_more_answers_are_made_at_once_than_an_engine_has_places(make_daemon: Callable[..., Daemon]) -> None:
    fresh = make_daemon(switches={"tokens": 3, "interval": 0.02})
    fresh.add_model("a")
    with fresh:
        answer = fresh.post("/v1/completions", completion(prompt=[f"p{number}" for number in range(12)], stream=True))
        assert texts(chunks(answer.body)) == dict.fromkeys(range(12), "w0 w1 w2 ")
        record = fresh.record()
        assert record["peak"] == PARALLEL
        assert [request["body"]["prompt"] for request in record["requests"]] == [f"p{number}" for number in range(12)]


def test_an_engine_that_dies_before_several_answers_is_started_anew(world: Daemon) -> None:
    first = world.post("/v1/completions", completion(n=2, fake={"crash_before": True}))
    assert (first.status, first.error["code"]) == (502, "backend_unavailable")
    assert world.post("/v1/completions", completion(n=2)).status == 200


@pytest.mark.parametrize(("path", "status"), [("completions", 500), ("chat/completions", 502)])
def test_an_answer_without_choices(world: Daemon, path: str, status: int) -> None:
    for more in ({}, {"n": 2}):
        answer = world.post(f"/v1/{path}", {**MINIMAL[path], **more, "fake": {"empty_choices": True}})
        assert answer.status == status
        assert answer.error["type"] == "backend_error"


def test_a_response(world: Daemon) -> None:
    answer = world.post("/v1/responses", {"model": "a", "input": "x"}).json()
    assert answer["object"] == "response"
    assert answer["model"] == "a"
    assert answer["output"][0]["content"][0]["text"] == TEXT
    assert answer["metadata"] == {}
    answer = world.post("/v1/responses", {"model": "a", "input": "x", "metadata": {"ticket": "5"}}).json()
    assert answer["metadata"] == {"ticket": "5"}


def test_a_streamed_response(world: Daemon) -> None:
    body = world.post("/v1/responses", {"model": "a", "input": "x", "stream": True}).body
    told = chunks(body)
    assert told[0]["type"] == "response.created"
    assert told[-1]["type"] == "response.completed"
    assert [one["sequence_number"] for one in told] == list(range(len(told)))
    assert "".join(one["delta"] for one in told if one["type"] == "response.output_text.delta") == TEXT
    assert all(block.startswith(b"event: response.") for block in body.split(b"\n\n")[:-2])


def test_a_stream_that_fails_in_the_middle_of_a_response(world: Daemon) -> None:
    body = {"model": "a", "input": "x", "stream": True, "fake": {"crash_after": 3}}
    told = events(world.post("/v1/responses", body).body)
    assert "[DONE]" not in told
    assert json.loads(told[-1])["error"]["status_code"] == 502


def test_vectors(world: Daemon) -> None:
    answer = world.post("/v1/embeddings", {"model": "vectors", "input": ["a", "bcd"]}).json()
    assert answer["model"] == "vectors"
    assert [one["index"] for one in answer["data"]] == [0, 1]
    assert answer["data"][1]["embedding"] == [3.0, 0.5, -0.25]
    assert answer["usage"] == {"prompt_tokens": 2, "total_tokens": 2}


def test_a_ranking(world: Daemon) -> None:
    body = {"model": "ranks", "query": "b c", "documents": ["a", "b c", {"text": "b"}], "return_documents": True}
    results = world.post("/v1/rerank", {**body, "top_n": 2}).json()["results"]
    assert results == [
        {"index": 1, "relevance_score": 2.0, "document": {"text": "b c"}},
        {"index": 2, "relevance_score": 1.0, "document": {"text": "b"}},
    ]


def test_no_model_for_what_needs_a_loaded_one(make_daemon: Callable[..., Daemon]) -> None:
    with make_daemon() as fresh:
        for answer in (
            fresh.post("/v1/tokenize", {"content": "x"}),
            fresh.get("/v1/slots"),
            fresh.post("/v1/slots/0?action=erase"),
        ):
            assert answer.status == 400
            assert answer.error["message"].startswith("No model loaded for ")
        assert fresh.get("/v1/slots?model=nobody").status == 404


def test_tokens(world: Daemon) -> None:
    world.post("/v1/completions", completion(model="a"))
    assert world.post("/v1/tokenize", {"content": "one two", "model": None}).json() == {"tokens": [0, 1]}
    assert world.post("/v1/tokenize", {"content": "", "model": "vectors"}).json() == {"tokens": []}
    for body, code in (({}, "missing_argument"), ({"content": 5}, "invalid_argument"), (b"{bad", "invalid_json")):
        answer = world.post("/v1/tokenize", body)
        assert (answer.status, answer.error["code"]) == (400, code)


def test_slots(world: Daemon) -> None:
    world.post("/v1/completions", completion(model="a"))
    assert world.get("/v1/slots").json()[0]["id"] == 0
    assert world.get("/v1/slots?model=vectors").json()[0]["id"] == 0
    assert world.post("/v1/slots/3?action=erase").json()["id_slot"] == 3
    assert world.post("/v1/slots/3?action=save", {"filename": "x"}).status == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/v1/slots/0", None, 400, "action"),
        ("/v1/slots/0?action=", None, 400, "action"),
        ("/v1/slots/0?action=dance", None, 400, "action"),
        ("/v1/slots/0?action=erase", b"{bad", 400, None),
        ("/v1/slots/0?action=save", {"filename": 5}, 400, "filename"),
        ("/v1/slots/abc?action=erase", None, 404, None),
        ("/v1/slots/-1?action=erase", None, 404, None),
        (f"/v1/slots/{'1' * 5000}?action=erase&model=a", None, 404, None),
        ("/v1/slots/0?action=erase&model=nobody", None, 404, "model"),
    ],
)
def test_slots_that_cannot_be(world: Daemon, path: str, body: Any, status: int, param: str | None) -> None:
    answer = world.post(path, body)
    assert answer.status == status
    assert answer.error.get("param") == param


def test_figures(make_daemon: Callable[..., Daemon]) -> None:
    fresh = make_daemon()
    fresh.add_model("a")
    with fresh:
        before = fresh.get("/v1/stats").json()
        assert before["request_count_total"] == 0
        assert before["cache_tokens"] is None
        for more in ({}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}, {"n": 2}):
            fresh.chat("a", **more)
        fresh.post("/v1/completions", completion(stream=True))
        fresh.post("/v1/responses", {"model": "a", "input": "x", "stream": True})
        fresh.post("/v1/responses", {"model": "a", "input": "x"})
        after = fresh.get("/v1/stats").json()
        assert after["request_count_total"] == 8
        assert after["output_tokens_total"] == 8 * 6
        assert after["prompt_tokens_total"] == 8 * 7
        assert after["input_tokens_total"] == 8 * 5
        assert after["cache_tokens_total"] == 8 * 2
        fresh.post("/v1/completions", completion())
        last = fresh.get("/v1/stats").json()
        assert (last["time_to_first_token"], last["tokens_per_second"]) == (0.01, pytest.approx(300))
        assert (last["input_tokens"], last["output_tokens"]) == (5, 6)
        fresh.post("/v1/completions", completion(fake={"error": {"status": 500}}))
        assert fresh.get("/v1/stats").json()["request_count_total"] == 10


def test_metrics(make_daemon: Callable[..., Daemon]) -> None:
    fresh = make_daemon()
    name = 'a"b'
    fresh.add_model(name)
    fresh.add_model("c")
    with fresh:
        fresh.chat(name)
        fresh.chat("c")
        answer = fresh.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.body.decode().splitlines()
        samples = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        about = 'type="llm"}'
        mine = [key for key in samples if 'model_name="a\\"b"' in key]
        assert samples["lemonade_server_up"] == "1"
        assert samples["lemonade_loaded_models"] == "1"
        assert samples["lemonade_requests_total"] == "2"
        assert samples["lemonade_failed_requests_total"] == "0"
        loaded = {key: value for key, value in samples.items() if key.startswith("lemonade_model_loaded{")}
        assert sorted(loaded.values()) == ["0", "1"]
        assert any(key.startswith("lemonade_model_output_tokens_total{") and key.endswith(about) for key in mine)
        assert any(key.startswith("lemonade_llamacpp_requests_processing{") for key in samples)
        kinds = [line.split()[2] for line in lines if line.startswith("# TYPE ")]
        assert len(kinds) == len(set(kinds)), "each metric is declared once"
        assert not seen(fresh, "c")[1:], "engines are asked for figures only by way of their metrics"


def test_every_path_of_the_endpoints(world: Daemon) -> None:
    for prefix in ("/v0", "/api/v0", "/api/v1"):
        assert world.get(f"{prefix}/stats").status == 200
        assert world.post(f"{prefix}/completions", completion()).status == 200
    assert world.get("/v1/metrics").status == 404
    assert world.get("/v1/completions").status == 405
