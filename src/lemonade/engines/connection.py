"""HTTP to one engine: bytes in, bytes out, sockets kept alive. This is the hot path of every answer."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from lemonade.engines.process import EngineProcess
from lemonade.engines.reply import Channel, Reply
from lemonade.errors import EngineLost

#: Seconds that an unused socket is kept. llama.cpp closes its side after 5 s of silence: ours goes first, so that a
#: request does not meet a socket that is being closed.
KEEP_ALIVE = 4.0
#: Seconds for an engine on loopback to accept a socket. One that hangs accepts nothing once its queue is full.
CONNECT_TIMEOUT = 30.0
#: Seconds between the end of a socket and the news of the process's end, for naming the cause.
EXIT_NEWS = 0.25
#: Seconds within which a kept socket that turns out to be closed says so; what fails later had been worked on.
STALE = 1.0

_JSON = {"Content-Type": "application/json"}


class Connection:
    """The way to one engine's process. Any number of requests may be under way at once.

    There is no time limit for an answer: a model may think for an hour. Who waits watches the process or `close()`s.
    """

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        #: Set by the watchdog before it ends an engine that hangs: why, for the requests that this costs.
        self.verdict: str | None = None
        self.port = process.launch.port
        self._own = process.launch.headers
        self._heads: dict[tuple[str, str], bytes] = {}
        self._idle: list[Channel] = []
        self._channels: set[Channel] = set()

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] = _JSON
    ) -> Reply:
        """Sends a request and returns with the answer's head. Cancelling the caller closes the socket, at which
        the engine gives the work up.

        Args:
            path: with its query, already encoded.
            body: sent as it is.
            headers: those of the request; JSON's content type when none are given.

        Raises:
            EngineLost: the engine went away, or closed the socket without an answer.
        """
        loop = asyncio.get_running_loop()
        head = self._head(method, path, headers) + b"%d\r\n\r\n" % len(body or b"")
        while True:
            sent = loop.time()
            used = False
            try:
                channel = self._take(sent) or await self._connect()
                used = channel.used
                reply = Reply(channel, self.lost, loop.create_future())
                channel.send(head, body, reply)
                try:
                    await reply.head
                except asyncio.CancelledError:
                    reply.close()
                    raise
            except (OSError, ValueError) as error:
                if used and loop.time() - sent < STALE:
                    # The engine closed a socket that was kept alive just as it was taken again. The request was not
                    # seen; another socket is taken, a fresh one in the end.
                    continue
                raise await self.lost(error) from error
            return reply

    async def close(self) -> None:
        """Closes all sockets; answers under way end with `EngineLost`."""
        self._idle.clear()
        for channel in list(self._channels):
            channel.abort()

    async def lost(self, error: BaseException) -> EngineLost:
        """The failure in words. The end of a process may be known a moment later than that of its sockets."""
        try:
            await asyncio.wait_for(self.process.exited.wait(), EXIT_NEWS)
        except TimeoutError:
            pass
        if self.verdict is not None:
            lost = EngineLost(self.verdict)
            lost.code = "backend_watchdog_reset"
            return lost
        if self.process.exited.is_set():
            return EngineLost(f"{self.process.epitaph()} while it was answering")
        reason = str(error) or type(error).__name__
        return EngineLost(f"{self.process.launch.name} closed the connection without a complete answer ({reason})")

    def _head(self, method: str, path: str, headers: Mapping[str, str]) -> bytes:
        """The request's head up to the value of its length. Those without headers of their own are made once."""
        head = self._heads.get((method, path)) if headers is _JSON else None
        if head is None:
            lines = [f"{method} {path} HTTP/1.1", f"Host: 127.0.0.1:{self.port}"]
            lines += [f"{name}: {value}" for name, value in {**self._own, **headers}.items()]
            head = "\r\n".join([*lines, "Content-Length: "]).encode("latin-1")
            if headers is _JSON and len(self._heads) < 100:
                self._heads[method, path] = head
        return head

    def _take(self, now: float) -> Channel | None:
        while self._idle:
            channel = self._idle.pop()
            if channel.open and now - channel.idle_since < KEEP_ALIVE:
                return channel
            channel.abort()
        return None

    async def _connect(self) -> Channel:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_TIMEOUT):
            _, channel = await loop.create_connection(
                lambda: Channel(self._release, self._channels.discard), "127.0.0.1", self.port
            )
        self._channels.add(channel)
        return channel

    def _release(self, channel: Channel) -> None:
        channel.idle_since = asyncio.get_running_loop().time()
        self._idle.append(channel)
