"""`WS /v1/logs/stream`: the lines that the log keeps, and each new one as it comes."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.websocket import ClientGone, WebSocket, WebSocketEndpoint
from lemonade.system.logs import LogEntry, Ring

SUBSCRIBE = "logs.subscribe"

_encoder = msgspec.json.Encoder()


class Subscribe(msgspec.Struct, tag=SUBSCRIBE, tag_field="type"):
    """Asks for the log. A second one begins again at another place."""

    after_seq: Annotated[
        int | None, Meta(description="Only entries with a larger `seq`; `null` is all that are kept.")
    ] = None


class Entry(msgspec.Struct):
    """One line of the log."""

    seq: Annotated[int, Meta(description="Number of the line; it grows strictly.")]
    timestamp: Annotated[str, Meta(description="`2026-11-29 23:50:01.123`, in the daemon's time zone.")]
    severity: Annotated[str, Meta(description="`Trace`, `Debug`, `Info`, `Warning`, `Error` or `Fatal`.")]
    tag: Annotated[str, Meta(description="The part of the daemon that wrote it.")]
    line: Annotated[str, Meta(description="The text, one line without control characters.")]


class Snapshot(msgspec.Struct, tag="logs.snapshot", tag_field="type"):
    """The first answer."""

    entries: Annotated[list[Entry], Meta(description="At most 5000 entries, the oldest first.")]


class NewEntry(msgspec.Struct, tag="logs.entry", tag_field="type"):
    """One for each line that is written from then on."""

    entry: Annotated[Entry, Meta(description="The line; the object is that of `entries`.")]


class SubscribeError(msgspec.Struct, tag="error", tag_field="type"):
    """Something else was sent. The connection stays."""

    error: Annotated[dict[str, Any], Meta(description="`message` and `type`.")]


_decoder = msgspec.json.Decoder(Subscribe)


async def logs_stream(socket: WebSocket) -> None:
    reader = Reader(socket.services.log)
    stream: asyncio.Task[None] | None = None
    try:
        while True:
            wanted = _subscription(await socket.receive())
            if wanted is None:
                await _send(
                    socket,
                    SubscribeError({"message": "Expected logs.subscribe message", "type": "invalid_request_error"}),
                )
                continue
            if stream is not None:
                await _ended(stream)
            stream = asyncio.create_task(_stream(socket, reader, wanted.after_seq or 0))
    finally:
        reader.close()
        if stream is not None:
            await _ended(stream)


class Reader:
    """Reads the ring behind those who write. Nothing is collected for a client that is slow: what it missed is read
    from the ring when it is ready, as long as it is there."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._unsubscribe = ring.subscribe(self._notice)

    def _notice(self, entry: LogEntry) -> None:
        # Any thread may log.
        self._loop.call_soon_threadsafe(self._news.set)

    def entries(self, after: int) -> list[LogEntry]:
        self._news.clear()
        return self._ring.entries(after)

    async def wait(self) -> None:
        await self._news.wait()

    def close(self) -> None:
        self._unsubscribe()


async def _stream(socket: WebSocket, reader: Reader, after: int) -> None:
    try:
        entries = reader.entries(0)
        last = entries[-1].seq if entries else 0
        # A number that was not given yet was given by a daemon before this one.
        entries = [one for one in entries if one.seq > after or after > last]
        await _send(socket, Snapshot([Entry(*one) for one in entries]))
        while True:
            last = entries[-1].seq if entries else last
            await reader.wait()
            entries = reader.entries(last)
            for one in entries:
                await _send(socket, NewEntry(Entry(*one)))
    except ClientGone:
        return


async def _ended(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait({task})


async def _send(socket: WebSocket, message: msgspec.Struct) -> None:
    await socket.send(_encoder.encode(message).decode())


def _subscription(message: str | bytes) -> Subscribe | None:
    try:
        return _decoder.decode(message)
    except (msgspec.DecodeError, RecursionError):
        return None


LOGS_STREAM = WebSocketEndpoint(
    id="lemonade.logs_stream",
    path="/logs/stream",
    summary="Follow the daemon's log",
    description=(
        "Nothing is sent before the log was asked for. Between the snapshot and the lines after it there is no gap."
    ),
    receives=(Subscribe,),
    sends=(Snapshot, NewEntry, SubscribeError),
    handler=logs_stream,
)
