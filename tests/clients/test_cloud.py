"""The official libraries and models of cloud providers: OpenAI's for Python and JavaScript, Anthropic's for Python."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest

from tests.clients.environment import run_node
from tests.daemon import Daemon, wait_for
from tests.engines.fake_provider import FakeProvider

KEY = "ck-right-key"
ASK: list[Any] = [{"role": "user", "content": "hi"}]
TOOL: dict[str, Any] = {"name": "weather", "description": "The weather", "parameters": {"type": "object"}}
SAID = "Hello from afar."


@pytest.fixture(scope="module")
def fakes() -> Iterator[dict[str, FakeProvider]]:
    with FakeProvider(KEY) as one, FakeProvider(KEY, wire="anthropic") as other:
        yield {"openai": one, "anthropic": other}


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, fakes: dict[str, FakeProvider]) -> Iterator[Daemon]:
    """A daemon with the providers `afar` (openai) and `claude` (anthropic)."""
    with Daemon(tmp_path_factory.mktemp("site")) as one:
        for name, wire in (("afar", "openai"), ("claude", "anthropic")):
            body = {"backend": "cloud", "provider": name, "base_url": fakes[wire].url, "allow_insecure_http": True}
            assert one.post("/v1/install", {**body, "wire_format": wire, "api_key": KEY}).status == 200
        yield one


@pytest.fixture
def client(site: Daemon) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{site.url}/v1", api_key="none needed") as one:
        yield one


@pytest.fixture
def claude(site: Daemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=site.url, api_key="none needed") as one:
        yield one


# OpenAI's library for Python.


def test_chat(client: openai.OpenAI) -> None:
    assert "afar.good" in {model.id for model in client.models.list()}
    answer = client.chat.completions.create(model="afar.good", messages=ASK)
    assert (answer.model, answer.choices[0].message.content) == ("afar.good", SAID)
    assert answer.usage is not None
    assert answer.usage.total_tokens == 13


def test_stream(client: openai.OpenAI) -> None:
    with client.chat.completions.create(model="afar.good", messages=ASK, stream=True) as stream:
        chunks = list(stream)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == SAID
    with client.chat.completions.create(
        model="afar.good", messages=ASK, stream=True, stream_options={"include_usage": True}
    ) as stream:
        *_, last = stream
    assert last.usage is not None
    assert (last.choices, last.usage.completion_tokens) == ([], 4)


@pytest.mark.parametrize("streamed", [False, True])
def test_tools(client: openai.OpenAI, streamed: bool) -> None:
    tools: list[Any] = [{"type": "function", "function": TOOL}]
    if streamed:
        with client.chat.completions.stream(model="afar.calls", messages=ASK, tools=tools) as stream:
            answer: Any = stream.get_final_completion()
    else:
        answer = client.chat.completions.create(model="afar.calls", messages=ASK, tools=tools)
    (call,) = answer.choices[0].message.tool_calls
    assert (call.function.name, call.function.arguments) == ("weather", '{"place":"Paris"}')


def test_responses(client: openai.OpenAI) -> None:
    assert client.responses.create(model="afar.good", input="hi").output_text == SAID
    with client.responses.stream(model="afar.good", input="hi") as stream:
        pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
    assert "".join(pieces) == SAID


def test_errors_have_the_types_of_the_library(client: openai.OpenAI, fakes: dict[str, FakeProvider]) -> None:
    once = client.with_options(max_retries=0)
    with pytest.raises(openai.RateLimitError) as busy:
        once.chat.completions.create(model="afar.busy", messages=ASK)
    assert busy.value.response.headers["retry-after"] == "7"
    with pytest.raises(openai.APIError):
        list(once.chat.completions.create(model="afar.cut", messages=ASK, stream=True))
    before = len(fakes["openai"].requests)
    with pytest.raises(openai.PermissionDeniedError, match=r"The key \*\*\* may not do this"):
        client.chat.completions.create(model="afar.denied", messages=ASK)
    assert len(fakes["openai"].requests) == before + 1, "it was not sent again"


def test_leaving_a_stream_reaches_the_provider(client: openai.OpenAI, fakes: dict[str, FakeProvider]) -> None:
    with client.chat.completions.create(model="afar.long", messages=ASK, stream=True) as stream:
        for number, _ in enumerate(stream):
            if number == 3:
                break
    wait_for(lambda: fakes["openai"].asked()[-1]["hung_up"], 15)


# Anthropic's library for Python.


def test_a_message(claude: anthropic.Anthropic) -> None:
    answer = claude.messages.create(model="claude.good", max_tokens=9, messages=ASK)
    assert answer.content[0].type == "text"
    assert answer.content[0].text == SAID
    assert (answer.stop_reason, answer.usage.output_tokens) == ("end_turn", 4)


def test_a_stream_of_messages(claude: anthropic.Anthropic) -> None:
    with claude.messages.stream(model="claude.good", max_tokens=9, messages=ASK) as stream:
        assert "".join(stream.text_stream) == SAID
        assert stream.get_final_message().stop_reason == "end_turn"


def test_tools_of_messages(claude: anthropic.Anthropic, fakes: dict[str, FakeProvider]) -> None:
    tool: Any = {"name": "weather", "input_schema": {"type": "object"}}
    answer = claude.messages.create(model="claude.calls", max_tokens=9, messages=ASK, tools=[tool])
    assert answer.content[0].type == "tool_use"
    assert answer.content[0].input == {"place": "Paris"}
    assert fakes["anthropic"].last["body"]["tools"] == [tool]


def test_betas(claude: anthropic.Anthropic, fakes: dict[str, FakeProvider]) -> None:
    claude.beta.messages.create(model="claude.good", max_tokens=9, messages=ASK, betas=["context-1m-2025-08-07"])
    assert fakes["anthropic"].last["headers"]["anthropic-beta"] == "context-1m-2025-08-07"


def test_errors_have_the_types_of_anthropics_library(claude: anthropic.Anthropic) -> None:
    once = claude.with_options(max_retries=0)
    with pytest.raises(anthropic.RateLimitError):
        once.messages.create(model="claude.busy", max_tokens=9, messages=ASK)
    with pytest.raises(anthropic.NotFoundError):
        claude.messages.create(model="nobody", max_tokens=9, messages=ASK)
    with pytest.raises(anthropic.PermissionDeniedError):
        claude.messages.create(model="claude.denied", max_tokens=9, messages=ASK)
    with pytest.raises(anthropic.BadRequestError, match="chat/completions"):
        claude.messages.create(model="afar.good", max_tokens=9, messages=ASK)
    with (
        pytest.raises(anthropic.APIError),
        once.messages.stream(model="claude.cut", max_tokens=9, messages=ASK) as stream,
    ):
        list(stream)


# OpenAI's library for JavaScript.


def test_javascript(site: Daemon) -> None:
    seen = run_node("cloud.mjs", f"{site.url}/v1")
    assert seen["chat"]["choices"][0]["message"]["content"] == SAID
    assert "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in seen["stream"]) == SAID
    assert seen["usage"]["usage"]["completion_tokens"] == 4
    assert seen["tools"]["choices"][0]["message"]["tool_calls"][0]["function"]["arguments"] == '{"place":"Paris"}'
    assert "afar.good" in seen["models"]
    assert (seen["busy"]["type"], seen["busy"]["status"]) == ("RateLimitError", 429)
    assert seen["denied"]["type"] == "PermissionDeniedError"
    assert "CANARY" not in str(seen)
    assert seen["cut"] is not None
