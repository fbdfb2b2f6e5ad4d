"""OpenAI's library for Python against a daemon, with its default settings: retries included."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from tests.daemon import Daemon, wait_for
from tests.weights import smollm2

Make = Callable[..., Daemon]

ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "What is the capital of France?"}]
TOOL: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather in a place",
        "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
    },
}
CALL = {"name": "weather", "arguments": '{"place":"Paris"}'}


def client_of(daemon: Daemon, **more: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{daemon.url}/v1", **{"api_key": "none needed", **more})


@pytest.fixture
def client(daemon: Daemon) -> Iterator[openai.OpenAI]:
    with client_of(daemon) as one:
        yield one


def test_chat(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model="a", messages=ASK)
    assert isinstance(answer, ChatCompletion)
    assert answer.model == "a"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == "The capital of France is Paris."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="a", messages=ASK, stream=True) as stream:
        chunks = list(stream)
    for chunk in chunks:
        # The library builds its objects without checking them.
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
        assert chunk.model == "a"
        assert chunk.usage is None
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text == "The capital of France is Paris."
    assert chunks[-1].choices[0].finish_reason == "stop"


def test_usage_at_the_end_of_a_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(
        model="a", messages=ASK, stream=True, stream_options={"include_usage": True}
    ) as stream:
        chunks = list(stream)
    last = chunks[-1]
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 6
    assert all(chunk.usage is None for chunk in chunks[:-1])


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(daemon: Daemon, client: openai.OpenAI, streamed: bool) -> None:
    fake = {"fake": {"text": "", "tool_call": CALL}}
    if streamed:
        with client.chat.completions.stream(model="a", messages=ASK, tools=[TOOL], extra_body=fake) as stream:
            answer = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(model="a", messages=ASK, tools=[TOOL], extra_body=fake)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.tool_calls is not None
    assert choice.message.tool_calls[0].to_dict()["function"]["arguments"] == CALL["arguments"]
    sent = daemon.seen("a")["requests"][-1]["body"]["tools"][0]["function"]
    assert (sent["name"], sent["parameters"]["required"]) == ("weather", ["place"])
    follow_up: list[ChatCompletionMessageParam] = [
        *ASK,
        {"role": "assistant", "tool_calls": [{"id": "call_fake", "type": "function", "function": CALL}]},  # type: ignore
        {"role": "tool", "tool_call_id": "call_fake", "content": "rain"},
    ]
    assert client.chat.completions.create(model="a", messages=follow_up, tools=[TOOL]).choices


@pytest.mark.parametrize("streamed", [False, True])
def test_two_tools_in_one_answer(client: openai.OpenAI, streamed: bool) -> None:
    other = {"name": "time", "arguments": '{"zone":"Europe/Paris"}'}
    body: dict[str, Any] = {"model": "a", "messages": ASK, "parallel_tool_calls": True}
    body["tools"] = [TOOL, {"type": "function", "function": {"name": "time", "parameters": {"type": "object"}}}]
    body["extra_body"] = {"fake": {"text": "", "tool_calls": [CALL, other]}}
    if streamed:
        with client.chat.completions.stream(**body) as stream:
            answer = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(**body)
    calls = [call.to_dict() for call in answer.choices[0].message.tool_calls or []]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [
        (CALL["name"], CALL["arguments"]),
        (other["name"], other["arguments"]),
    ]
    assert len({call["id"] for call in calls}) == 2


def test_leaving_a_stream_reaches_the_engine(daemon: Daemon, client: openai.OpenAI) -> None:
    fake = {"fake": {"tokens": 2000, "interval": 0.02}}
    with client.chat.completions.create(model="a", messages=ASK, stream=True, extra_body=fake) as stream:
        for number, _ in enumerate(stream):
            if number == 3:
                break
    wait_for(lambda: daemon.seen("a")["requests"][-1]["hung_up"], 3)
    wait_for(lambda: not daemon.entry("a")["is_busy"], 3)


def test_a_timeout_of_the_client_reaches_the_engine(daemon: Daemon, client: openai.OpenAI) -> None:
    impatient = client.with_options(timeout=0.5, max_retries=0)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(model="a", messages=ASK, extra_body={"fake": {"stall": "headers"}})
    wait_for(lambda: daemon.seen("a")["requests"][-1]["hung_up"], 3)


async def test_the_asynchronous_client(daemon: Daemon) -> None:
    async with openai.AsyncOpenAI(base_url=f"{daemon.url}/v1", api_key="none needed") as client:
        text = ""
        async for chunk in await client.chat.completions.create(model="a", messages=ASK, stream=True):
            text += chunk.choices[0].delta.content or ""
    assert text == "The capital of France is Paris."


def test_models(daemon: Daemon, client: openai.OpenAI) -> None:
    assert {"a", "b", "c"} <= {model.id for model in client.models.list()}
    assert client.models.retrieve("a").id == "a"


def test_errors_have_the_types_of_the_library(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="none", messages=ASK)
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("none")
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="a", messages=ASK, temperature="hot")  # type: ignore[call-overload]
    assert (wrong.value.code, wrong.value.param) == ("invalid_argument", "temperature")
    with pytest.raises(openai.BadRequestError) as long:
        client.chat.completions.create(model="a", messages=ASK, extra_body={"fake": {"err400": True}})
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.UnprocessableEntityError):
        client.chat.completions.create(model="a", messages=ASK, extra_body={"fake": {"error": {"status": 422}}})


def test_an_engine_that_dies_in_a_stream_raises(daemon: Daemon, client: openai.OpenAI) -> None:
    fake = {"fake": {"tokens": 9, "crash_after": 4}}
    with (
        client.chat.completions.create(model="a", messages=ASK, stream=True, extra_body=fake) as stream,
        pytest.raises(openai.APIError, match="SIGKILL"),
    ):
        for chunk in stream:
            assert chunk.choices
    assert client.chat.completions.create(model="a", messages=ASK).choices


def test_keys(make_daemon: Make) -> None:
    with make_daemon(env={"LEMONADE_API_KEY": "sk-right"}) as one:
        with client_of(one, api_key="sk-right") as good:
            assert good.models.list().data == []
        with client_of(one, api_key="sk-wrong") as bad, pytest.raises(openai.AuthenticationError) as refused:
            bad.models.list()
        assert refused.value.code == "invalid_api_key"


# No storms of retries: the library sends a request that failed with 408, 409, 429 or 5xx twice more.


def test_a_mistake_is_sent_once(daemon: Daemon, client: openai.OpenAI) -> None:
    assert client.chat.completions.create(model="a", messages=ASK).choices
    asked = len(daemon.seen("a")["requests"])
    fake = {"fake": {"error": {"status": 500, "text": "it cannot be done"}}}
    with pytest.raises(openai.InternalServerError):
        client.chat.completions.create(model="a", messages=ASK, extra_body=fake)
    assert len(daemon.seen("a")["requests"]) == asked + 1


def test_a_model_that_fails_to_load_is_started_once(make_daemon: Make) -> None:
    one = make_daemon(switches={"exit_at_start": 1})
    one.add_model("a")
    with one, client_of(one) as client:
        with pytest.raises(openai.InternalServerError) as failed:
            client.chat.completions.create(model="a", messages=ASK)
        assert len(one.starts) == 1
    assert failed.value.code == "model_load_error"
    assert "fatal: the file is no model" in failed.value.message


def test_a_full_queue_is_waited_for(daemon: Daemon, client: openai.OpenAI) -> None:
    """429 comes with `Retry-After`, so that the library succeeds without anybody noticing."""
    assert client.chat.completions.create(model="a", messages=ASK).choices
    daemon.post("/internal/set", {"max_queued_requests": 0})
    try:
        fake = {"fake": {"tokens": 30, "interval": 0.02}}
        with client.chat.completions.create(model="a", messages=ASK, stream=True, extra_body=fake) as stream:
            next(iter(stream))
            began = time.monotonic()
            with client_of(daemon) as other:
                assert other.chat.completions.create(model="a", messages=ASK).choices
            assert time.monotonic() - began > 0.5
    finally:
        daemon.post("/internal/set", {"max_queued_requests": 256})


@pytest.mark.real
def test_a_real_model(make_daemon: Make) -> None:
    one = make_daemon(fake_engine=False)
    weights = smollm2()
    (one.models / weights.name).symlink_to(weights)
    name = Path(weights.name).stem
    with one, client_of(one) as client:
        assert name in [model.id for model in client.models.list()]
        options: dict[str, Any] = {"max_tokens": 12, "temperature": 0, "seed": 1}
        whole = client.chat.completions.create(model=name, messages=ASK, **options)
        with client.chat.completions.create(
            model=name, messages=ASK, stream=True, stream_options={"include_usage": True}, **options
        ) as stream:
            chunks = list(stream)
    text = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert text.strip()
    assert text == whole.choices[0].message.content
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.model_dump(), strict=True)
    assert chunks[-1].usage is not None
    assert whole.usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
