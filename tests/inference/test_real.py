"""The text endpoints on real weights, through the whole daemon."""

from __future__ import annotations

import base64
import json
import math
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from tests.bert import WIDTH, minilm, toy_reranker
from tests.daemon import Daemon, events
from tests.weights import smollm2

pytestmark = pytest.mark.real

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
FRANCE = "The capital of France is"


@pytest.fixture(scope="module")
def smol(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A daemon with `smol` (chat), `vectors` and `ranks`."""
    one = Daemon(tmp_path_factory.mktemp("real"), fake_engine=False)
    (one.models / "smol.gguf").symlink_to(smollm2())
    with one:
        for name, file, label in (("vectors", minilm(), "embeddings"), ("ranks", toy_reranker(), "reranking")):
            definition = {"model_name": f"user.{name}", "recipe": "llamacpp", "labels": [label], "source": "local_path"}
            assert one.post("/v1/pull", {**definition, "checkpoint": str(file)}).status == 200
        yield one


def ask(daemon: Daemon, path: str, model: str = "smol", **body: Any) -> Any:
    answer = daemon.post(f"/v1/{path}", {"model": model, "temperature": 0, **body})
    assert answer.status == 200, answer.body
    return answer.json()


def streamed(daemon: Daemon, path: str, **body: Any) -> list[dict[str, Any]]:
    answer = daemon.post(f"/v1/{path}", {"model": "smol", "temperature": 0, "stream": True, **body})
    assert answer.status == 200, answer.body
    told = events(answer.body)
    assert told[-1] == "[DONE]"
    return [json.loads(one) for one in told[:-1]]


# Chats


def test_json_schema_binds_the_answer(smol: Daemon) -> None:
    schema = {
        "type": "object",
        "properties": {"city": {"enum": ["Paris", "Rome"]}, "people": {"type": "integer"}},
        "required": ["city", "people"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "city", "strict": True, "schema": schema}}
    answer = ask(smol, "chat/completions", messages=QUESTION, response_format=form, max_tokens=60)
    found = json.loads(answer["choices"][0]["message"]["content"])
    assert found["city"] in ("Paris", "Rome")
    assert isinstance(found["people"], int)
    answer = ask(smol, "chat/completions", messages=QUESTION, response_format={"type": "json_object"}, max_tokens=5)
    assert answer["choices"][0]["message"]["content"].startswith("{")


def test_stop_seed_and_penalties(smol: Daemon) -> None:
    whole = ask(smol, "chat/completions", messages=QUESTION, max_tokens=30)["choices"][0]["message"]["content"]
    assert "Paris" in whole
    answer = ask(smol, "chat/completions", messages=QUESTION, max_tokens=30, stop=["Paris"])
    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] == whole.partition("Paris")[0]
    wild = {"messages": QUESTION, "max_tokens": 8, "temperature": 1.5, "seed": 11}
    first, second = (ask(smol, "chat/completions", **wild)["choices"][0]["message"]["content"] for _ in range(2))
    assert first == second
    penalised = ask(smol, "chat/completions", messages=QUESTION, max_tokens=8, presence_penalty=2, frequency_penalty=2)
    assert penalised["choices"][0]["message"]["content"]


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 2**63 - 1, "top_k": 2**31 - 1, "temperature": 9.5, "top_p": 0.0},
        {"seed": -(2**63), "top_k": -(2**31) + 1, "temperature": 0.0, "top_p": 1.0, "min_p": 1.0},
        {"repeat_penalty": 0.01, "frequency_penalty": -2, "presence_penalty": -2, "min_p": 0},
        {"logprobs": True, "top_logprobs": 20},
    ],
    ids=str,
)
def test_the_engine_takes_the_bounds(smol: Daemon, more: dict[str, Any]) -> None:
    answer = ask(smol, "chat/completions", messages=QUESTION, max_tokens=2, **more)
    assert answer["usage"]["completion_tokens"] > 0
    assert ask(smol, "completions", prompt=FRANCE, max_tokens=2**31 - 1, stop=["."])["usage"]["completion_tokens"] < 20


def test_several_answers_have_seeds_of_their_own(smol: Daemon) -> None:
    wild = {"messages": QUESTION, "max_tokens": 8, "temperature": 1.5}
    answer = ask(smol, "chat/completions", **wild, seed=11, n=3)
    made = [choice["message"]["content"] for choice in answer["choices"]]
    assert len(set(made)) > 1
    assert made[1] == ask(smol, "chat/completions", **wild, seed=12)["choices"][0]["message"]["content"]
    assert answer["usage"]["completion_tokens"] <= 24
    one = ask(smol, "chat/completions", **wild)
    assert answer["usage"]["prompt_tokens"] == one["usage"]["prompt_tokens"]


def test_log_probabilities_of_a_chat(smol: Daemon) -> None:
    answer = ask(smol, "chat/completions", messages=QUESTION, max_tokens=3, logprobs=True, top_logprobs=2)
    told = answer["choices"][0]["logprobs"]["content"]
    assert len(told) == 3
    assert all(len(token["top_logprobs"]) == 2 and token["logprob"] <= 0 for token in told)


@pytest.mark.parametrize(
    "messages",
    [
        [*QUESTION, {"role": "system", "content": "Be brief."}, {"role": "developer", "content": "Be kind."}],
        [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}],
        [{"role": "user", "content": []}],
        [
            *QUESTION,
            {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "function": {"name": "f"}}]},
            {"role": "tool", "tool_call_id": "1", "content": [{"type": "text", "text": "Paris"}]},
        ],
        [
            *QUESTION,
            {
                "role": "assistant",
                "tool_calls": [{"id": "1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}}],
            },
            {"role": "tool", "tool_call_id": "1", "content": "Paris"},
            {"role": "assistant", "content": None, "reasoning_content": "hm"},
            *QUESTION,
        ],
        [
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [{"id": "1", "function": {"name": "f", "arguments": "{"}}],
            },
            *QUESTION,
        ],
    ],
)
def test_histories_of_agents(smol: Daemon, messages: list[dict[str, Any]]) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
    answer = ask(smol, "chat/completions", messages=messages, tools=[tool], tool_choice=None, max_tokens=4)
    assert answer["usage"]["completion_tokens"] > 0


def weather(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties, "required": list(properties)}
    return {"type": "function", "function": {"name": name, "description": "Weather.", "parameters": parameters}}


TOOLS = [weather("in_city", city={"enum": ["Paris", "Rome"]}), weather("at_place", x={"type": "integer"})]
NAMED = {"type": "function", "function": {"name": "in_city"}}


@pytest.mark.parametrize("choice", ["required", NAMED])
def test_a_call_that_must_be_made_is_made(smol: Daemon, choice: Any) -> None:
    body = {"messages": QUESTION, "tools": TOOLS, "tool_choice": choice, "max_tokens": 80}
    whole = ask(smol, "chat/completions", **body)["choices"][0]
    assert whole["finish_reason"] == "tool_calls"
    assert whole["message"]["content"] is None
    (call,) = whole["message"]["tool_calls"]
    told = streamed(smol, "chat/completions", **body)
    parts = [part for one in told for choice in one["choices"] for part in choice["delta"].get("tool_calls", [])]
    assert len(parts) > 2
    assert parts[0]["function"]["name"] == call["function"]["name"]
    pieces = "".join(part["function"]["arguments"] for part in parts)
    arguments = json.loads(call["function"]["arguments"])
    assert json.loads(pieces) == arguments
    if call["function"]["name"] == "in_city":
        assert arguments["city"] in ("Paris", "Rome")
    else:
        assert isinstance(arguments["x"], int)
    assert call["function"]["name"] == "in_city" or choice == "required"
    assert told[-1]["choices"][0]["finish_reason"] == "tool_calls"


def test_what_a_model_cannot_do_is_no_failure_of_the_daemon(smol: Daemon) -> None:
    pixel = "data:image/png;base64,iVBORw0KGgo="
    body = {"model": "smol", "input": [{"role": "user", "content": [{"type": "input_image", "image_url": pixel}]}]}
    assert smol.post("/v1/responses", body).status == 400
    long = smol.post("/v1/completions", {"model": "smol", "prompt": "word " * 20_000, "max_tokens": 1})
    assert (long.status, long.error["code"]) == (400, "context_length_exceeded")
    bad = smol.post("/v1/completions", {"model": "smol", "prompt": [10**6], "max_tokens": 1})
    assert bad.status == 400


# Completions


def test_completions_of_texts_and_tokens(smol: Daemon) -> None:
    tokens = ask(smol, "tokenize", content=FRANCE)["tokens"]
    answer = ask(smol, "completions", prompt=[FRANCE, tokens], max_tokens=2, echo=True)
    assert [choice["text"] for choice in answer["choices"]] == [FRANCE + " Paris."] * 2
    assert answer["usage"]["prompt_tokens"] == 2 * len(tokens)
    assert answer["usage"]["completion_tokens"] == 4
    assert ask(smol, "completions", prompt=tokens, max_tokens=1)["choices"][0]["text"] == " Paris"


def test_a_prompt_is_scored_as_it_would_be_generated(smol: Daemon) -> None:
    made = ask(smol, "completions", prompt=FRANCE, max_tokens=2, logprobs=2)["choices"][0]
    scored = ask(smol, "completions", prompt=FRANCE + made["text"], max_tokens=0, logprobs=2, echo=True)["choices"][0]
    assert scored["text"] == FRANCE + made["text"]
    assert scored["logprobs"]["tokens"][-2:] == made["logprobs"]["tokens"]
    assert scored["logprobs"]["token_logprobs"][-2:] == pytest.approx(made["logprobs"]["token_logprobs"], abs=0.05)
    assert scored["logprobs"]["token_logprobs"][0] is None
    assert "".join(scored["logprobs"]["tokens"]) == scored["text"]
    places = zip(scored["logprobs"]["text_offset"], scored["logprobs"]["tokens"], strict=True)
    assert all(scored["text"][at:].startswith(token) for at, token in places)
    worse = ask(smol, "completions", prompt=FRANCE + " Rome.", max_tokens=1, logprobs=1, echo=True)["choices"][0]
    assert worse["logprobs"]["token_logprobs"][5] < made["logprobs"]["token_logprobs"][0]
    assert worse["logprobs"]["top_logprobs"][5][" Paris"] == pytest.approx(
        made["logprobs"]["token_logprobs"][0], abs=0.05
    )


def test_a_stream_of_completions(smol: Daemon) -> None:
    told = streamed(smol, "completions", prompt=[FRANCE, "One two"], max_tokens=3, echo=True, logprobs=0)
    made: dict[int, str] = {}
    tokens: dict[int, list[str]] = {}
    for chunk in told:
        for choice in chunk["choices"]:
            made[choice["index"]] = made.get(choice["index"], "") + choice["text"]
            tokens.setdefault(choice["index"], []).extend((choice["logprobs"] or {"tokens": []})["tokens"])
    assert made[0].startswith(FRANCE + " Paris.")
    assert made[1].startswith("One two")
    assert {index: "".join(parts) for index, parts in tokens.items()} == made
    assert told[-1]["usage"]["completion_tokens"] == 6


# Responses


def test_responses(smol: Daemon) -> None:
    items = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": [{"type": "input_text", "text": "hi"}]},
        {"role": "assistant", "content": "hello"},
        {"type": "reasoning", "summary": []},
        {"type": "function_call", "id": None, "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        {"type": "message", "role": "user", "content": "What is the capital of France?"},
    ]
    answer = ask(smol, "responses", input=items, instructions="Speak English.", max_output_tokens=12)
    cut = answer["usage"]["output_tokens"] == 12
    assert answer["status"] == ("incomplete" if cut else "completed")
    assert answer["incomplete_details"] == ({"reason": "max_output_tokens"} if cut else None)
    assert answer["output"][0]["content"][0]["text"]
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
    form = {"format": {"type": "json_schema", "name": "n", "schema": schema}}
    answer = ask(smol, "responses", input="Give me a number.", text=form, max_output_tokens=40)
    assert isinstance(json.loads(answer["output"][0]["content"][0]["text"])["a"], int)


def test_a_function_that_a_response_must_call_is_called(smol: Daemon) -> None:
    tools = [{"type": "function", **tool["function"]} for tool in TOOLS]
    body = {"input": "Weather?", "tools": tools, "tool_choice": {"type": "function", "name": "in_city"}}
    (call,) = ask(smol, "responses", **body, max_output_tokens=60)["output"]
    assert (call["type"], call["name"]) == ("function_call", "in_city")
    assert json.loads(call["arguments"])["city"] in ("Paris", "Rome")
    told = streamed(smol, "responses", **body, max_output_tokens=60)
    pieces = [one["delta"] for one in told if one["type"] == "response.function_call_arguments.delta"]
    assert json.loads("".join(pieces)) == json.loads(told[-1]["response"]["output"][0]["arguments"])


def test_one_of_several_functions_is_called_by_a_response(smol: Daemon) -> None:
    tools = [
        {"type": "function", "name": name, "parameters": {"properties": {"x": {"$ref": "#/$defs/X"}}, **rest}}
        for name, kind in (("a", "boolean"), ("b", "integer"))
        for rest in [{"type": "object", "required": ["x"], "$defs": {"X": {"type": kind}}}]
    ]
    body = {"input": "Call b with 7.", "tools": tools, "tool_choice": "required", "max_output_tokens": 60}
    (call,) = ask(smol, "responses", **body)["output"]
    kinds: dict[str, type] = {"a": bool, "b": int}
    assert call["type"] == "function_call"
    assert type(json.loads(call["arguments"])["x"]) is kinds[call["name"]]
    told = streamed(smol, "responses", **body)
    (added,) = (one["item"] for one in told if one["type"] == "response.output_item.added")
    (done,) = (one for one in told if one["type"] == "response.function_call_arguments.done")
    pieces = "".join(one["delta"] for one in told if one["type"] == "response.function_call_arguments.delta")
    (whole,) = told[-1]["response"]["output"]
    assert added["name"] == done["name"] == whole["name"]
    assert added["call_id"] == whole["call_id"]
    assert pieces == done["arguments"] == whole["arguments"]
    assert type(json.loads(pieces)["x"]) is kinds[added["name"]]
    chat = {"messages": QUESTION, "tools": [{"type": "function", "function": tool} for tool in tools]}
    answer = ask(smol, "chat/completions", **chat, tool_choice="required", max_tokens=60)
    function = answer["choices"][0]["message"]["tool_calls"][0]["function"]
    assert type(json.loads(function["arguments"])["x"]) is kinds[function["name"]]


def test_a_stream_of_a_response(smol: Daemon) -> None:
    told = streamed(smol, "responses", input="Say hello.", max_output_tokens=4)
    kinds = [one["type"] for one in told]
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"]
    assert kinds[-1] == "response.incomplete", "it was cut off"
    text = "".join(one["delta"] for one in told if one["type"] == "response.output_text.delta")
    assert told[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert told[-1]["response"]["model"] == "smol"
    assert told[-1]["timings"]["predicted_n"] == told[-1]["response"]["usage"]["output_tokens"]


# Vectors and rankings


def test_vectors_mean_something_and_are_the_same_in_both_formats(smol: Daemon) -> None:
    texts = [
        "A man is eating food.",
        "A man is eating a piece of bread.",
        "Quarterly revenue rose by nine percent.",
        "Earnings increased in the third quarter.",
        "",
    ]
    numbers = ask(smol, "embeddings", "vectors", input=texts, encoding_format="float")
    coded = ask(smol, "embeddings", "vectors", input=texts, encoding_format="base64")
    vectors = [one["embedding"] for one in numbers["data"]]
    assert [one["index"] for one in numbers["data"]] == list(range(5))
    for vector, other in zip(vectors, coded["data"], strict=True):
        assert len(vector) == WIDTH
        assert struct.unpack(f"<{WIDTH}f", base64.b64decode(other["embedding"])) == pytest.approx(vector, abs=1e-6)
        assert math.hypot(*vector) == pytest.approx(1, abs=1e-4)

    def close(one: int, other: int) -> float:
        return sum(a * b for a, b in zip(vectors[one], vectors[other], strict=True))

    assert close(0, 1) > 0.6 > close(0, 2)
    assert close(2, 3) > 0.4 > close(1, 3)
    assert numbers["model"] == "vectors"
    assert numbers["usage"]["prompt_tokens"] == numbers["usage"]["total_tokens"] > 20


def test_vectors_are_those_of_the_model_asked_directly(smol: Daemon) -> None:
    """The library computes them in this process, without any server."""
    import xllamacpp

    texts = ["A man is eating food.", "Quarterly revenue rose by nine percent.", "naïve café 北京 🌍", "word " * 200]
    params = xllamacpp.CommonParams()
    params.model.path, params.embedding, params.cpuparams.n_threads = str(minilm()), True, 2
    params.n_batch = params.n_ubatch = params.n_ctx = 1024
    server = xllamacpp.Server(params)
    direct = server.handle_embeddings({"input": texts})
    ours = ask(smol, "embeddings", "vectors", input=texts)
    for one, other in zip(ours["data"], direct["data"], strict=True):
        pairs = list(zip(one["embedding"], other["embedding"], strict=True))
        lengths = math.hypot(*one["embedding"]) * math.hypot(*other["embedding"])
        assert sum(a * b for a, b in pairs) / lengths >= 0.9999


def test_vectors_of_tokens_and_of_many_texts(smol: Daemon) -> None:
    text = ask(smol, "embeddings", "vectors", input="hi")["data"][0]["embedding"]
    inner = ask(smol, "tokenize", "vectors", content="hi", add_special=True)["tokens"]
    for given in (inner, [inner]):
        assert ask(smol, "embeddings", "vectors", input=given)["data"][0]["embedding"] == pytest.approx(text, abs=1e-5)
    many = ask(smol, "embeddings", "vectors", input=[f"text {number}" for number in range(33)])["data"]
    assert [one["index"] for one in many] == list(range(33))
    alone = ask(smol, "embeddings", "vectors", input="text 32")["data"][0]["embedding"]
    assert many[32]["embedding"] == pytest.approx(alone, abs=1e-3)


def test_texts_and_widths_that_a_model_does_not_have(smol: Daemon) -> None:
    long = smol.post("/v1/embeddings", {"model": "vectors", "input": "word " * 700})
    assert (long.status, long.error["code"]) == (400, "context_length_exceeded")
    assert len(ask(smol, "embeddings", "vectors", input="x", dimensions=WIDTH)["data"][0]["embedding"]) == WIDTH
    assert (
        smol.post("/v1/embeddings", {"model": "vectors", "input": "x", "dimensions": 64}).error["param"] == "dimensions"
    )


def test_the_form_of_a_ranking(smol: Daemon) -> None:
    documents = ["A man is eating.", {"text": "Revenue rose."}, "The girl carries a baby."]
    answer = ask(smol, "rerank", "ranks", query="food", documents=documents, return_documents=True)
    results = answer["results"]
    assert sorted(one["index"] for one in results) == [0, 1, 2]
    scores = [one["relevance_score"] for one in results]
    assert scores == sorted(scores, reverse=True)
    assert {one["document"]["text"] for one in results if one["index"] == 1} == {"Revenue rose."}
    top = ask(smol, "rerank", "ranks", query="food", documents=documents, top_n=1)["results"]
    assert [one["index"] for one in top] == [results[0]["index"]]


# Slots and figures


def test_slots_and_figures(smol: Daemon) -> None:
    ask(smol, "chat/completions", messages=QUESTION, max_tokens=2)
    assert smol.get("/v1/slots").json()[0]["n_ctx"] > 0
    erased = smol.post("/v1/slots/0?action=erase&model=smol")
    assert erased.status in (200, 501), "501 when the engine has no folder for slots"
    stats = smol.get("/v1/stats").json()
    assert stats["output_tokens"] == 2
    assert stats["tokens_per_second"] > 0
    assert stats["time_to_first_token"] > 0
    page = smol.get("/metrics").body.decode()
    sample = next(line for line in page.splitlines() if line.startswith("lemonade_llamacpp_tokens_predicted_total{"))
    assert 'model_name="' in sample
    assert float(sample.rsplit(" ", 1)[1]) > 0
