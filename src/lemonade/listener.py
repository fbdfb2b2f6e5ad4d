"""The HTTP server: its sockets, and how it ends."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import ipaddress
import logging
import re
import socket
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lemonade.errors import ConfigError

if TYPE_CHECKING:
    from lemonade.api.application import Application

logger = logging.getLogger("lemonade.listener")

#: Seconds that running answers get when the daemon is told to stop. With the engines' own grace this stays under ten.
GRACE = 5
#: Connections that the kernel holds until they are accepted.
BACKLOG = 2048
#: Ports that are tried until one is free for IPv4 and IPv6 alike.
TRIES = 10
#: Seconds that an idle connection is kept. Longer than the pauses in a conversation with a client library's pool.
KEEP_ALIVE = 75


#: Bytes of a request's head. Large cookies and tokens fit; nobody can fill the memory with one.
MAX_HEAD = 64 * 1024
#: Seconds for a request's head to arrive.
HEAD_TIMEOUT = 30.0
#: Bytes of one message on a WebSocket, of all its frames together: what OpenAI allows for one piece of audio, and more.
MAX_MESSAGE = 16 * 1024 * 1024

_OTHER_UPGRADE = re.compile(rb"\r\nupgrade:(?![ \t]*websocket[ \t]*(?:\r|$))", re.IGNORECASE)


class AddressInUse(ConfigError):
    """Another program listens there."""


class Listener(uvicorn.Server):
    """Serves one application, and can move to another address while it runs.

    Args:
        application: the ASGI application.
        host, port: where to listen; `localhost` is IPv4 and IPv6 loopback.
        second_port: another port on the same host that answers the same; 0 is any that is free. It is gone without
            when it cannot be had.

    Raises:
        AddressInUse, ConfigError: the address cannot be had.
    """

    def __init__(self, application: Application, host: str, port: int, second_port: int | None = None) -> None:
        config = uvicorn.Config(
            application,
            loop="none",
            http=BoundedProtocol,
            # A daemon that is asked by HTTP alone has no need of the library: see `BoundedProtocol`.
            ws="none",
            ws_max_size=MAX_MESSAGE,
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            date_header=False,
            timeout_keep_alive=KEEP_ALIVE,
            timeout_graceful_shutdown=GRACE,
            backlog=BACKLOG,
        )
        super().__init__(config)
        # Its account of starting and stopping repeats what the daemon says itself, and it warns of WebSockets.
        logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
        self._sockets = bind(host, port)
        self._second = _bind_second(host, second_port)
        self._asked = (host, port, second_port)
        self._moving: asyncio.Task[None] | None = None

    @property
    def second_port(self) -> int | None:
        """The second port as it is, or None if there is none."""
        return int(self._second[0].getsockname()[1]) if self._second else None

    async def run_until_stopped(self) -> None:
        """Accepts requests until `stop`, then lets running answers finish within the grace."""
        await self._serve([*self._sockets, *self._second])

    def stop(self) -> None:
        self.should_exit = True

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the composition root's: uvicorn would end the process by them instead of with status 0."""
        yield

    def move(self, host: str, port: int, second_port: int | None = None) -> None:
        """Listens elsewhere; connections that are open stay. The old address is kept if the new one cannot be had."""
        self._moving = asyncio.ensure_future(self._follow(self._moving, host, port, second_port))

    async def _follow(self, earlier: asyncio.Task[None] | None, host: str, port: int, second_port: int | None) -> None:
        if earlier is not None:
            # Whether it failed is no matter: this one comes instead.
            await asyncio.wait({earlier})
        first, second = self.servers[: len(self._sockets)], self.servers[len(self._sockets) :]
        before, self._asked = self._asked, (host, port, second_port)
        if (host, port) != before[:2]:
            first = await self._move(first, host, port)
        if (host, second_port) != (before[0], before[2]):
            await self._close(second)
            self._second = _bind_second(host, second_port)
            second = await self._accept(self._second)
        self.servers = [*first, *second]

    async def _move(
        self, old: list[asyncio.base_events.Server], host: str, port: int
    ) -> list[asyncio.base_events.Server]:
        before = [(one.family, one.getsockname()) for one in self._sockets]
        try:
            if any(name[1] == port for _, name in before):
                # One's own sockets stand in the way of the same port on another host.
                await self._close(old)
            sockets = bind(host, port)
        except ConfigError as error:
            logger.error("%s The daemon stays where it is.", error.message)
            if any(server.is_serving() for server in old):
                return old
            sockets = [_listen(family, name) for family, name in before]
        else:
            logger.info("Listening on %s", address(host, port))
        await self._close(old)
        self._sockets = sockets
        return await self._accept(sockets)

    async def _accept(self, sockets: list[socket.socket]) -> list[asyncio.base_events.Server]:
        if not sockets:
            return []
        await self.startup(sockets)
        return self.servers

    @staticmethod
    async def _close(servers: list[asyncio.base_events.Server]) -> None:
        for server in servers:
            server.close()
        # The sockets are free once the loop has been round.
        await asyncio.sleep(0)


class BoundedProtocol(HttpToolsProtocol):
    """HTTP/1.1 whose heads are bounded in size and time, and whose own refusals are JSON like all others."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._head_size = 0
        self._head_since = self.loop.time()
        self._in_head = True
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._look_at_head)

    def connection_lost(self, exc: Exception | None) -> None:
        self._head_timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if b"pgrade" in data and (self.cycle is None or self.cycle.response_complete):
            # The parser takes what follows such a head for the other protocol, and the body would be lost. Clients that
            # would rather speak HTTP/2, as Java's does by default, ask for it with every request.
            head, end, body = data.partition(b"\r\n\r\n")
            data = _OTHER_UPGRADE.sub(b"\r\nx-upgrade:", head) + end + body
        super().data_received(data)
        if self._in_head:
            # The parser keeps an unfinished header to itself.
            self._head_size += len(data)
            if self._head_size > MAX_HEAD and not self.transport.is_closing():
                self.send_400_response("")

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._head_size = 0
        self._head_since = self.loop.time()

    def on_header(self, name: bytes, value: bytes) -> None:
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD:
            raise ValueError("the head is too large")
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head = False
        super().on_headers_complete()

    def _should_upgrade(self) -> bool:
        # Whatever else asks for an upgrade is answered as the HTTP that it is, too.
        parser = self.parser
        is_handshake = parser.get_method() == b"GET" and parser.get_http_version() == "1.1"
        return (
            is_handshake
            and any(name == b"sec-websocket-key" for name, _ in self.headers)
            and self._get_upgrade() == b"websocket"
        )

    def handle_websocket_upgrade(self) -> None:
        from lemonade.websocket_protocol import WebSocketProtocol

        # From here on the connection is the other protocol's.
        self._head_timer.cancel()
        self.ws_protocol_class = WebSocketProtocol
        super().handle_websocket_upgrade()

    def send_400_response(self, msg: str) -> None:
        large = self._head_size > MAX_HEAD
        status = b"431 Request Header Fields Too Large" if large else b"400 Bad Request"
        message = f"The request's head is larger than {MAX_HEAD // 1024} KiB." if large else "This is not HTTP/1.1."
        body = b'{"error":{"message":"%s","type":"invalid_request_error"}}' % message.encode()
        self.transport.write(
            b"HTTP/1.1 %s\r\ncontent-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s"
            % (status, len(body), body)
        )
        self.transport.close()

    def _look_at_head(self) -> None:
        """Closes a connection whose client takes its time; one that is idle between requests has a timer of its own."""
        waiting = self._in_head and self.timeout_keep_alive_task is None
        if waiting and self.loop.time() - self._head_since >= HEAD_TIMEOUT:
            self.transport.close()
            return
        self._head_timer = self.loop.call_later(HEAD_TIMEOUT, self._look_at_head)


def bind(host: str, port: int) -> list[socket.socket]:
    """The sockets for an address. Port 0 is one that is free, the same on all addresses of the host.

    Raises:
        AddressInUse: another program has one of them.
        ConfigError: the host has no address here, or the port is not allowed.
    """
    for _ in range(TRIES if port == 0 else 0):
        with contextlib.suppress(AddressInUse):
            return _bind(host, port)
    return _bind(host, port)


def _bind(host: str, port: int) -> list[socket.socket]:
    sockets: list[socket.socket] = []
    try:
        for family, name, optional in _names(host, port):
            if port == 0 and sockets:
                name = (name[0], sockets[0].getsockname()[1], *name[2:])
            try:
                sockets.append(_listen(family, name))
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise AddressInUse(f"The address {address(host, port)} is already in use.", param="port") from None
                if not optional:
                    reason = error.strerror or str(error)
                    raise ConfigError(f"Cannot listen on {address(host, port)}: {reason}.", param="host") from None
    except BaseException:
        for one in sockets:
            one.close()
        raise
    return sockets


def _bind_second(host: str, port: int | None) -> list[socket.socket]:
    """The sockets of the second port; none, after a line in the log, when they cannot be had."""
    if port is None:
        return []
    try:
        return bind(host, port)
    except ConfigError as error:
        logger.error("%s WebSockets have the first port only.", error.message)
        return []


def refusal(host: str, port: int) -> str | None:
    """Why nobody could listen there now, as the end of a sentence; None if it is free. Port 0 asks of the host only."""
    try:
        for one in bind(host, port):
            one.close()
    except ConfigError as error:
        return f"cannot be used: {error.message.rstrip('.')}"
    return None


def _names(host: str, port: int) -> Iterator[tuple[int, Any, bool]]:
    """Family, socket name, and whether the machine may lack it."""
    if host == "localhost":
        # Not asked of a resolver: there may be none, and a hosts file may say something else.
        yield socket.AF_INET, ("127.0.0.1", port), False
        yield socket.AF_INET6, ("::1", port), True
    elif host in ("", "*"):
        yield socket.AF_INET, ("0.0.0.0", port), False
        yield socket.AF_INET6, ("::", port), True
    else:
        try:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        except OSError as error:
            raise ConfigError(f"The host '{host}' has no address here: {error.strerror}.", param="host") from None
        for family, _, _, _, name in found:
            yield family, name, False


def _listen(family: int, name: Any) -> socket.socket:
    one = socket.socket(family, socket.SOCK_STREAM)
    try:
        # Old connections in TIME_WAIT must not keep a daemon from starting again.
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        one.bind(name)
        one.listen(BACKLOG)
        one.setblocking(False)
    except BaseException:
        one.close()
        raise
    return one


def is_open_to_network(host: str) -> bool:
    """Whether other machines can reach a daemon that listens on `host`."""
    try:
        return not all(ipaddress.ip_address(name[0]).is_loopback for _, name, _ in _names(host, 0))
    except ConfigError:
        return False


def address(host: str, port: int) -> str:
    """`http://HOST:PORT` as a client on this machine can use it."""
    if host in ("", "*", "0.0.0.0", "::"):
        host = "localhost"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
