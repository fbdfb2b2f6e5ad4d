"""HTTP to one provider: verified TLS, the key in its header and nowhere else, no redirects, limits of time.

The library is imported with the first request, beside the loop: it costs a tenth of a second, and most daemons never
ask a provider. It takes about three times the work of the engines' own client per piece of a stream (`python -m bench
cloud` shows what that is to a client), and brings TLS, proxies and certificates as the machine has them set up.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from lemonade.engines.cloud.circuit import DOWN, Circuit
from lemonade.engines.cloud.failures import ProviderUnreachable
from lemonade.engines.cloud.provider import Provider
from lemonade.system.logs import secrets

if TYPE_CHECKING:
    import httpx2

#: Seconds for a connection to come about, TLS included.
CONNECT = 10.0
#: Seconds without a byte after which an answer counts as lost. Models that reason are silent for minutes.
SILENCE = 600.0
#: Seconds after which a connection that could not be made is tried once more.
PAUSE = 0.2


class CloudReply:
    """An answer whose head is here; the surface is that of an engine's `Reply`.

    Attributes:
        status: the HTTP status.
        headers: names in lower case.
    """

    def __init__(self, response: httpx2.Response, lost: Callable[[Exception], ProviderUnreachable]) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self._response = response
        self._pieces: AsyncIterator[bytes] = response.aiter_bytes()
        self._lost = lost

    async def chunk(self) -> bytes:
        """The bytes that have arrived, as soon as there are any; `b""` at the end of the body.

        Raises:
            ProviderUnreachable: the connection ended before the answer did.
        """
        import httpx2

        try:
            async for piece in self._pieces:
                if piece:
                    return piece
        except (httpx2.TransportError, httpx2.DecodingError) as error:
            raise self._lost(error) from None
        return b""

    async def read(self, limit: int) -> bytes:
        """The body, no more than `limit` bytes of it."""
        parts: list[bytes] = []
        size = 0
        while size < limit and (part := await self.chunk()):
            parts.append(part)
            size += len(part)
        return b"".join(parts)[:limit]

    async def close(self) -> None:
        """Lets the answer go. Before its end the connection is closed, which tells the provider to stop."""
        await self._response.aclose()


class CloudConnection:
    """The way to one provider.

    Args:
        key: gives the key at this moment, None when there is none.
    """

    def __init__(self, provider: Provider, key: Callable[[], str | None]) -> None:
        self.provider = provider
        self.circuit = Circuit()
        #: What this provider was found not to understand.
        self.learned: set[str] = set()
        self._key = key
        self._client: httpx2.AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._closed = False

    async def request(
        self, method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> CloudReply:
        """Sends a request and returns with the head of the answer. Cancelling the caller closes the connection.

        A connection that does not come about is tried twice, as nothing was sent; what was sent is never sent again.

        Args:
            path: below the provider's address, with its query.
            headers: beside those of the connection.

        Raises:
            ProviderUnreachable: it cannot be reached, does not answer, or was down a moment ago.
        """
        if wait := self.circuit.wait():
            error = ProviderUnreachable(
                f"cloud ({self.provider.name}) was not asked: it could not be reached several times in a row. The next "
                f"try is in {wait:.0f} s."
            )
            error.status, error.retry_after = 503, wait
            raise error
        import httpx2

        sent = self._headers(headers or {})
        for last in (False, True):
            client = await self._open()
            request = client.build_request(method, f"{self.provider.base_url}/{path}", content=body, headers=sent)
            try:
                response = await client.send(request, stream=True)
            except httpx2.ConnectError as error:
                if not last:
                    await asyncio.sleep(PAUSE)
                    continue
                raise self._lost(error) from None
            except (httpx2.TransportError, httpx2.InvalidURL) as error:
                raise self._lost(error) from None
            # An API that says itself, in JSON, that a model of it is busy is not down.
            if response.status_code in DOWN and "json" not in response.headers.get("content-type", ""):
                self.circuit.failed()
            else:
                self.circuit.answered()
            return CloudReply(response, self._broken)
        raise AssertionError("unreachable")

    async def close(self) -> None:
        self._closed = True
        async with self._opening:
            client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _headers(self, more: Mapping[str, str]) -> dict[str, str]:
        headers = {"content-type": "application/json", **more, "user-agent": "lemonade", "accept-encoding": "identity"}
        if key := self._key():
            name, prefix = self.provider.header
            headers[name.lower()] = f"{prefix}{key}"
        return headers

    async def _open(self) -> httpx2.AsyncClient:
        async with self._opening:
            if self._closed:
                raise self._broken(ConnectionError())
            if self._client is None:
                self._client = await asyncio.to_thread(_client, self.provider.base_url)
            return self._client

    def _lost(self, error: Exception) -> ProviderUnreachable:
        self.circuit.failed()
        return self._broken(error)

    def _broken(self, error: Exception) -> ProviderUnreachable:
        reason = secrets.hide(str(error)) or type(error).__name__
        if self._closed:
            reason = "the provider was changed or removed meanwhile"
        return ProviderUnreachable(f"cloud ({self.provider.name}) request failed: {reason}")


def _client(url: str) -> httpx2.AsyncClient:
    from http.cookiejar import CookieJar, DefaultCookiePolicy

    import httpx2

    from lemonade.hub.wire import is_loopback

    return httpx2.AsyncClient(
        # Certificates of one's own (`SSL_CERT_FILE`) count everywhere.
        verify=httpx2.create_ssl_context(),
        timeout=httpx2.Timeout(SILENCE, connect=CONNECT, pool=None),
        # Requests are bounded where they come in; here none must wait for another one.
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=4.0),
        # What one conversation's answer sets must not go along with the next one.
        cookies=CookieJar(policy=DefaultCookiePolicy(allowed_domains=())),
        follow_redirects=False,
        # A proxy for the internet is none for this machine.
        trust_env=not is_loopback(urlsplit(url).hostname or ""),
    )
