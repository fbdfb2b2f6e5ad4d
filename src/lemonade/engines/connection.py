"""HTTP to one engine: bytes in, bytes out, sockets kept alive. This is the hot path of every answer."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Mapping
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from lemonade.engines.process import EngineProcess
from lemonade.errors import EngineLost

if TYPE_CHECKING:
    import aiohttp
    from yarl import URL

#: Seconds that an unused socket is kept. llama.cpp closes its side after 5 s of silence: ours goes first, so that a
#: request does not meet a socket that is being closed.
KEEP_ALIVE = 4.0
#: Seconds for an engine on loopback to accept a socket. One that hangs accepts nothing once its queue is full.
CONNECT_TIMEOUT = 30.0
#: Seconds between the end of a socket and the news of the process's end, for naming the cause.
EXIT_NEWS = 0.25
#: Seconds within which a kept socket that turns out to be closed says so; what fails later had been worked on.
STALE = 1.0

#: Filled when the current request opens a socket instead of using a kept one. (aiohttp's tracing tells the same, for
#: half as much time again per request.)
_opened: ContextVar[list[bool]] = ContextVar("_opened")

_JSON = {"Content-Type": "application/json"}


class Connection:
    """The way to one engine's process. Any number of requests may be under way at once.

    There is no time limit for an answer: a model may think for an hour. Who waits watches the process or `close()`s.
    """

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        #: Set by the watchdog before it ends an engine that hangs: why, for the requests that this costs.
        self.verdict: str | None = None
        self._base = f"http://127.0.0.1:{process.launch.port}"
        self._urls: dict[str, URL] = {}
        self._session: aiohttp.ClientSession | None = None

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
        import aiohttp

        session = self._session or self._open()
        url = self._urls.get(path) or self._url(path)
        while True:
            opened: list[bool] = []
            _opened.set(opened)
            sent = time.monotonic()
            try:
                response = await session.request(method, url, data=body, headers=headers, allow_redirects=False)
            except (aiohttp.ClientError, OSError) as error:
                if not opened and time.monotonic() - sent < STALE:
                    # The engine closed a socket that was kept alive just as it was taken again. The request was not
                    # seen; another socket is taken, a fresh one in the end.
                    continue
                raise await self._lost(error) from error
            return Reply(response, self)

    async def close(self) -> None:
        """Closes all sockets; answers under way end with `EngineLost`."""
        if self._session is not None:
            await self._session.close()

    def _open(self) -> aiohttp.ClientSession:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, socket_factory=_socket),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "User-Agent"),
            auto_decompress=False,
            trust_env=False,
        )
        return self._session

    def _url(self, path: str) -> URL:
        from yarl import URL

        url = URL(self._base + path, encoded=True)
        if "?" not in path and len(self._urls) < 100:
            self._urls[path] = url
        return url

    async def _lost(self, error: BaseException) -> EngineLost:
        """The failure in words. The end of a process may be known a moment later than that of its sockets."""
        if self.verdict is not None:
            lost = EngineLost(self.verdict)
            lost.code = "backend_watchdog_reset"
            return lost
        try:
            await asyncio.wait_for(self.process.exited.wait(), EXIT_NEWS)
        except TimeoutError:
            pass
        if self.process.exited.is_set():
            return EngineLost(f"{self.process.epitaph()} while it was answering")
        reason = str(error) or type(error).__name__
        return EngineLost(f"{self.process.launch.name} closed the connection without a complete answer ({reason})")


class Reply:
    """An answer whose head is here and whose body is on its way.

    Attributes:
        status: the HTTP status.
        headers: case-insensitive.
    """

    __slots__ = ("_connection", "_content", "_response", "headers", "status")

    def __init__(self, response: aiohttp.ClientResponse, connection: Connection) -> None:
        self._response = response
        self._content = response.content
        self._connection = connection
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    async def read(self, limit: int | None = None) -> bytes:
        """The whole body. With a limit, no more than so many bytes: the rest is not read and the socket closed.

        Raises:
            EngineLost: the engine went away before the end.
        """
        if limit is None:
            import aiohttp

            try:
                return await self._response.read()
            except (aiohttp.ClientError, OSError) as error:
                raise await self._connection._lost(error) from error
        parts: list[bytes] = []
        size = 0
        while part := await self.chunk():
            parts.append(part)
            size += len(part)
            if size >= limit:
                self.close()
                break
        return b"".join(parts)[:limit]

    async def chunk(self) -> bytes:
        """The bytes that have arrived, as soon as there are any; `b""` at the end of the body.

        Raises:
            EngineLost: the engine went away before the end.
        """
        try:
            return await self._content.readany()
        except Exception as error:
            import aiohttp

            if not isinstance(error, aiohttp.ClientError | OSError):
                raise
            self.close()
            raise await self._connection._lost(error) from error

    def close(self) -> None:
        """Lets the answer go. Before its end, the socket is closed, and the engine stops working on it; after its
        end, this does nothing."""
        self._response.close()


def _socket(address: tuple[Any, ...]) -> socket.socket:
    _opened.get().append(True)
    family, kind, protocol = address[:3]
    return socket.socket(family, kind, protocol)
