"""What a provider is asked, and what becomes of its answers: against a strict one that misbehaves on demand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lemonade.engines.cloud.connection import CloudConnection
from lemonade.engines.cloud.failures import ProviderUnreachable
from lemonade.engines.cloud.provider import Provider
from lemonade.engines.cloud.providers import Providers
from lemonade.errors import EngineReplied, EngineSilent, LemonadeError, Offline, UnsupportedOperation
from lemonade.inference import chat, cloud, completion, response
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_failure import MAX_ERROR, provider_failure, redirect
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.media import LARGE
from lemonade.model import Model
from lemonade.system.logs import secrets
from lemonade.system.metrics import Metrics
from tests.daemon import free_port, wait_for
from tests.engines.cloud.world import Kept, installed, settings_in
from tests.engines.fake_provider import TEXT, FakeProvider, chat_events

KEY = "ck-right-key"
CHECKS = {
    "chat/completions": chat.check_reply,
    "completions": completion.check_reply,
    "responses": response.check_reply,
}
ASK = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def shared() -> Iterator[FakeProvider]:
    with FakeProvider(KEY) as one:
        yield one


@pytest.fixture
def fake(shared: FakeProvider) -> FakeProvider:
    shared.requests.clear()
    return shared


@pytest.fixture
async def providers(tmp_path: Path, fake: FakeProvider) -> AsyncIterator[Providers]:
    async with installed(tmp_path, fake) as each:
        fake.requests.clear()
        yield each


async def ask(
    providers: Providers, name: str, path: str = "chat/completions", *, metrics: Metrics | None = None, **body: Any
) -> Kept:
    """One request to a model of the provider `afar`; the answer is kept also when it fails."""
    sink = Kept()
    await into(sink, providers, name, path, metrics=metrics, **body)
    return sink


async def into(
    sink: Kept,
    providers: Providers,
    name: str,
    path: str = "chat/completions",
    *,
    metrics: Metrics | None = None,
    **body: Any,
) -> None:
    model = providers.models()[f"afar.{name}"]
    ways = {"chat/completions": {"messages": ASK}, "completions": {"prompt": "x"}, "responses": {"input": "x"}}
    raw = msgspec.json.encode({"model": model.name, **ways[path], **body})
    request = CloudRequest(path=path, body=raw, asked=model.name, stream=body.get("stream") is True, check=CHECKS[path])
    await forward_cloud(providers, model, request, sink, metrics, tell=sink.tell)


# What is asked.


async def test_a_whole_answer(providers: Providers, fake: FakeProvider) -> None:
    metrics = Metrics()
    sink = await ask(providers, "good", metrics=metrics, max_tokens=7)
    answer = msgspec.json.decode(sink.whole or b"")
    assert answer["choices"][0]["message"]["content"] == "Hello from afar."
    assert answer["model"] == "afar.good"
    assert sink.headers == {"x-request-id": "req-1", "x-ratelimit-remaining-requests": "9"}
    assert fake.last["headers"]["authorization"] == f"Bearer {KEY}"
    assert fake.last["body"] == {"model": "good", "messages": ASK, "max_tokens": 7, "max_completion_tokens": 7}
    assert (metrics.totals.prompt_tokens, metrics.totals.output_tokens, metrics.totals.requests) == (9, 4, 1)
    assert metrics.totals.cache_tokens == 3


@pytest.mark.parametrize("limit", ["max_tokens", "max_completion_tokens"])
async def test_a_provider_that_knows_one_name_of_the_limit(
    providers: Providers, fake: FakeProvider, limit: str
) -> None:
    for _ in range(2):
        sink = await ask(providers, "newer", **{limit: 7})
        assert sink.whole
        assert "max_tokens" not in fake.last["body"]
        assert fake.last["body"]["max_completion_tokens"] == 7
    # It was refused once; that is remembered.
    assert len(fake.asked()) == 3


async def test_what_is_the_daemons_own_does_not_go_along(providers: Providers, fake: FakeProvider) -> None:
    await ask(providers, "good", ctx_size=4096, route_trace=True, metadata={"a": "b"}, temperature=None, stop=None)
    assert fake.last["body"].keys() == {"model", "messages"}
    await ask(providers, "good", metadata={"a": "b"}, store=True)
    assert fake.last["body"]["metadata"] == {"a": "b"}


async def test_tools_and_pictures_go_along_as_they_are(providers: Providers, fake: FakeProvider) -> None:
    tools = [
        {"type": "function", "function": {"name": "weather", "parameters": {"maxLength": 5000}}},
        {"type": "other"},
    ]
    choice = {"type": "function", "function": {"name": "weather"}}
    picture = [{"type": "image_url", "image_url": {"url": "https://pictures.example/a.png", "detail": "low"}}]
    messages = [{"role": "user", "content": picture}]
    sink = await ask(providers, "calls", tools=tools, tool_choice=choice, messages=messages)
    assert fake.last["body"]["tools"] == tools
    assert fake.last["body"]["tool_choice"] == choice
    assert fake.last["body"]["messages"] == messages
    made = msgspec.json.decode(sink.whole or b"")["choices"][0]
    assert made["message"]["tool_calls"][0]["function"]["arguments"] == '{"place":"Paris"}'


async def test_a_large_body_goes_along(providers: Providers, fake: FakeProvider) -> None:
    text = "x" * (LARGE + 1000)
    await ask(providers, "good", messages=[{"role": "user", "content": text}])
    assert fake.last["body"]["messages"][0]["content"] == text


async def test_no_cookie_comes_back(providers: Providers) -> None:
    for _ in range(2):
        # The second one would carry what the first one's answer set.
        await ask(providers, "cookies", stream=True)


# Streams.


@pytest.mark.parametrize("name", ["good", "split", "calls", "crlf", "azure"])
async def test_a_stream_comes_back_byte_for_byte(providers: Providers, fake: FakeProvider, name: str) -> None:
    sink = await ask(providers, name, stream=True, stream_options={"include_usage": True})

    class One:
        _model = name
        snapshot = f"{name}-2026-01-01"
        _seen: Any = {"body": {"stream_options": {"include_usage": True}}}  # noqa: RUF012

        def pieces(self) -> list[str]:
            return TEXT

    sent = b"".join(chat_events(One()))  # type: ignore[arg-type]
    sent = sent.replace(b"\n", b"\r\n") if name == "crlf" else sent
    assert sink.bytes == sent.replace(f'"model": "{name}-2026-01-01"'.encode(), f'"model": "afar.{name}"'.encode())
    assert sink.ended
    assert sink.headers["x-request-id"] == "req-1"


async def test_a_name_that_changes_on_the_way_is_the_one_that_was_asked_for(providers: Providers) -> None:
    sink = await ask(providers, "changes", stream=True)
    assert {event["model"] for event in sink.events[:-1]} == {"afar.changes"}
    assert sink.text == "Hello from afar."


async def test_what_a_client_calls_model_stays(providers: Providers) -> None:
    more = {"arguments": '{"model": "x"}', "metadata": {"model": "mine"}}
    event = b"data: " + msgspec.json.encode({"model": "snapshot", "choices": [more]}) + b"\n\n"
    request = CloudRequest(path="chat/completions", body=b"{}", asked="afar.good", stream=True)
    model = providers.models()["afar.good"]
    relay = cloud.CloudRelay(providers.connection("afar"), model, request, Kept(), lambda *_: None, key=None)
    assert relay._edited(event * 2) == event.replace(b"snapshot", b"afar.good") * 2


@pytest.mark.parametrize("asked", [None, {}, {"include_usage": False}])
async def test_figures_that_nobody_asked_for_are_counted_and_not_told(
    providers: Providers, fake: FakeProvider, asked: Any
) -> None:
    metrics = Metrics()
    more = {} if asked is None else {"stream_options": asked}
    sink = await ask(providers, "good", stream=True, metrics=metrics, **more)
    assert fake.last["body"]["stream_options"] == {"include_usage": True}
    assert sink.text == "Hello from afar."
    assert sink.events[-1] == "[DONE]"
    assert all(event["choices"] for event in sink.events[:-1])
    assert (metrics.last.output_tokens, metrics.last.prompt_tokens) == (4, 9)
    assert metrics.last.time_to_first_token > 0


async def test_a_provider_that_does_not_know_stream_options(providers: Providers, fake: FakeProvider) -> None:
    for _ in range(2):
        assert (await ask(providers, "older", stream=True)).text == "Hello from afar."
    assert ["stream_options" in one["body"] for one in fake.asked()] == [True, False, False]


async def test_a_stream_without_its_last_line_gets_it(providers: Providers) -> None:
    sink = await ask(providers, "no-done", stream=True)
    assert sink.text == "Hello from afar."
    assert sink.events[-1] == "[DONE]"


async def test_connections_are_used_again(providers: Providers, fake: FakeProvider) -> None:
    made = []
    accept = fake.get_request
    fake.get_request = lambda: made.append(1) or accept()  # type: ignore[method-assign,func-returns-value,assignment]
    try:
        for _ in range(3):
            await ask(providers, "good", stream=True)
            await ask(providers, "good")
    finally:
        del fake.get_request
    # The one of the discovery is used, or has been closed meanwhile.
    assert len(made) <= 1


@pytest.mark.parametrize("name", ["stalls", "long"])
async def test_who_leaves_stops_the_provider(providers: Providers, fake: FakeProvider, name: str) -> None:
    sink = Kept()
    task = asyncio.create_task(into(sink, providers, name, stream=True))
    async with asyncio.timeout(10):
        await sink.arrived.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for, lambda: fake.last["hung_up"], 15)


async def test_who_leaves_before_a_whole_answer_stops_the_provider(providers: Providers, fake: FakeProvider) -> None:
    task = asyncio.create_task(ask(providers, "stalls"))
    await asyncio.to_thread(wait_for, fake.asked, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.to_thread(wait_for, lambda: fake.last["hung_up"], 10)


async def test_a_provider_that_is_removed_ends_its_answers(providers: Providers) -> None:
    sink = Kept()
    task = asyncio.create_task(into(sink, providers, "stalls", stream=True))
    async with asyncio.timeout(10):
        await sink.arrived.wait()
    providers.uninstall("afar")
    with pytest.raises(ProviderUnreachable, match="changed or removed"):
        await task


async def test_a_provider_that_is_removed_before_it_answers(providers: Providers, fake: FakeProvider) -> None:
    task = asyncio.create_task(ask(providers, "stalls"))
    await asyncio.to_thread(wait_for, fake.asked, 10)
    providers.uninstall("afar")
    with pytest.raises(ProviderUnreachable, match="changed or removed"):
        await task


async def test_a_provider_that_is_removed_between_two_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody = Provider(name="afar", base_url=f"http://127.0.0.1:{free_port()}/v1", allow_insecure_http=True)
    connection = CloudConnection(nobody, lambda: None)
    client = await connection._open()
    send = client.send

    async def fails(*args: Any, **more: Any) -> Any:
        try:
            return await send(*args, **more)
        finally:
            await connection.close()

    monkeypatch.setattr(client, "send", fails)
    for _ in range(2):
        with pytest.raises(ProviderUnreachable, match="changed or removed"):
            await connection.request("GET", "models")
    assert connection._client is None, "nobody would close it"


async def test_many_streams_at_once_are_not_mixed_up(providers: Providers) -> None:
    sinks = await asyncio.gather(*(ask(providers, name, stream=True) for name in ("good", "split") * 20))
    assert {sink.text for sink in sinks} == {"Hello from afar."}
    assert [sink.events[0]["model"] for sink in sinks] == ["afar.good", "afar.split"] * 20


async def test_a_silent_provider_is_bridged(providers: Providers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cloud, "PATIENCE", 0.1)
    sink = await ask(providers, "slow", stream=True)
    assert sink.pieces[0] == b": ping\n\n"
    assert sink.text == "Hello from afar."


async def test_completions_and_responses(providers: Providers, fake: FakeProvider) -> None:
    whole = msgspec.json.decode((await ask(providers, "good", "completions", max_tokens=3)).whole or b"")
    assert whole["choices"][0]["text"] == "Hello from afar."
    assert "max_completion_tokens" not in fake.last["body"]
    sink = await ask(providers, "good", "completions", stream=True)
    assert "".join(event["choices"][0]["text"] for event in sink.events[:-1]) == "Hello from afar."
    whole = msgspec.json.decode((await ask(providers, "good", "responses")).whole or b"")
    assert (whole["model"], whole["status"]) == ("afar.good", "completed")
    metrics = Metrics()
    sink = await ask(providers, "good", "responses", stream=True, metrics=metrics)
    assert sink.events[-1] == "[DONE]"
    assert sink.events[-2]["response"]["model"] == "afar.good"
    assert metrics.last.output_tokens == 4


# Failures.


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("name", "status", "says"),
    [
        ("busy", 429, "Rate limit reached"),
        ("denied", 403, "The key *** may not do this"),
        ("html", 502, "text/html"),
        ("whole", 502, "text/plain"),
        ("nested", 502, "application/json"),
        ("down", 503, "text/html"),
        ("moved", 502, "redirect"),
        ("hangs-up", 502, "cloud (afar) request failed"),
    ],
)
async def test_what_goes_wrong_before_the_first_byte(
    providers: Providers, fake: FakeProvider, name: str, status: int, says: str, stream: bool
) -> None:
    metrics = Metrics()
    sink = Kept()
    with pytest.raises(LemonadeError) as failed:
        await into(sink, providers, name, stream=stream, metrics=metrics)
    assert failed.value.status == status
    assert says in failed.value.message
    assert "cloud (afar) request failed" in failed.value.message
    assert KEY not in str(failed.value.body())
    assert failed.value.__cause__ is None, "a traceback would show what the library had in its hands"
    assert not sink.started
    assert metrics.totals.failures == 1
    # A request that was sent is not sent again by us: the client decides.
    assert len(fake.asked()) == 1


async def test_what_a_provider_says_of_its_failure(providers: Providers) -> None:
    with pytest.raises(EngineReplied) as busy:
        await ask(providers, "busy")
    assert (busy.value.type, busy.value.retry, busy.value.retry_after) == ("rate_limit_error", True, 7)
    with pytest.raises(EngineReplied) as denied:
        await ask(providers, "denied")
    assert (denied.value.code, denied.value.retry) == ("no-***", False)
    assert denied.value.details["status_code"] == 403


async def test_a_wrong_key(tmp_path: Path, fake: FakeProvider) -> None:
    async with installed(tmp_path, fake) as providers:
        model = providers.models()["afar.good"]
        await providers.authenticate("afar", "ck-wrong-key")
        assert providers.models() == {}
        assert "401" in providers.problem("afar")
        request = CloudRequest(path="chat/completions", body=b'{"model":"x","messages":[]}', asked="afar.good")
        with pytest.raises(EngineReplied) as wrong:
            await forward_cloud(providers, model, request, Kept(), None)
    assert wrong.value.status == 401
    assert wrong.value.message == "cloud (afar) request failed: Incorrect API key provided: Bearer ***"


async def test_a_redirect_takes_nothing_along(tmp_path: Path, fake: FakeProvider) -> None:
    with FakeProvider(None) as other:
        fake.elsewhere = other.url
        async with installed(tmp_path, fake) as providers:
            for stream in (False, True):
                with pytest.raises(EngineReplied, match=r"redirect to 127\.0\.0\.1"):
                    await ask(providers, "moved", stream=stream)
            fake.listing = "moved"
            try:
                await providers.install({"name": "afar"})
            finally:
                fake.listing = ""
            assert "redirect" in providers.problem("afar")
        assert other.requests == []


def test_a_redirect_to_a_host_that_is_named_like_the_key_does_not_show_it() -> None:
    secrets.add("Ck-Secret-Key")
    error = redirect("afar", {"location": "https://Ck-Secret-Key.example.com/v1"})
    assert "redirect to ***.example.com, which" in error.message


@pytest.mark.parametrize("name", ["cut", "unended", "stalled"])
async def test_half_a_stream_is_a_failure(providers: Providers, name: str) -> None:
    sink = Kept()
    if name == "stalled":
        (await providers.connection("afar")._open()).timeout = 0.3
        name = "stalls"
    with pytest.raises(ProviderUnreachable) as failed:
        await into(sink, providers, name, stream=True)
    assert sink.text == "Hello"
    assert not sink.ended
    assert failed.value.status == 502
    assert b"[DONE]" not in sink.bytes


async def test_half_a_whole_answer_is_a_failure(providers: Providers) -> None:
    with pytest.raises(ProviderUnreachable):
        await ask(providers, "half")


async def test_a_stream_with_nothing_in_it(providers: Providers) -> None:
    with pytest.raises(EngineSilent, match="without an answer"):
        await ask(providers, "silent", stream=True)


async def test_an_error_as_the_first_event_is_an_error(providers: Providers) -> None:
    sink = Kept()
    with pytest.raises(EngineReplied, match="too much at once") as failed:
        await into(sink, providers, "error-first", stream=True)
    assert failed.value.status >= 500
    assert not sink.started


async def test_an_error_after_the_first_piece_is_told_as_it_came(providers: Providers) -> None:
    sink = await ask(providers, "error-later", stream=True)
    assert sink.events[-1] == {"error": {"message": "it broke", "type": "server_error"}}
    assert sink.ended


async def test_a_key_in_the_text_is_not_passed_on(providers: Providers) -> None:
    sink = await ask(providers, "tells", stream=True)
    assert sink.text == "your key is ***"
    whole = (await ask(providers, "tells")).whole or b""
    assert KEY.encode() not in whole


async def test_a_provider_that_is_down_is_left_alone(tmp_path: Path) -> None:
    providers = Providers(settings_in(tmp_path), {})
    entry = {"name": "afar", "base_url": f"http://127.0.0.1:{free_port()}/v1", "allow_insecure_http": True}
    assert (await providers.install(entry))[1] == 0
    assert "cloud (afar) request failed" in providers.problem("afar")
    model = Model(name="far", recipe="cloud", checkpoints={"main": "far"}, extras={"cloud_provider": "afar"})
    request = CloudRequest(path="chat/completions", body=b'{"model":"x","messages":[]}', asked="far")
    seen = []
    for _ in range(4):
        with pytest.raises(ProviderUnreachable) as failed:
            await forward_cloud(providers, model, request, Kept(), None)
        assert failed.value.retry
        seen.append((failed.value.status, failed.value.retry_after is not None))
    # The discovery was the first failure.
    assert seen == [(502, False), (502, False), (503, True), (503, True)]
    await providers.close()


async def test_a_model_that_is_busy_does_not_make_its_provider_count_as_down(providers: Providers) -> None:
    for _ in range(5):
        with pytest.raises(EngineReplied, match="The model is overloaded") as busy:
            await ask(providers, "overloaded")
        assert (busy.value.status, busy.value.retry) == (503, True)
    assert (await ask(providers, "good")).whole
    for _ in range(3):
        with pytest.raises(EngineReplied):
            await ask(providers, "down")
    with pytest.raises(ProviderUnreachable, match="was not asked"):
        await ask(providers, "good")


async def test_offline_means_no_call(providers: Providers, fake: FakeProvider) -> None:
    providers._settings.change({"offline": True}, persist=False)
    with pytest.raises(Offline):
        await ask(providers, "good")
    assert fake.requests == []


async def test_the_anthropic_wire_has_no_chats(tmp_path: Path) -> None:
    with FakeProvider(KEY, wire="anthropic") as fake:
        async with installed(tmp_path, fake) as providers:
            with pytest.raises(UnsupportedOperation, match="speaks the 'anthropic' wire format"):
                await ask(providers, "good")
        assert fake.asked() == []


async def test_a_provider_without_responses(tmp_path: Path) -> None:
    with FakeProvider(KEY, wire="openai") as fake:
        async with installed(tmp_path, fake) as providers:
            model = providers.models()["afar.good"]
            raw = b'{"model":"afar.good","messages":[],"max_tokens":1}'
            request = CloudRequest(path="messages", body=raw, asked="afar.good")
            with pytest.raises(UnsupportedOperation, match="no Messages API"):
                await forward_cloud(providers, model, request, Kept(), None)


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "3"}, 3),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "Wed, 01 Jan 2020 00:00:00 GMT"}, 0),
        ({"retry-after": "1e99"}, 86400),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "nan"}, None),
        ({}, None),
    ],
)
def test_when_to_come_again(headers: dict[str, str], wait: float | None) -> None:
    assert provider_failure("afar", 429, b"{}", headers).retry_after == wait


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b'"x"',
        b'{"error": null}',
        b'{"error": 5}',
        b'{"error": {"message": 7, "type": [], "code": {}}}',
        b'{"detail": [{"loc": ["body"], "msg": "no"}]}',
        b'{"error": "plain"}',
        b"\xff\xfe",
        b"{" * 3000,
    ],
)
def test_errors_of_all_shapes(body: bytes) -> None:
    error = provider_failure("afar", 418, body, {"content-type": "text/plain"})
    assert error.status == 418
    msgspec.json.encode(error.body())
    assert "cloud (afar) request failed: " in error.message


@pytest.mark.parametrize(
    "beginning",
    [
        b'{"error": {"message": "The input is too long", "param": "messages", "input": "',
        b'{"detail": [{"type": "too_long", "msg": "The input is too long", "input": "',
    ],
)
def test_an_error_that_is_too_long_to_be_read_whole_still_says_why(beginning: bytes) -> None:
    error = provider_failure("afar", 422, beginning + b"x" * MAX_ERROR, {"content-type": "application/json"})
    assert (error.status, error.message) == (422, "cloud (afar) request failed: The input is too long")


def test_an_error_without_end_is_an_error() -> None:
    assert "it answered 500 and no reason" in provider_failure("afar", 500, b"[" * 60000, {}).message


@pytest.mark.parametrize("status", [200, 201, 204])
def test_a_success_that_is_no_answer_is_a_bad_gateway_and_not_worth_another_try(status: int) -> None:
    error = provider_failure("afar", status, b'{"choices": []}', {"content-type": "application/json"})
    assert (error.status, error.retry) == (502, False)
    assert f"it answered {status} and something that is no answer of this API (application/json)" in error.message


@pytest.mark.parametrize("status", [201, 600, 999])
def test_a_status_that_tells_of_no_failure_is_none_of_ours(status: int) -> None:
    error = provider_failure("afar", status, b'{"error": {"message": "no"}}', {})
    assert (error.status, error.retry) == (502, True)
    assert provider_failure("afar", status, b'{"error": {"message": "no", "code": 429}}', {}).status == 429
