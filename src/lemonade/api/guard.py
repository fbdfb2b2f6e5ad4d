"""Who may ask: Host, Origin, key and body limit, before any handler and for HTTP and WebSocket scopes alike.

A page on the web can make a browser send requests to a daemon on the same machine. Three things stop it: an unknown
`Host` (a name that a foreign DNS server points at 127.0.0.1), an unknown `Origin`, and, for what changes state, a body
type that pages can send without asking first.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from lemonade.api.exchange import MAX_BODY, Headers
from lemonade.errors import BodyTooLarge, Forbidden, Unauthorized, UnsupportedMediaType

if TYPE_CHECKING:
    from lemonade.api.exchange import Scope
    from lemonade.settings import Settings

ALLOW_METHODS = b"GET, POST, PUT, DELETE, OPTIONS"
ALLOW_HEADERS = (
    b"Content-Type, Authorization, X-Api-Key, X-Client-Session-Id, X-Account-Session-Id, mcp-protocol-version, "
    b"traceparent, Mcp-Session-Id"
)
_ALWAYS: Headers = [
    (b"vary", b"Origin"),
    (b"access-control-allow-methods", ALLOW_METHODS),
    (b"access-control-allow-headers", ALLOW_HEADERS),
]

#: Schemes whose origins are web pages. Others (`tauri://`, `file://`, `vscode-webview://`) are programs here.
WEB_SCHEMES = frozenset({"http", "https", "ws", "wss"})

#: What a page may send without a preflight. `application/x-www-form-urlencoded` is what curl says by default, so it is
#: refused only when a browser sent it.
PLAIN_TYPES = (b"text/plain",)
FORM_TYPES = (b"application/x-www-form-urlencoded", b"multipart/form-data")


#: Beginnings of the paths that a key guards; of WebSockets it guards all, as they answer without a prefix, too.
GUARDED = ("/v1/", "/v0/", "/api/", "/mcp", "/metrics")


class Guard:
    """The rules, read once from the settings and the environment.

    Args:
        settings: `host`, `allowed_hosts` and `allowed_origins`.
        env: `LEMONADE_API_KEY` guards the API, `LEMONADE_ADMIN_API_KEY` guards `/internal`.
    """

    def __init__(self, settings: Settings, env: Mapping[str, str]) -> None:
        self._key = env.get("LEMONADE_API_KEY", "").encode()
        self._admin_key = env.get("LEMONADE_ADMIN_API_KEY", "").encode() or self._key
        self._settings = settings
        self._known_hosts: set[bytes] = set()
        self._known_origins: set[bytes] = set()
        self._read()
        settings.subscribe(lambda _: self._read())

    @property
    def secrets(self) -> list[str]:
        """The keys, for the log's filter."""
        return [key.decode() for key in {self._key, self._admin_key} if key]

    def _read(self) -> None:
        host = str(self._settings["host"])
        self._names = {_host_name(name) for name in _split(self._settings["allowed_hosts"])} | {host.lower()}
        self._open_to_network = host in ("", "*", "0.0.0.0", "::")
        if self._open_to_network:
            own = socket.gethostname().lower()
            self._names |= {own, f"{own}.local", host}
        self._origins = {origin.rstrip("/").lower() for origin in _split(self._settings["allowed_origins"])}
        self._known_hosts.clear()
        self._known_origins.clear()

    def admit(self, scope: Scope, *, changes: bool = False) -> Headers:
        """The headers that every answer to this request carries.

        Raises:
            Forbidden, Unauthorized, BodyTooLarge, UnsupportedMediaType: with `headers` in effect for the refusal too.
        """
        host = origin = length = encoding = kind = b""
        for name, value in scope["headers"]:
            if name == b"host":
                host = value
            elif name == b"origin":
                origin = value
            elif name == b"content-length":
                length = value
            elif name == b"content-encoding":
                encoding = value
            elif name == b"content-type":
                kind = value
        if host and host not in self._known_hosts:
            self._check_host(host)
        headers = _ALWAYS
        if origin:
            self._check_origin(origin, host)
            headers = [*_ALWAYS, (b"access-control-allow-origin", origin)]
            if _header(scope, b"access-control-request-private-network") == b"true":
                headers.append((b"access-control-allow-private-network", b"true"))
        if scope.get("method") == "OPTIONS":
            return headers
        if self._admin_key:
            self._check_key(scope)
        if length and length.isdigit() and int(length) > MAX_BODY:
            raise BodyTooLarge(f"The request body is larger than {MAX_BODY // 2**20} MiB.")
        if encoding and encoding.lower() != b"identity":
            raise UnsupportedMediaType("A compressed request body is not supported; send it as it is.")
        if changes and kind:
            self._check_type(scope, kind.partition(b";")[0].strip().lower())
        return headers

    def _check_host(self, host: bytes) -> None:
        name = _host_name(host.decode("latin-1"))
        if not (_is_loopback(name) or name in self._names or (self._open_to_network and _is_address(name))):
            raise Forbidden(
                "The Host header names a host that this daemon does not go by. Address it as localhost, or add the "
                "name to the setting 'allowed_hosts'."
            )
        if len(self._known_hosts) < 64:
            self._known_hosts.add(host)

    def _check_origin(self, origin: bytes, host: bytes) -> None:
        if origin in self._known_origins:
            return
        text = origin.decode("latin-1").lower()
        scheme, separator, rest = text.partition("://")
        allowed = "*" in self._origins or text in self._origins
        if not allowed and separator and not any(mark in rest for mark in "@?#/"):
            # The Host header was checked, so an origin that equals it is this daemon's own page.
            same = rest == host.decode("latin-1").lower()
            allowed = scheme not in WEB_SCHEMES or same or _is_loopback(_host_name(rest))
        elif not allowed and separator and scheme not in WEB_SCHEMES:
            allowed = True
        if not allowed:
            raise Forbidden(
                "Origin not allowed. Add it to the setting 'allowed_origins' if the page may call this daemon."
            )
        if len(self._known_origins) < 64 and b"\r" not in origin:
            self._known_origins.add(origin)

    def _check_key(self, scope: Scope) -> None:
        path: str = scope["path"]
        if path.startswith("/internal/"):
            wanted: tuple[bytes, ...] = (self._admin_key,)
            message = "Invalid or missing admin API key"
        elif self._key and (scope["type"] == "websocket" or path.startswith(GUARDED)):
            wanted = (self._key, self._admin_key)
            message = "Invalid or missing API key"
        else:
            return
        given = list(credentials(scope))
        if not any(hmac.compare_digest(key, one) for key in wanted for one in given):
            raise Unauthorized(message)

    def _check_type(self, scope: Scope, kind: bytes) -> None:
        from_page = bool(_header(scope, b"sec-fetch-site") or _header(scope, b"origin"))
        if kind in PLAIN_TYPES or (from_page and kind in FORM_TYPES):
            raise UnsupportedMediaType("Send this request's body as 'application/json'.")


def credentials(scope: Scope) -> Iterable[bytes]:
    """Every key that a request carries: bearer, `X-Api-Key`, and on WebSockets the query and the subprotocol."""
    for name, value in scope["headers"]:
        if name == b"authorization":
            scheme, _, key = value.partition(b" ")
            if scheme.lower() == b"bearer" and key.strip():
                yield key.strip()
        elif name == b"x-api-key" and value:
            yield value.strip()
    if scope["type"] == "websocket":
        from urllib.parse import parse_qs

        for text in parse_qs(scope["query_string"].decode("latin-1")).get("api_key", []):
            yield text.encode()
        for protocol in scope.get("subprotocols", ()):
            yield from _protocol_key(protocol)


def _protocol_key(protocol: str) -> Iterable[bytes]:
    if protocol.startswith("bearer."):
        encoded = protocol.removeprefix("bearer.")
        try:
            yield base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4))
        except (binascii.Error, ValueError):
            return
    elif protocol.startswith("openai-insecure-api-key."):
        yield protocol.removeprefix("openai-insecure-api-key.").encode()


def _header(scope: Scope, name: bytes) -> bytes:
    return next((bytes(value) for key, value in scope["headers"] if key == name), b"")


def _split(text: Any) -> list[str]:
    return [part.strip().lower() for part in str(text).split(",") if part.strip()]


def _host_name(host: str) -> str:
    """The name in a Host header, without port, brackets and the root's dot, in lower case."""
    host = host.strip().lower()
    if host.startswith("["):
        return host[1:].partition("]")[0]
    name = host.rpartition(":")[0] if host.count(":") == 1 else host
    return (name or host).removesuffix(".")


def _is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        return False
    return address.is_loopback


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
