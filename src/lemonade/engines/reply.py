"""One answer of an engine, and the socket that it comes from.

HTTP/1.1 as an engine on loopback needs it, parsed by httptools. A general client library does the same with several
times the work per request and per piece, which on this path is what a user waits for; `python -m bench` shows it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import httptools

#: Bytes of an answer that wait for a slow client before the engine is made to wait too.
HIGH_WATER = 256 * 1024

Lost = Callable[[BaseException], Awaitable[Exception]]


class Reply:
    """An answer whose head is here and whose body is on its way.

    Attributes:
        status: the HTTP status.
        headers: names in lower case.
    """

    __slots__ = (
        "_channel",
        "_complete",
        "_failure",
        "_lost",
        "_parts",
        "_size",
        "_waiter",
        "head",
        "headers",
        "status",
    )

    def __init__(self, channel: Channel, lost: Lost, head: asyncio.Future[None]) -> None:
        self.status = 0
        self.headers: Mapping[str, str] = {}
        self.head = head
        self._channel: Channel | None = channel
        self._lost = lost
        self._parts: list[bytes] = []
        self._size = 0
        self._complete = False
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None

    @property
    def complete(self) -> bool:
        """Whether the whole body has arrived, read or not."""
        return self._complete

    async def chunk(self) -> bytes:
        """The bytes that have arrived, as soon as there are any; `b""` at the end of the body.

        Raises:
            EngineLost: the engine went away before the end.
        """
        while not self._parts:
            if self._complete:
                return b""
            if self._failure is not None:
                raise await self._lost(self._failure) from self._failure
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        parts, self._parts = self._parts, []
        if self._size > HIGH_WATER and self._channel is not None:
            self._channel.resume()
        self._size = 0
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body. With a limit, no more than so many bytes: the rest is not read and the socket closed.

        Raises:
            EngineLost: the engine went away before the end.
        """
        parts: list[bytes] = []
        size = 0
        while part := await self.chunk():
            parts.append(part)
            size += len(part)
            if limit is not None and size >= limit:
                self.close()
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        return body if limit is None else body[:limit]

    def close(self) -> None:
        """Lets the answer go. Before its end, the socket is closed, and the engine stops working on it; after its
        end, this does nothing."""
        if self._channel is not None:
            self._channel.abort()

    # For the channel.

    def begin(self, status: int, headers: Mapping[str, str]) -> None:
        self.status = status
        self.headers = headers
        if not self.head.done():
            self.head.set_result(None)

    def feed(self, data: bytes) -> None:
        self._parts.append(data)
        self._size += len(data)
        if self._size > HIGH_WATER and self._channel is not None:
            self._channel.pause()
        self._wake()

    def finish(self) -> None:
        self._complete = True
        self._channel = None
        self._wake()

    def fail(self, failure: BaseException) -> None:
        self._failure = failure
        self._channel = None
        if not self.head.done():
            self.head.set_exception(failure)
            # A request that was cancelled meanwhile does not look any more.
            self.head.exception()
        self._wake()

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class Channel(asyncio.Protocol):
    """One socket to an engine; it carries one request at a time.

    Args:
        release: called when an answer is complete and the socket can carry another request.
        closed: called when the socket has ended.
    """

    def __init__(self, release: Callable[[Channel], None], closed: Callable[[Channel], None]) -> None:
        self._release = release
        self._closed = closed
        self._parser = httptools.HttpResponseParser(self)
        self._reply: Reply | None = None
        self._headers: dict[str, str] = {}
        self._until_end = False
        self._paused = False
        self._transport: asyncio.Transport | None = None
        #: The loop's time at which it was last released.
        self.idle_since = 0.0
        #: Whether it has carried an answer before.
        self.used = False

    @property
    def open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes | None, reply: Reply) -> None:
        assert self._transport is not None
        self._reply = reply
        self._transport.write(head + body if body else head)

    def pause(self) -> None:
        if not self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = True
            self._transport.pause_reading()

    def resume(self) -> None:
        if self._paused and self._transport is not None and not self._transport.is_closing():
            self._paused = False
            self._transport.resume_reading()

    def abort(self) -> None:
        """Closes the socket at once; an answer under way ends with a failure."""
        if self._transport is not None:
            self._transport.abort()

    # asyncio.Protocol

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if self._reply is None:
            # Nobody asked: what an engine says between two answers is not to be taken for the next one.
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(ConnectionError(f"what it says is no HTTP: {error}"))
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._reply is not None and self._until_end and exc is None:
            self._reply.finish()
            self._reply = None
        self._end(exc or ConnectionResetError("the socket was closed"))
        self._transport = None
        self._closed(self)

    def _end(self, failure: BaseException) -> None:
        reply, self._reply = self._reply, None
        if reply is not None:
            reply.fail(failure)

    # httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        headers, self._headers = self._headers, {}
        if status >= 200 and self._reply is not None:
            self._until_end = "content-length" not in headers and "transfer-encoding" not in headers
            self._reply.begin(status, headers)

    def on_body(self, body: bytes) -> None:
        if self._reply is not None:
            self._reply.feed(body)

    def on_message_complete(self) -> None:
        reply = self._reply
        if reply is None or not reply.status:
            return
        self._reply = None
        keep = self._parser.should_keep_alive()
        self.resume()
        reply.finish()
        self.used = True
        if keep and self.open:
            self._release(self)
        else:
            self.abort()
