"""Pictures fetched from the web for a chat.

A request may name any address, and the daemon stands inside the user's network. So the connection is made here: the
name is resolved once, all its addresses are looked at, and one of these is connected to. A second answer of the name
server has no say. Each redirect is a new address and treated as one. No proxy is used: it would resolve names itself.

Everything here blocks, and imports an HTTP client: import and call it in a thread.
"""

from __future__ import annotations

import base64
import ipaddress
import socket
import ssl
import time
from collections.abc import Callable, Iterable
from typing import Any

import httpcore2
import httpx2

from lemonade.errors import InvalidArgument
from lemonade.inference.pictures import MAX_IMAGE_BYTES, read_header
from lemonade.inference.transcoding import webp_as_png

MAX_REDIRECTS = 3
#: Seconds for one picture, redirects included: somebody waits for an answer.
FETCH_SECONDS = 20.0
#: Seconds for a connection, and between two pieces of the answer.
SILENCE = 5.0

_REDIRECTS = (301, 302, 303, 307, 308)
_PORTS = {"http": 80, "https": 443}
#: Where IPv6 carries IPv4 addresses for a translator. Source: RFC 6052.
_NAT64 = ipaddress.ip_network("64:ff9b::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolve = Callable[[str, int], list[str]]


class _Refused(Exception):
    """The reason why a picture is not fetched; it ends a sentence."""


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a name, in the system's order. Raises OSError or UnicodeError."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def is_public(address: str) -> bool:
    """Whether an IP address leads out of this machine and its networks, also when it is wrapped in another one."""
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    return all(_leads_out(each) for each in _unwrapped(found))


def _unwrapped(address: Address) -> list[Address]:
    """The address, or the IPv4 addresses that are reached through it."""
    if isinstance(address, ipaddress.IPv4Address):
        return [address]
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address in _NAT64:
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    found: list[Address] = [address]
    if address.sixtofour is not None:
        found.append(address.sixtofour)
    if address.teredo is not None:
        found.extend(address.teredo)
    return found


def _leads_out(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and (address.is_site_local or address.scope_id):
        return False
    # `is_global` excludes private, loopback, link-local, shared (CGNAT), and documentation networks, and 0.0.0.0/8.
    return address.is_global and not address.is_multicast and not address.is_reserved and not address.is_unspecified


def fetch(
    place: str,
    url: str,
    *,
    resolve: Resolve = resolve,
    allowed: Callable[[str], bool] = is_public,
    tls: ssl.SSLContext | None = None,
) -> tuple[str, int]:
    """The picture at an http(s) address.

    Args:
        place: the part of the request that names it.
        allowed: whether an IP address may be connected to.

    Returns:
        A data URL, and its number of pixels.

    Raises:
        InvalidArgument: on `place`, with the reason.
    """
    backend = _Backend(resolve, allowed, time.monotonic() + FETCH_SECONDS)
    try:
        with httpcore2.ConnectionPool(ssl_context=tls, network_backend=backend) as pool:
            target = httpx2.URL(url)
            for _ in range(MAX_REDIRECTS + 1):
                found = _step(pool, target)
                if isinstance(found, bytearray):
                    return _as_data_url(found)
                target = found
        raise _Refused(f"there are more than {MAX_REDIRECTS} redirects")
    except _Refused as refusal:
        reason = str(refusal)
    except httpcore2.TimeoutException:
        reason = "the server takes too long"
    except (httpcore2.NetworkError, ssl.SSLError) as error:
        reason = f"the connection fails ({str(error)[:200]})"
    except (httpcore2.ProtocolError, httpx2.InvalidURL, UnicodeError):
        reason = "the address, or the server's answer, is not well formed"
    raise InvalidArgument(f"'{place}' cannot be fetched: {reason}.", param=place)


def _step(pool: httpcore2.ConnectionPool, target: httpx2.URL) -> bytearray | httpx2.URL:
    """The body of one answer, or where it redirects to."""
    if target.scheme not in _PORTS or not target.host:
        raise _Refused("only http and https addresses are fetched")
    if target.userinfo:
        raise _Refused("an address with a user name or password is not fetched")
    address = httpcore2.URL(
        scheme=target.raw_scheme, host=target.raw_host, port=target.port, target=target.raw_path or b"/"
    )
    headers: list[tuple[bytes | str, bytes | str]] = [
        ("host", target.netloc),
        ("accept", "image/*"),
        ("accept-encoding", "identity"),
        ("user-agent", "lemonade"),
        ("connection", "close"),
    ]
    timeout = {"connect": SILENCE, "read": SILENCE, "write": SILENCE, "pool": SILENCE}
    with pool.stream("GET", address, headers=headers, extensions={"timeout": timeout}) as response:
        answer = {name.lower(): value.decode("latin-1") for name, value in response.headers}
        if response.status in _REDIRECTS and b"location" in answer:
            new = target.join(answer[b"location"])
            if target.scheme == "https" and new.scheme == "http":
                raise _Refused("it redirects from https to unprotected http")
            return new
        return _body(response, answer)


def _body(response: httpcore2.Response, headers: dict[bytes, str]) -> bytearray:
    if response.status != 200:
        raise _Refused(f"the server answers {response.status}")
    if not headers.get(b"content-type", "").strip().lower().startswith("image/"):
        raise _Refused("the server does not call it a picture (`Content-Type: image/…`)")
    if headers.get(b"content-encoding", "identity").lower() != "identity":
        raise _Refused("the server compresses it, which it was asked not to do")
    data = bytearray()
    for chunk in response.iter_stream():
        data += chunk
        if len(data) > MAX_IMAGE_BYTES:
            raise _Refused(f"it is larger than {MAX_IMAGE_BYTES // 2**20} MiB")
    return data


def _as_data_url(data: bytearray) -> tuple[str, int]:
    def read(at: int, count: int) -> bytes:
        return bytes(data[at : at + count])

    try:
        picture = read_header(read)
        if picture.media_type == "image/webp":
            return webp_as_png(bytes(data))
    except ValueError as error:
        raise _Refused(f"what is there {error}") from None
    return f"data:{picture.media_type};base64,{base64.b64encode(data).decode()}", picture.pixels


class _Backend(httpcore2.NetworkBackend):
    """Connects to addresses that it has looked at, and to nothing after the deadline."""

    def __init__(self, resolve: Resolve, allowed: Callable[[str], bool], deadline: float) -> None:
        self._resolve = resolve
        self._allowed = allowed
        self._deadline = deadline
        self._plain = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore2.NetworkStream:
        try:
            addresses = self._resolve(host, port)
        except (OSError, UnicodeError):
            addresses = []
        if not addresses:
            raise _Refused("the host is not known")
        # What is inside the network, and whether it answers, must not show in the message.
        if not all(self._allowed(address) for address in addresses):
            raise _Refused("the address does not lead to the public internet")
        for address in addresses[:-1]:
            try:
                return self._connect(address, port)
            except (httpcore2.NetworkError, httpcore2.TimeoutException):
                continue
        return self._connect(addresses[-1], port)

    def _connect(self, address: str, port: int) -> httpcore2.NetworkStream:
        return _Stream(self._plain.connect_tcp(address, port, _left(self._deadline)), self._deadline)


class _Stream(httpcore2.NetworkStream):
    """A connection that ends at the deadline, however slowly the other end drips."""

    def __init__(self, stream: httpcore2.NetworkStream, deadline: float) -> None:
        self._stream = stream
        self._deadline = deadline

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._deadline))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._deadline))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, _left(self._deadline)), self._deadline)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _left(deadline: float) -> float:
    """Seconds for the next step."""
    left = deadline - time.monotonic()
    if left <= 0:
        raise _Refused(f"it takes longer than {FETCH_SECONDS:.0f} seconds")
    return min(SILENCE, left)
