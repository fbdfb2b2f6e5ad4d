"""The ASGI application: finds the endpoint, lets the guard look, decodes the body, runs the handler, tells of failures.

A table of exact paths answers nearly every request with one lookup; the few paths with `{id}` are tried after it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING

from lemonade.api.endpoint import Endpoint, decode_query
from lemonade.api.exchange import ClientLeft, Exchange, Headers
from lemonade.api.form import read_form
from lemonade.api.guard import Guard
from lemonade.api.render import OPENAI, Dialect, answer_failure, as_failure, error_headers
from lemonade.api.websocket import ClientGone, WebSocket, WebSocketEndpoint
from lemonade.errors import Busy, LemonadeError, MethodNotAllowed, RouteNotFound

if TYPE_CHECKING:
    from lemonade.api.exchange import Receive, Scope, Send
    from lemonade.api.services import Services

Methods = dict[str, Endpoint]

#: The status of a WebSocket that ends by a failure of the daemon's (RFC 6455, 7.4.1).
INTERNAL_FAILURE = 1011
#: Characters of the reason that goes with it; the protocol allows 123 bytes.
MAX_REASON = 40


class Application:
    """Serves `endpoints` and `sockets` with `services`."""

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        services: Services,
        guard: Guard,
        sockets: Iterable[WebSocketEndpoint] = (),
    ) -> None:
        self._services = services
        self._guard = guard
        self._exact: dict[str, Methods] = {}
        self._patterns: dict[tuple[str, str], Methods] = {}
        for endpoint in endpoints:
            for path in endpoint.paths:
                before, mark, after = path.partition("{id}")
                methods = self._patterns.setdefault((before, after), {}) if mark else self._exact.setdefault(path, {})
                methods[endpoint.method] = endpoint
        self._sockets = {path: one for one in sockets for path in one.paths}
        # `/models/{id}/files` before `/models/{id}`: an id may contain slashes.
        self._ordered = sorted(self._patterns.items(), key=lambda item: -len(item[0][1]))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":
            await self._open(scope, receive, send)
            return
        path = scope["path"]
        methods = self._exact.get(path)
        identifier = ""
        if methods is None:
            methods, identifier = self._match(path)
        method = scope["method"]
        endpoint = methods.get("GET" if method == "HEAD" else method) if methods else None
        try:
            headers = self._guard.admit(scope, changes=endpoint.changes if endpoint else False)
        except LemonadeError as error:
            await _refuse(send, error, [(b"vary", b"Origin")], dialect=endpoint.dialect if endpoint else OPENAI)
            return
        if method == "OPTIONS":
            await send({"type": "http.response.start", "status": 204, "headers": headers})
            await send({"type": "http.response.body", "body": b""})
            return
        if endpoint is None:
            await _refuse(send, self._no_endpoint(path, method, methods), headers)
            return
        exchange = Exchange(scope, receive, send, endpoint=endpoint, services=self._services, headers=headers)
        exchange.id = identifier
        await self._run(exchange, endpoint)

    def _match(self, path: str) -> tuple[Methods | None, str]:
        for (before, after), methods in self._ordered:
            if path.startswith(before) and path.endswith(after) and len(path) > len(before) + len(after):
                identifier = path[len(before) : len(path) - len(after)]
                if not identifier.endswith("/") and not identifier.startswith("/"):
                    return methods, identifier
        return None, ""

    async def _run(self, exchange: Exchange, endpoint: Endpoint) -> None:
        watcher: asyncio.Task[None] | None = None
        task = asyncio.current_task()
        assert task is not None
        files: ExitStack | None = None
        try:
            exchange.query = decode_query(endpoint, exchange.scope["query_string"])
            body = None
            if endpoint.body is not None:
                body = endpoint.decode(await exchange.read_body())
            elif endpoint.form is not None:
                files = ExitStack()
                body = await read_form(exchange, endpoint.form, files)
            if body is not None:
                # Once the body is read, the next message can only be that the client left.
                watcher = asyncio.create_task(exchange.watch(task))
            await endpoint.handler(exchange, body)
        except ClientLeft:
            return
        except asyncio.CancelledError:
            if exchange.client_left:
                # The handler has let go of everything; nobody is there to be told.
                task.uncancel()
                return
            # The daemon is stopping and has waited long enough.
            await answer_failure(exchange, Busy("The daemon is stopping.", status=503))
        except Exception as error:  # noqa: BLE001 - the last place where a failure can still be told to the client
            await answer_failure(exchange, endpoint.cause(error, exchange.raw))
        finally:
            if watcher is not None:
                watcher.cancel()
            if files is not None:
                files.close()

    async def _open(self, scope: Scope, receive: Receive, send: Send) -> None:
        """A WebSocket, from its handshake to its end. It is refused before it is one: browsers do not ask twice."""
        path = scope["path"]
        try:
            self._guard.admit(scope)
            endpoint = self._sockets.get(path)
            if endpoint is None:
                raise RouteNotFound("The requested endpoint does not exist", details={"path": path})
            query = decode_query(endpoint, scope["query_string"])
        except LemonadeError as error:
            await _refuse(send, error, [(b"vary", b"Origin")], kind="websocket.http.response")
            return
        socket = WebSocket(scope, receive, send, query=query, services=self._services)
        try:
            await socket.accept()
            await endpoint.handler(socket)
        except ClientGone:
            return
        except asyncio.CancelledError:
            # The daemon is stopping and has waited long enough.
            await socket.close(INTERNAL_FAILURE)
        except Exception as error:  # noqa: BLE001 - the last place where a failure can still be told to the client
            failure = as_failure(error)
            await socket.close(INTERNAL_FAILURE, failure.message[:MAX_REASON])
        else:
            await socket.close()

    def _no_endpoint(self, path: str, method: str, methods: Methods | None) -> LemonadeError:
        if not methods:
            message = "The requested endpoint does not exist"
            if path in self._sockets:
                message += f" for HTTP: {path} is a WebSocket"
            return RouteNotFound(message, details={"path": path})
        allowed = " or ".join(sorted(methods))
        return MethodNotAllowed(
            f"Method Not Allowed. Use {allowed} for this endpoint", details={"allowed": sorted(methods)}
        )


async def _refuse(
    send: Send, error: LemonadeError, headers: Headers, *, kind: str = "http.response", dialect: Dialect = OPENAI
) -> None:
    import msgspec

    body = msgspec.json.encode(dialect.body(error))
    head = [
        (b"content-type", b"application/json"),
        (b"content-length", b"%d" % len(body)),
        *headers,
        *error_headers(error),
    ]
    if isinstance(error, MethodNotAllowed):
        head.append((b"allow", ", ".join(error.details["allowed"]).encode()))
    try:
        await send({"type": f"{kind}.start", "status": error.status, "headers": head})
        await send({"type": f"{kind}.body", "body": body})
    except OSError:
        # A client that has left need not be told.
        return
