"""The ModelScope hub, or a mirror of it (`MODELSCOPE_ENDPOINT`).

Its listings name no commit, so one is made from what they list; the bytes of a file are moved, and compared with the
listed hash, by `transfer.Transfer`.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from lemonade.errors import HubError, RegistryReplied, RegistryUnreachable, RepositoryGated, RepositoryNotFound
from lemonade.hub.layout import check_repository, is_id, is_safe
from lemonade.hub.lock import alone
from lemonade.hub.registry import Listing, Place, RemoteFile, Watch
from lemonade.hub.transfer import Patience, Transfer
from lemonade.hub.wire import Wire, endpoint, host

ENDPOINT = "https://modelscope.cn"
#: The branch that every repository has.
BRANCH = "master"
_MAX_LISTING = 64 << 20

#: Offset basis and prime of the 64-bit hash that names a snapshot. Source: FNV-1a as published by its authors.
_FNV_BASIS, _FNV_PRIME = 0xCBF29CE484222325, 0x100000001B3


class ModelScope:
    """The registry `modelscope`. Nothing is imported or connected before the first call."""

    name = "modelscope"

    def __init__(self, *, patience: Patience | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._patience = patience or Patience()
        self._env = env

    def listing(self, repository: str) -> Listing:
        """See `Registry.listing`."""
        check_repository(self.name, repository)
        data = self.ask(f"/api/v1/models/{repository}/repo/files?Revision={BRANCH}&Recursive=True", repository)
        try:
            rows = data["Data"]["Files"]
            files = tuple(_file(row) for row in rows if row["Type"] != "tree")
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryReplied(f"{self.host} answered for '{repository}' as ModelScope does not.") from error
        for file in files:
            if not is_safe(file.path):
                raise RegistryReplied(
                    f"'{repository}' lists a file whose name would lead out of the cache ({file.path[:100]!r}); "
                    "nothing of it is fetched."
                )
        return Listing(self.name, repository, _snapshot(files), files)

    def fetch(self, listing: Listing, files: Sequence[RemoteFile], place: Place, watch: Watch) -> None:
        """See `Registry.fetch`."""
        from urllib.parse import quote

        wire = self._wire()
        for file in files:
            if file.size < 0:
                raise RegistryReplied(f"{self.host} does not say how large '{file.path}' is.")
            path = quote(file.path, safe="")
            url = f"{wire.endpoint}/api/v1/models/{listing.repository}/repo?Revision={BRANCH}&FilePath={path}"
            with alone(place.lock(file), watch):
                if not place.blob(file).exists():
                    Transfer(wire, url, file, place, watch, self._patience).run()

    def ask(self, path: str, what: str) -> Any:
        """The JSON that the hub answers to a GET.

        Args:
            path: from the first slash, with the query.
            what: what is asked about, for messages.

        Raises:
            RepositoryNotFound, RepositoryGated, RegistryReplied, RegistryUnreachable
        """
        import httpx2
        import msgspec

        wire = self._wire()
        try:
            with wire.get(wire.endpoint + path) as response:
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MAX_LISTING:
                        raise RegistryReplied(f"What {self.host} answers for '{what}' is larger than any real answer.")
                if response.status_code != 200:
                    raise self._refusal(response.status_code, what)
        except httpx2.TransportError as error:
            raise RegistryUnreachable(
                f"{self.host} cannot be reached ({error or 'no answer'}). Check the network, a proxy (HTTPS_PROXY) or "
                "a mirror (MODELSCOPE_ENDPOINT)."
            ) from error
        try:
            data = msgspec.json.decode(bytes(body))
        except msgspec.DecodeError as error:
            raise RegistryReplied(f"{self.host} answered with something that is no JSON.") from error
        if not isinstance(data, dict) or data.get("Success", data.get("success")) is False:
            code = data.get("Code") if isinstance(data, dict) else None
            raise self._refusal(404 if code in (404, 10010205001) else 0, what)
        return data

    @property
    def host(self) -> str:
        """The hub's host, for messages."""
        return host(self._endpoint())

    def _endpoint(self) -> str:
        return endpoint("MODELSCOPE_ENDPOINT", self._env.get("MODELSCOPE_ENDPOINT") or ENDPOINT)

    def _wire(self) -> Wire:
        token = self._env.get("MODELSCOPE_API_TOKEN") or self._env.get("MODELSCOPE_ACCESS_TOKEN")
        # Some of its routes read the token from here only.
        own = {"cookie": f"m_session_id={token}"} if token else {}
        return Wire(self._endpoint(), token, own=own, silence=self._patience.silence)

    def _refusal(self, status: int, what: str) -> HubError:
        if status == 404:
            return RepositoryNotFound(
                f"{self.host} has no '{what}', or it is private. Check the name; for a private one set "
                "MODELSCOPE_API_TOKEN."
            )
        if status in (401, 403):
            return RepositoryGated(f"{self.host} refuses '{what}' (HTTP {status}). Is MODELSCOPE_API_TOKEN valid?")
        if status == 429:
            return RegistryUnreachable(f"{self.host} has had too many requests from here; try again in a while.")
        if status >= 500:
            return RegistryUnreachable(f"{self.host} is out of order (HTTP {status}); try again later.")
        return RegistryReplied(f"{self.host} cannot answer for '{what}'" + (f" (HTTP {status})." if status else "."))


def _file(row: Mapping[str, Any]) -> RemoteFile:
    path, size, sha256 = row["Path"], row.get("Size"), row.get("Sha256") or ""
    if not isinstance(path, str) or not isinstance(sha256, str) or (sha256 and not is_id(sha256)):
        raise TypeError("a file's name or hash is no string")
    return RemoteFile(path, size if isinstance(size, int) and size >= 0 else -1, sha256.lower() or None, None)


def _snapshot(files: Sequence[RemoteFile]) -> str:
    """A name for exactly this state of a repository, made as the original makes it, so that it knows it again."""
    digest = _FNV_BASIS
    parts = [BRANCH]
    for file in sorted(files, key=lambda file: file.path):
        parts.append(f"{file.path}\n{max(file.size, 0)}\nsha256:{file.sha256 or ''}\n")
    for byte in "".join(parts).encode():
        digest = ((digest ^ byte) * _FNV_PRIME) & 0xFFFFFFFFFFFFFFFF
    return f"modelscope-{BRANCH}-{digest:016x}"
