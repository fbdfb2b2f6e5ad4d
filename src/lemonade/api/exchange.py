"""One HTTP request and its answer."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.errors import BodyTooLarge

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, MutableMapping

    from lemonade.api.endpoint import Endpoint
    from lemonade.api.services import Services

    Message = MutableMapping[str, Any]
    Scope = MutableMapping[str, Any]
    Receive = Callable[[], Awaitable[Message]]
    Send = Callable[[Message], Awaitable[None]]

#: Largest request body in bytes: a long chat with several pictures in base64 fits many times over.
MAX_BODY = 512 * 1024 * 1024

Headers = list[tuple[bytes, bytes]]

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    # Asks nginx and its kin not to collect the stream.
    (b"x-accel-buffering", b"no"),
]

_encoder = msgspec.json.Encoder()


class ClientLeft(asyncio.CancelledError):
    """The client closed the connection before the answer was complete."""


class Exchange:
    """A request that the guard let in, and the way its answer goes back.

    Attributes:
        finished: whether the last byte of the answer was handed to the server.
        id: the part of the path that `{id}` stands for, percent-decoded, or `""`.
        raw: the body's bytes, so that a handler can hand them on without encoding them again.
        query: the endpoint's query struct.
        started: whether the status line was sent; from then on a failure can only be told inside the body.
        of_events: whether the body that was started is a stream of events.
    """

    __slots__ = (
        "_headers",
        "_receive",
        "_send",
        "client_left",
        "endpoint",
        "finished",
        "id",
        "of_events",
        "query",
        "raw",
        "scope",
        "services",
        "started",
    )

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, *, endpoint: Endpoint, services: Services, headers: Headers
    ) -> None:
        self.scope = scope
        self.endpoint = endpoint
        self.services = services
        self.id = ""
        self.raw = b""
        self.query: Any = None
        self.started = False
        self.of_events = False
        self.finished = False
        self.client_left = False
        self._headers = headers
        self._receive = receive
        self._send = send

    async def pieces(self) -> AsyncIterator[bytes]:
        """The body as it arrives.

        Raises:
            BodyTooLarge: at the first byte too many.
            ClientLeft: the body will never be complete.
        """
        size = 0
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self.client_left = True
                raise ClientLeft
            piece: bytes = message.get("body", b"")
            size += len(piece)
            if size > MAX_BODY:
                raise BodyTooLarge(f"The request body is larger than {MAX_BODY // 2**20} MiB.")
            yield piece
            if not message.get("more_body", False):
                return

    async def read_body(self) -> bytes:
        """The whole body. Raises as `pieces` does."""
        first = b""
        rest: io.BytesIO | None = None
        async for piece in self.pieces():
            if rest is not None:
                rest.write(piece)
            elif not first:
                first = piece
            elif piece:
                # It hands out what it holds without a copy, as joined pieces could not.
                rest = io.BytesIO()
                rest.write(first)
                rest.write(piece)
                first = b""
        self.raw = first if rest is None else rest.getvalue()
        return self.raw

    async def watch(self, task: asyncio.Task[Any]) -> None:
        """Cancels `task` when the client closes the connection. Runs beside the handler, once the body is read."""
        while (await self._receive())["type"] != "http.disconnect":
            pass
        # The server says the same when the answer is complete.
        if not self.finished:
            self.client_left = True
            task.cancel()

    def add_header(self, name: bytes, value: bytes) -> None:
        """Sends a further header with the answer, also with one that tells of a failure."""
        self._headers = [*self._headers, (name, value)]

    async def json(self, value: Any, status: int = 200, headers: Headers | None = None) -> None:
        """Answers `value` as JSON."""
        await self.reply(_encoder.encode(value), status=status, headers=headers)

    async def reply(
        self,
        body: bytes,
        *,
        status: int = 200,
        media_type: bytes = b"application/json",
        headers: Headers | None = None,
    ) -> None:
        """Answers bytes that are ready."""
        self.started = self.finished = True
        head = [
            (b"content-type", media_type),
            (b"content-length", b"%d" % len(body)),
            *self._headers,
            *(headers or ()),
        ]
        await self._send({"type": "http.response.start", "status": status, "headers": head})
        await self._send({"type": "http.response.body", "body": body})

    async def start(self, headers: Headers = STREAM_HEADERS, status: int = 200) -> None:
        """Begins an answer that is written piece by piece."""
        self.started = True
        self.of_events = (b"content-type", b"text/event-stream") in headers
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, *self._headers]})

    async def write(self, data: bytes) -> None:
        """Sends a piece; waits while the client reads slower than it is given."""
        await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Sends the last piece."""
        self.finished = True
        await self._send({"type": "http.response.body", "body": data, "more_body": False})

    def header(self, name: bytes) -> bytes:
        """The first request header of that lower-case name, or `b""`."""
        for key, value in self.scope["headers"]:
            if key == name:
                return bytes(value)
        return b""


def event(data: Any, name: str | None = None) -> bytes:
    """One server-sent event with `data` as JSON."""
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + _encoder.encode(data) + b"\n\n"
