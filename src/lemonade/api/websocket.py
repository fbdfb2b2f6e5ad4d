"""WebSockets: one declaration per path, as for HTTP, and the connection that a handler gets.

`/openapi.json` cannot describe them; the page at `/docs` and the files under `docs/api/` do.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.api.endpoint import GUARD_ERRORS, PREFIXES, Empty, ErrorRow

if TYPE_CHECKING:
    from lemonade.api.exchange import Receive, Scope, Send
    from lemonade.api.services import Services

#: WebSockets also answer without a prefix.
SOCKET_PREFIXES = (*PREFIXES, "")

#: How keys travel as subprotocols; such an entry is never the one that is spoken.
KEY_PROTOCOLS = ("bearer.", "openai-insecure-api-key.")
#: Chosen before all others that a client offers.
OWN_PROTOCOL = "lemonade-realtime"

Handler = Callable[["WebSocket"], Awaitable[None]]


class ClientGone(Exception):
    """The other side has closed the connection, or the daemon is stopping."""


@dataclass(frozen=True, kw_only=True)
class WebSocketEndpoint:
    """One path that is upgraded to a WebSocket.

    Attributes:
        id: `family.name`; families are the pages of the reference.
        path: below a prefix.
        query: the struct that the query string is decoded into.
        receives, sends: the structs of the messages, each with the tag that is its `type`; for the reference.
    """

    id: str
    path: str
    summary: str
    handler: Handler
    description: str = ""
    prefixes: tuple[str, ...] = SOCKET_PREFIXES
    query: type[msgspec.Struct] = Empty
    receives: tuple[type[msgspec.Struct], ...] = ()
    sends: tuple[type[msgspec.Struct], ...] = ()

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths under which it answers, the one to show first."""
        return tuple(prefix + self.path for prefix in self.prefixes)

    @property
    def all_errors(self) -> tuple[ErrorRow, ...]:
        """What the handshake may be refused with. Later failures are messages."""
        return GUARD_ERRORS


class WebSocket:
    """A connection that the guard let in.

    Attributes:
        query: the endpoint's query struct.
    """

    __slots__ = ("_receive", "_send", "query", "scope", "services")

    def __init__(self, scope: Scope, receive: Receive, send: Send, *, query: Any, services: Services) -> None:
        self.scope = scope
        self.query = query
        self.services = services
        self._receive = receive
        self._send = send

    async def accept(self) -> None:
        """Completes the handshake.

        Raises:
            ClientGone: nobody waits for it.
        """
        await self._receive()  # `websocket.connect`
        await self._pass({"type": "websocket.accept", "subprotocol": subprotocol(self.scope.get("subprotocols", ()))})

    async def receive(self) -> str | bytes:
        """The next message: text, or the bytes of a binary one.

        Raises:
            ClientGone: there will be none.
        """
        message = await self._receive()
        if message["type"] != "websocket.receive":
            raise ClientGone
        text = message.get("text")
        return text if text is not None else bytes(message.get("bytes") or b"")

    async def send(self, text: str) -> None:
        """Sends a text message; waits while the client reads slower than it is given.

        Raises:
            ClientGone: it cannot be sent any more.
        """
        await self._pass({"type": "websocket.send", "text": text})

    async def close(self, code: int = 1000, reason: str = "") -> None:
        """Ends the connection from this side; nothing happens if it has ended."""
        try:
            await self._pass({"type": "websocket.close", "code": code, "reason": reason})
        except ClientGone:
            pass

    async def _pass(self, message: dict[str, Any]) -> None:
        try:
            await self._send(message)
        except (OSError, RuntimeError) as error:
            # The server's word for a connection that has ended, by the other side or by itself.
            raise ClientGone from error


def subprotocol(offered: tuple[str, ...] | list[str]) -> str | None:
    """Which of the offered protocols is spoken. Browsers want one of those that they name; keys are none."""
    named = [one for one in offered if not one.startswith(KEY_PROTOCOLS)]
    return OWN_PROTOCOL if OWN_PROTOCOL in named else next(iter(named), None)
