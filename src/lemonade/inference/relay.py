"""The way of an engine's answer to the client.

An answer in one piece is checked and passed on. A stream is passed on event by event, byte for byte; it is looked into
only where it must be: at its first event, at its end, and where the model's name has to be the one that was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lemonade.engines.engine import ABANDONED
from lemonade.errors import EngineError, EngineLost, EngineReplied, EngineSilent
from lemonade.inference.events import Assembler
from lemonade.inference.failure import engine_failure
from lemonade.inference.measurement import measured_stream

if TYPE_CHECKING:
    from lemonade.engines.reply import Reply
    from lemonade.model import Model
    from lemonade.residency.lease import Lease
    from lemonade.residency.manager import Residency
    from lemonade.residency.policy import ResidencyClass
    from lemonade.system.metrics import Measurement, Metrics

logger = logging.getLogger("lemonade.inference")

#: Seconds without a byte after which a stream gets a comment, so that proxies and clients do not give it up.
PING_AFTER = 1.0
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
#: Most bytes of an engine's error that are read.
MAX_ERROR = 64 * 1024
#: Beginnings of a well-formed event; anything else is an engine's error that slipped into the stream unframed.
_FIELDS = (b"data:", b"event:", b":", b"id:", b"retry:")


class Sink(Protocol):
    """Where the answer goes; an HTTP exchange is one."""

    @property
    def started(self) -> bool: ...

    async def start(self) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def end(self, data: bytes = b"") -> None: ...
    async def reply(self, body: bytes) -> None: ...


class InFront:
    """A sink in front of another, which gets all as it is; who changes something of it says what."""

    def __init__(self, sink: Sink) -> None:
        self._sink = sink

    @property
    def started(self) -> bool:
        return self._sink.started

    async def start(self) -> None:
        await self._sink.start()

    async def write(self, data: bytes) -> None:
        await self._sink.write(data)

    async def end(self, data: bytes = b"") -> None:
        await self._sink.end(data)

    async def reply(self, body: bytes) -> None:
        await self._sink.reply(body)


class Collected:
    """A sink for an answer that stays here."""

    def __init__(self) -> None:
        self.started = False
        self.body = b""

    async def start(self, *_: Any) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        self.body += data

    async def end(self, data: bytes = b"") -> None:
        self.body += data

    async def reply(self, body: bytes, **_: Any) -> None:
        self.started = True
        self.body = body


#: The engine's answer and the model's name as it was asked for, to the client's answer and its figures.
Check = Callable[[bytes, str], "tuple[bytes, Measurement | None]"]


@dataclass(slots=True)
class EngineRequest:
    """What an engine is asked.

    Attributes:
        asked: the model's name as the client wrote it; answers carry it.
        alias: the name that the engine was started under.
        check: makes the whole answer fit for a client and reads its figures, or raises `msgspec.MsgspecError`.
        malformed: the status that tells the client of an answer which `check` refused.
    """

    path: str
    body: bytes | None
    asked: str
    alias: str
    stream: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    check: Check = lambda body, asked: (body, None)
    malformed: int = 502
    method: str = "POST"


class Work(Protocol):
    """What is done with an engine while it is leased. It is done twice when the engine is lost before its first byte.

    Attributes:
        passed_on: whether a byte of the engine's answer went to the client, after which it cannot be replayed.
        measurement: the figures of the answer, once it is complete.
    """

    @property
    def passed_on(self) -> bool: ...
    @property
    def measurement(self) -> Measurement | None: ...

    async def run(self, lease: Lease) -> None: ...


async def on_engine(
    residency: Residency,
    model: Model,
    work: Work,
    *,
    options: Mapping[str, Any] = {},
    streaming: bool = False,
    residency_class: ResidencyClass = "standard",
    metrics: Metrics | None = None,
) -> None:
    """Does `work` on the engine of `model`, which is loaded if it has to be.

    An engine that is lost before it gave a byte is started anew and asked once more. One that ended because the client
    of another request left does not count.

    Args:
        options: the request's own options, for a load.
        streaming: the answer is streamed; `/health` shows it.
        metrics: where the answer is counted; None for what is no inference.

    Raises:
        LemonadeError: to be told to the client, by an event if the answer has begun.
    """
    losses = 0
    while True:
        try:
            async with residency.lease(
                model, options=options, streaming=streaming, residency_class=residency_class
            ) as lease:
                device = lease.resident.device
                try:
                    await work.run(lease)
                except EngineError as error:
                    if isinstance(error, EngineLost) and lease.resident.process.returncode != ABANDONED:
                        losses += 1
                    again = isinstance(error, EngineLost) and losses < 2 and not work.passed_on
                    if metrics is not None and not again:
                        metrics.failed(model, device)
                    raise
                if metrics is not None:
                    metrics.answered(model, device, work.measurement)
                return
        except EngineLost as error:
            if losses == 2 or work.passed_on:
                raise
            logger.warning("%s; the request is sent once more", error.message)


async def forward(
    residency: Residency,
    model: Model,
    request: EngineRequest,
    sink: Sink,
    metrics: Metrics | None,
    *,
    residency_class: ResidencyClass = "standard",
) -> None:
    """Runs `request` on `model` and gives the answer to `sink`. The arguments and failures are those of `on_engine`."""
    await on_engine(
        residency,
        model,
        Relay(request, sink),
        options=request.options,
        streaming=request.stream,
        residency_class=residency_class,
        metrics=metrics,
    )


class Relay:
    """The work of passing an engine's answer on."""

    def __init__(self, request: EngineRequest, sink: Sink) -> None:
        self._request = request
        self._sink = sink
        #: Whether a byte of the engine's answer went to the client, after which it cannot be replayed.
        self.passed_on = False
        #: The figures of the answer, once it is complete.
        self.measurement: Measurement | None = None
        self._rename: tuple[bytes, bytes] | None = None
        if request.asked != request.alias:
            self._rename = (
                b'"model":' + msgspec.json.encode(request.alias),
                b'"model":' + msgspec.json.encode(request.asked),
            )

    async def run(self, lease: Lease) -> None:
        await (self.stream(lease) if self._request.stream else self.answer(lease))

    async def answer(self, lease: Lease) -> None:
        """An answer in one piece."""
        request = self._request
        reply = await lease.connection.request(request.method, request.path, request.body)
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
            body = await reply.read()
        finally:
            reply.close()
        try:
            body, self.measurement = request.check(body, request.asked)
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError) as error:
            message = f"The engine's answer lacks what it must have: {error}."
            raise EngineReplied(message, status=request.malformed) from None
        self.passed_on = True
        await self._sink.reply(body)

    async def stream(self, lease: Lease) -> None:
        """A stream of events."""
        with Heartbeat(self._sink) as heart:
            # llama.cpp sends its status line with the first token, which a long prompt delays: that is silence too.
            reply = await lease.connection.request("POST", self._request.path, self._request.body)
            try:
                if reply.status != 200:
                    raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
                await self._pass_on(lease, reply, heart)
            finally:
                reply.close()

    async def _pass_on(self, lease: Lease, reply: Reply, heart: Heartbeat) -> None:
        sink = self._sink
        engine = lease.resident.launch.name
        events = Assembler()
        before = b""
        failed = False
        while chunk := await reply.chunk():
            lease.touch()
            if not (data := events.feed(chunk)):
                continue
            failed = self._look(data, engine) or failed
            if self._rename is not None:
                data = data.replace(*self._rename)
            if heart.beating:
                await heart.settle()
            heart.reset()
            if not sink.started:
                await sink.start()
            self.passed_on = True
            if data.endswith(DONE):
                await sink.end(data)
                self.measurement = measured_stream(before + data)
                await self._drain(reply)
                return
            await sink.write(data)
            before = data
        if heart.beating:
            await heart.settle()
        await self._close(events.rest, failed, engine)
        self.measurement = measured_stream(before + events.rest)

    async def _close(self, held: bytes, failed: bool, engine: str) -> None:
        """The engine closed its stream in good order, though it did not say that it is done."""
        if held.strip():
            self._look(held, engine)
            held = held.rstrip() + b"\n\n"
        elif not self.passed_on:
            raise EngineSilent(f"{engine} closed the stream without an answer.")
        if not self._sink.started:
            await self._sink.start()
        self.passed_on = True
        await self._sink.end(held if failed or held.endswith(DONE) else held + DONE)

    @staticmethod
    async def _drain(reply: Reply) -> None:
        """Reads the end of the body, so that the socket can carry the next request."""
        if reply.complete:
            return
        try:
            async with asyncio.timeout(PING_AFTER):
                while await reply.chunk():
                    pass
        except (TimeoutError, EngineLost):
            pass

    def _look(self, data: bytes, engine: str) -> bool:
        """Whether `data` tells of a failure. Raises it where the client would not see it as one."""
        if data.startswith(_FIELDS):
            if b'data: {"error"' not in data:
                return False
            if self.passed_on or not data.startswith(b'data: {"error"'):
                return True
            data = data.removeprefix(b"data: ")
        else:
            data = data.removeprefix(b"error:")
        raise engine_failure(500, data.strip(), engine)


class Heartbeat:
    """Writes a comment into a stream that has been silent for a second.

    One timer per stream looks at when the last piece went out, so that a piece costs no timer of its own.

    Args:
        first: seconds until the first comment, if nothing goes out before.
    """

    def __init__(self, sink: Sink, *, first: float | None = None) -> None:
        first = PING_AFTER if first is None else first
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time() + first - PING_AFTER
        self._timer = self._loop.call_later(first, self._look)
        self._beat: asyncio.Task[None] | None = None

    def __enter__(self) -> Heartbeat:
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        if self._beat is not None:
            self._beat.cancel()

    @property
    def beating(self) -> bool:
        """Whether a comment is being written. Whoever writes to the sink waits for it with `settle`."""
        return self._beat is not None and not self._beat.done()

    def reset(self) -> None:
        """A piece goes out now."""
        self._last = self._loop.time()

    async def settle(self) -> None:
        if self._beat is not None:
            await self._beat

    def _look(self) -> None:
        silence = self._loop.time() - self._last
        if silence >= PING_AFTER and not self.beating:
            self._beat = self._loop.create_task(self._ping())
            self.reset()
            silence = 0.0
        self._timer = self._loop.call_later(max(PING_AFTER - silence, 0.001), self._look)

    async def _ping(self) -> None:
        if not self._sink.started:
            await self._sink.start()
        await self._sink.write(PING)
