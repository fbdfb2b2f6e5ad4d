from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.engines.engine import ABANDONED
from lemonade.errors import ContextLengthExceeded, EngineLost, EngineReplied, EngineSilent
from lemonade.inference import relay as module
from lemonade.inference.chat import check_reply
from lemonade.inference.events import boundary
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import DONE, PING, EngineRequest, Relay, forward
from lemonade.model import Model
from lemonade.system.metrics import Metrics

MODEL = Model(name="m", recipe="llamacpp")
CHUNKS = [
    'data: {"model":"m","choices":[{"delta":{"content":"안녕하세요 🌍"}}]}\n\n'.encode(),
    'data: {"model":"m","choices":[{"delta":{"content":"北京"},"finish_reason":"stop"}]}\r\n\r\n'.encode(),
]


class Sink:
    """Keeps what a client would see."""

    def __init__(self) -> None:
        self.started = False
        self.ended = False
        self.writes: list[bytes] = []

    async def start(self) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        self.writes.append(data)

    async def end(self, data: bytes = b"") -> None:
        self.writes.append(data)
        self.ended = True

    async def reply(self, body: bytes) -> None:
        self.started = self.ended = True
        self.writes.append(body)

    @property
    def body(self) -> bytes:
        return b"".join(self.writes)


class Reply:
    """An engine's answer: chunks, pauses in seconds, or a failure."""

    def __init__(self, parts: list[bytes | float | Exception], status: int = 200) -> None:
        self.status = status
        self.parts = list(parts)
        self.closed = False

    async def chunk(self) -> bytes:
        while self.parts:
            part = self.parts[0]
            if isinstance(part, float):
                # A reader that gives up in between comes back to what is left of the pause.
                self.parts[0] = left = part - 0.01
                await asyncio.sleep(0.01)
                if left > 0:
                    continue
            self.parts.pop(0)
            if isinstance(part, Exception):
                raise part
            if isinstance(part, bytes):
                return part
        return b""

    async def read(self, limit: int | None = None) -> bytes:
        return b"".join([part async for part in self._all()])

    async def _all(self) -> AsyncIterator[bytes]:
        while part := await self.chunk():
            yield part

    @property
    def complete(self) -> bool:
        return not self.parts

    def close(self) -> None:
        self.closed = True


class Lease:
    def __init__(self, reply: Reply | Exception, delay: float = 0, returncode: int = -9) -> None:
        process = SimpleNamespace(returncode=returncode)
        launch = SimpleNamespace(name="llama-server")
        self.resident = SimpleNamespace(launch=launch, device="cpu", process=process)
        self.connection = self
        self._reply, self._delay = reply, delay

    async def request(self, *_: Any) -> Reply:
        await asyncio.sleep(self._delay)
        if isinstance(self._reply, Exception):
            raise self._reply
        return self._reply

    def touch(self) -> None: ...


class Residency:
    """Gives one lease after the other."""

    def __init__(self, *leases: Lease) -> None:
        self.leases = list(leases)

    @asynccontextmanager
    async def lease(self, *_: Any, **__: Any) -> AsyncIterator[Lease]:
        yield self.leases.pop(0)


def ask(stream: bool = True, asked: str = "m") -> EngineRequest:
    return EngineRequest(path="/x", body=b"{}", asked=asked, alias="m", stream=stream)


async def relayed(parts: list[bytes | float | Exception], **more: Any) -> Sink:
    sink = Sink()
    reply = Reply(parts)
    try:
        await Relay(ask(**more), sink).stream(Lease(reply))  # type: ignore[arg-type]
    finally:
        assert reply.closed
    return sink


@given(st.lists(st.integers(1, 40), max_size=30))
def test_bytes_are_the_same_however_they_are_cut(sizes: list[int]) -> None:
    whole = b"".join(CHUNKS) + DONE
    parts: list[bytes | float | Exception] = []
    at = 0
    for size in sizes:
        parts.append(whole[at : at + size])
        at += size
    parts.append(whole[at:])
    sink = asyncio.run(relayed([part for part in parts if part]))
    assert sink.body == whole
    assert sink.ended
    for write in sink.writes[:-1]:
        assert boundary(write) == len(write), "only whole events are passed on"


async def test_done_is_added_when_the_engine_ended_well_without_one() -> None:
    assert (await relayed([CHUNKS[0]])).body == CHUNKS[0] + DONE
    assert (await relayed([CHUNKS[0], b"data: [DONE]"])).body == CHUNKS[0] + DONE


async def test_a_whole_answer_that_no_decoder_gets_to_the_end_of() -> None:
    nested = Reply([3000 * b'{"a":'])
    request = EngineRequest(path="/x", body=b"{}", asked="m", alias="m", check=check_reply)
    with pytest.raises(EngineReplied, match="lacks what it must have"):
        await Relay(request, Sink()).answer(Lease(nested))  # type: ignore[arg-type]
    assert nested.closed


async def test_a_stream_without_an_event_is_no_answer() -> None:
    with pytest.raises(EngineSilent):
        await relayed([])


async def test_silence_is_filled_with_comments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_AFTER", 0.02)
    sink = await relayed([0.07, CHUNKS[0], 0.05, DONE])
    assert sink.writes.count(PING) >= 2
    assert sink.body.replace(PING, b"") == CHUNKS[0] + DONE


async def test_a_long_prompt_is_silence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PING_AFTER", 0.02)
    sink = Sink()
    await Relay(ask(), sink).stream(Lease(Reply([CHUNKS[0], DONE]), delay=0.07))  # type: ignore[arg-type]
    assert sink.writes[0] == PING


async def test_the_name_that_was_asked_for() -> None:
    sink = await relayed([CHUNKS[0], DONE], asked="alias/of-m")
    assert sink.body == CHUNKS[0].replace(b'"model":"m"', b'"model":"alias/of-m"') + DONE


USAGE = b'"usage":{"prompt_tokens":9,"completion_tokens":3}'
TIMINGS = b'"timings":{"cache_n":4,"prompt_n":5,"prompt_ms":20.0}'


@pytest.mark.parametrize(
    "parts",
    [
        [CHUNKS[0], b"data: {%s,%s}\n\n" % (USAGE, TIMINGS) + DONE],
        [CHUNKS[0], b"data: {%s,%s}\n\n" % (USAGE, TIMINGS), DONE],
        [CHUNKS[0] + b"data: {%s}\n\n" % TIMINGS + b"data: {%s}\n\n" % USAGE + DONE],
        [CHUNKS[0], b"data: {%s}\n\n" % TIMINGS, DONE],
        [CHUNKS[0], b"data: {%s,%s}" % (USAGE, TIMINGS)],
        [b'event: x\ndata: {"response":{"usage":{"input_tokens":9}},%s}\n\n' % TIMINGS],
    ],
)
async def test_the_figures_at_the_end_of_a_stream_are_counted(parts: list[Any]) -> None:
    metrics = Metrics()
    await forward(Residency(Lease(Reply(parts))), MODEL, ask(), Sink(), metrics)  # type: ignore[arg-type]
    assert metrics.totals.requests == 1
    assert metrics.totals.prompt_tokens == 9
    assert metrics.totals.input_tokens == 5
    assert metrics.totals.cache_tokens == 4


async def test_a_failure_is_counted_as_one() -> None:
    metrics = Metrics()
    with pytest.raises(EngineSilent):
        await forward(Residency(Lease(Reply([]))), MODEL, ask(), Sink(), metrics)  # type: ignore[arg-type]
    assert (metrics.totals.requests, metrics.totals.failures) == (1, 1)
    assert metrics.models()[0].totals.failures == 1


OVERFLOW = b'{"error":{"code":400,"message":"the request exceeds the available context size","type":"x"}}'


@pytest.mark.parametrize("frame", [b"data: %s\n\n", b"%s\n\n", b"error: %s\n\n", b"%s"])
async def test_an_error_in_place_of_the_first_event_is_raised(frame: bytes) -> None:
    with pytest.raises(ContextLengthExceeded) as caught:
        await relayed([frame % OVERFLOW])
    assert caught.value.status == 400


async def test_an_unframed_error_in_the_middle_is_raised_so_that_clients_see_it() -> None:
    with pytest.raises(EngineReplied, match="boom"):
        await relayed([CHUNKS[0], b'{"error":{"message":"boom"}}\n\n'])


async def test_a_framed_error_in_the_middle_passes_and_is_not_followed_by_done() -> None:
    failure = b'data: {"error":{"message":"boom"}}\n\n'
    assert (await relayed([CHUNKS[0], failure])).body == CHUNKS[0] + failure


async def test_an_engine_lost_before_its_first_byte_is_asked_once_more() -> None:
    sink, metrics = Sink(), Metrics()
    residency = Residency(Lease(EngineLost("gone")), Lease(Reply([CHUNKS[0], DONE])))
    await forward(residency, MODEL, ask(), sink, metrics)  # type: ignore[arg-type]
    assert sink.body == CHUNKS[0] + DONE
    assert (metrics.totals.requests, metrics.totals.failures) == (1, 0), "to the client it is one request"
    residency = Residency(Lease(EngineLost("gone")), Lease(EngineLost("gone again")))
    with pytest.raises(EngineLost, match="again"):
        await forward(residency, MODEL, ask(), Sink(), Metrics())  # type: ignore[arg-type]


async def test_an_engine_that_ended_for_others_is_asked_as_often_as_it_takes() -> None:
    # Its process is the only way to stop the work of clients that left; those who waited behind them are not to blame.
    given_up = [Lease(EngineLost("gave its work up"), returncode=ABANDONED) for _ in range(5)]
    sink = Sink()
    residency = Residency(*given_up, Lease(EngineLost("gone")), Lease(Reply([CHUNKS[0], DONE])))
    await forward(residency, MODEL, ask(), sink, Metrics())  # type: ignore[arg-type]
    assert sink.body == CHUNKS[0] + DONE


async def test_an_engine_lost_in_the_middle_is_not_asked_again() -> None:
    sink = Sink()
    residency = Residency(Lease(Reply([CHUNKS[0], b"data: half", EngineLost("gone")])), Lease(Reply([DONE])))
    with pytest.raises(EngineLost):
        await forward(residency, MODEL, ask(), sink, Metrics())  # type: ignore[arg-type]
    assert sink.body == CHUNKS[0]
    assert len(residency.leases) == 1


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (422, b'{"error":{"message":"m","type":"t","code":"c"}}', (422, "m", "t", "c")),
        (503, b"busy", (503, "busy", "backend_error", None)),
        (400, b"", (400, "llama-server answered 400 without a reason.", "invalid_request_error", None)),
        (500, b'{"error":"text"}', (500, "text", "backend_error", None)),
        (500, b'{"error":{"code":501,"message":"m"}}', (501, "m", "backend_error", None)),
        (500, 3000 * b"[", (500, 3000 * "[", "backend_error", None)),
        (404, b'{"message":"m"}', (404, "m", "invalid_request_error", None)),
        (
            400,
            b'{"error":{"code":400,"message":"Unable.\\nError: Jinja Exception: System first.","type":"t"}}',
            (400, "The model's chat template refuses this conversation: System first.", "t", None),
        ),
        (
            500,
            b'{"error":{"code":500,"message":"image input is not supported - hint: x","type":"server_error"}}',
            (400, "image input is not supported - hint: x", "invalid_request_error", None),
        ),
    ],
)
def test_an_engines_reason_is_kept(status: int, body: bytes, expected: tuple[Any, ...]) -> None:
    error = engine_failure(status, body, "llama-server")
    assert (error.status, error.message, error.type, error.code) == expected
    assert error.details["details"]["backend"] == "llama-server"
