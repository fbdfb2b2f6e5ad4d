"""Requests to a hub: redirects are bounded and never leave TLS, and the token goes to the hub itself only."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from lemonade.errors import Offline, RegistryReplied, RegistryUnreachable

if TYPE_CHECKING:
    import httpx2

#: A hub answers with one redirect to its storage; mirrors add one or two.
MAX_REDIRECTS = 8

_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}

Origin = tuple[str, str, int | None]


class Wire:
    """The way to one hub.

    Args:
        endpoint: the hub's address, such as a mirror's; without a slash at the end.
        token: sent to this host over this scheme and port, and to nothing else; over plain http only on loopback.
        connect: seconds for a connection to come about.
        own: further headers that go where the token goes.
        silence: seconds without a byte after which a connection counts as dead.
    """

    def __init__(
        self,
        endpoint: str,
        token: str | None,
        *,
        own: Mapping[str, str] | None = None,
        connect: float = 20.0,
        silence: float = 60.0,
    ) -> None:
        self.endpoint = endpoint.rstrip("/")
        self._secrets = {**(own or {}), **({"authorization": f"Bearer {token}"} if token else {})}
        self._origin = origin(self.endpoint)
        self._connect = connect
        self._silence = silence

    @contextmanager
    def get(self, url: str, headers: Mapping[str, str] | None = None) -> Iterator[httpx2.Response]:
        """The answer to a GET, its body unread, after all redirects.

        Raises:
            RegistryReplied: too many redirects, or one from https to http.
            Offline: the library was told so.
            httpx2.TransportError: the connection failed.
        """
        # The library's own session has the proxies and certificates that its users set up.
        import httpx2
        from huggingface_hub import get_session
        from huggingface_hub.errors import OfflineModeIsEnabled

        client = get_session()
        timeout = httpx2.Timeout(self._silence, connect=self._connect)
        for _ in range(MAX_REDIRECTS + 1):
            request = client.build_request("GET", url, headers={**(headers or {}), **self._own(url)}, timeout=timeout)
            try:
                response = client.send(request, stream=True, follow_redirects=False, auth=None)
            except OfflineModeIsEnabled as error:
                raise Offline("Hugging Face's offline mode is set, so nothing is fetched from the hub.") from error
            try:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    yield response
                    return
                target = str(response.url.join(response.headers["location"]))
            finally:
                response.close()
            if target.partition(":")[0].lower() not in _PORTS:
                raise RegistryReplied(f"{host(url)} redirects to something that is no web address.")
            if origin(url)[0] == "https" and origin(target)[0] != "https":
                raise RegistryReplied(f"{host(url)} redirects from https to unprotected http; this is not followed.")
            url = target
        raise RegistryReplied(f"{host(self.endpoint)} redirects more than {MAX_REDIRECTS} times.")

    def _own(self, url: str) -> dict[str, str]:
        headers = {"user-agent": "lemonade", "accept-encoding": "identity"}
        if origin(url) == self._origin and (self._origin[0] == "https" or is_loopback(self._origin[1])):
            headers |= self._secrets
        return headers


def hang_up(response: httpx2.Response) -> None:
    """Ends the connection under another thread that waits for its bytes; that one meets a TransportError."""
    import socket

    stream = response.extensions.get("network_stream")
    line = stream.get_extra_info("socket") if stream is not None else None
    if isinstance(line, socket.socket):
        with suppress(OSError):
            # The plain socket's method: that of a TLS socket also takes the cipher state away from the reader.
            socket.socket.shutdown(line, socket.SHUT_RDWR)


def origin(url: str) -> Origin:
    """Scheme, host and port of an address, in the form that two of them are compared in."""
    from urllib.parse import urlsplit

    parts = urlsplit(url)
    scheme = parts.scheme.lower()
    return scheme, (parts.hostname or "").rstrip("."), parts.port or _PORTS.get(scheme)


def endpoint(name: str, text: str) -> str:
    """The address of a hub that the variable `name` of the environment gives, without a slash at the end.

    Raises:
        RegistryUnreachable: it is none.
    """
    try:
        scheme, at, _ = origin(text)
    except ValueError:
        scheme = at = ""
    if scheme not in _PORTS or not at:
        raise RegistryUnreachable(f"{name} must begin with https:// (or http://) and name a host, not {text!r}.")
    return text.rstrip("/")


def host(url: str) -> str:
    """The host of an address, for messages: no path, query or credentials."""
    _, name, port = origin(url)
    return name if port in _PORTS.values() else f"{name}:{port}"


def is_loopback(name: str) -> bool:
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
