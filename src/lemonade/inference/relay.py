"""The way of an engine's answer to the client.

An answer in one piece is checked and passed on. A stream is passed on event by event, byte for byte; it is looked into
only where it must be: at its first event, at its end, and where the model's name has to be the one that was asked for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lemonade.errors import (
    ContextLengthExceeded,
    ContextShared,
    EngineError,
    EngineLost,
    EngineReplied,
    EngineSilent,
    RequestError,
)
from lemonade.inference.measurement import measured_stream

if TYPE_CHECKING:
    from lemonade.engines.reply import Reply
    from lemonade.model import Model
    from lemonade.residency.lease import Lease
    from lemonade.residency.manager import Residency
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
_CONTEXT_OVERFLOW = (
    "exceeds the available context size",
    "context length exceeded",
    "larger than the max context size",
    "too large to process",
)
#: What all requests are told that llama.cpp answers at once when there is no room left in the context that they share.
#: A request that is alone never is: its answer ends with the context.
_SHARED_FULL = "Context size has been exceeded"
#: llama.cpp answers 500 to these, though nothing is wrong with it: the request asks for what the model cannot do.
_CLIENTS_FAULT = (
    "image input is not supported",
    "audio input is not supported",
    "video input is not supported",
    "Failed to parse messages",
    "Failed to parse tool call arguments",
    "Failed to parse tools",
)
#: After it stands what the template says; before it, its source.
_REFUSED_BY_TEMPLATE = "Jinja Exception: "


class Sink(Protocol):
    """Where the answer goes; an HTTP exchange is one."""

    @property
    def started(self) -> bool: ...

    async def start(self) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def end(self, data: bytes = b"") -> None: ...
    async def reply(self, body: bytes) -> None: ...


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


async def forward(
    residency: Residency, model: Model, request: EngineRequest, sink: Sink, metrics: Metrics | None
) -> None:
    """Runs `request` on `model` and gives the answer to `sink`.

    Args:
        metrics: where it is counted; None for what is no inference.

    An engine that is lost before it gave a byte is started anew and asked once more.

    Raises:
        LemonadeError: to be told to the client, by an event if `sink.started`.
    """
    for attempt in (1, 2):
        relay = Relay(request, sink)
        try:
            async with residency.lease(model, options=request.options, streaming=request.stream) as lease:
                device = lease.resident.device
                try:
                    await (relay.stream(lease) if request.stream else relay.answer(lease))
                except EngineError as error:
                    again = attempt == 1 and isinstance(error, EngineLost) and not relay.passed_on
                    if metrics is not None and not again:
                        metrics.failed(model, device)
                    raise
                if metrics is not None:
                    metrics.answered(model, device, relay.measurement)
                return
        except EngineLost as error:
            if attempt == 2 or relay.passed_on:
                raise
            logger.warning("%s; the request is sent once more", error.message)


class Relay:
    """One pass of one request through one engine."""

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
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError) as error:
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
        held = before = b""
        failed = False
        while chunk := await reply.chunk():
            lease.touch()
            data = held + chunk if held else chunk
            if data.endswith(b"\n\n"):
                held = b""
            else:
                cut = boundary(data)
                data, held = data[:cut], data[cut:]
                if not data:
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
        await self._close(held, failed, engine)
        self.measurement = measured_stream(before + held)

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
    """

    def __init__(self, sink: Sink) -> None:
        self._sink = sink
        self._loop = asyncio.get_running_loop()
        self._last = self._loop.time()
        self._timer = self._loop.call_later(PING_AFTER, self._look)
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


def boundary(data: bytes) -> int:
    """The length of the whole events at the beginning of `data`; line ends are LF, CRLF or CR."""
    ends = (
        (data.rfind(b"\n\n"), 2),
        (data.rfind(b"\n\r\n"), 3),
        (data.rfind(b"\r\r"), 2),
    )
    return max(at + length if at >= 0 else 0 for at, length in ends)


def engine_failure(status: int, body: bytes, engine: str) -> RequestError | EngineError:
    """An engine's error answer as a failure of ours: its status, message, type and code, and its whole answer in
    `details`, so that nothing that the engine said is lost."""
    try:
        answer: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        answer = body.decode(errors="replace").strip()
    error = answer.get("error", answer) if isinstance(answer, dict) else answer
    fields: dict[str, Any] = error if isinstance(error, dict) else {"message": error}
    message = fields.get("message")
    if not isinstance(message, str) or not message:
        message = f"{engine} answered {status} without a reason."
    code = fields.get("code")
    if isinstance(code, int) and 400 <= code <= 599:
        status = code
    if (at := message.find(_REFUSED_BY_TEMPLATE)) >= 0:
        reason = message[at + len(_REFUSED_BY_TEMPLATE) :].strip()
        message = f"The model's chat template refuses this conversation: {reason}"
    kind = fields.get("type")
    if status == 500 and any(phrase in message for phrase in _CLIENTS_FAULT):
        status, kind = 400, "invalid_request_error"
    details = {"status_code": status, "details": {"backend": engine, "response": answer}}
    if any(phrase in message for phrase in _CONTEXT_OVERFLOW):
        return ContextLengthExceeded(message, details=details)
    if _SHARED_FULL in message:
        return ContextShared(
            "The requests that this model answers at once have outgrown the context that they share. Try again; if it "
            "happens often, load the model with a larger 'ctx_size' or a smaller '--parallel'.",
            details=details,
        )
    return EngineReplied(
        message,
        status=status,
        type=kind if isinstance(kind, str) else None,
        code=code if isinstance(code, str) else None,
        details=details,
    )
