"""The Hugging Face hub, or a mirror of it (`HF_ENDPOINT`).

The session, the token, the shape of answers and the meaning of errors are huggingface_hub's; the bytes of a file are
moved by `transfer.Transfer`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lemonade.errors import (
    HubError,
    Offline,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryGated,
    RepositoryNotFound,
)
from lemonade.hub.layout import check_repository, is_id, is_safe
from lemonade.hub.lock import alone
from lemonade.hub.registry import Listing, Place, RemoteFile, Watch
from lemonade.hub.transfer import Patience, Transfer
from lemonade.hub.wire import Wire, endpoint, host

if TYPE_CHECKING:
    import httpx2

#: A listing of 100,000 files has some 30 MB.
_MAX_LISTING = 64 << 20
_LISTING_ATTEMPTS = 3


class HuggingFace:
    """The registry `huggingface`. Nothing is imported or connected before the first call."""

    name = "huggingface"

    def __init__(self, *, patience: Patience | None = None, env: Mapping[str, str] = os.environ) -> None:
        self._patience = patience or Patience()
        self._env = env

    def listing(self, repository: str) -> Listing:
        """See `Registry.listing`."""
        check_repository(self.name, repository)
        wire = self._wire()
        data = self._ask(wire, f"{wire.endpoint}/api/models/{repository}?blobs=true", repository)
        try:
            files = tuple(_file(entry) for entry in data["siblings"])
            revision = data["sha"]
        except (KeyError, TypeError, ValueError) as error:
            raise RegistryReplied(
                f"{host(wire.endpoint)} answered for '{repository}' as no Hugging Face hub does. Check HF_ENDPOINT."
            ) from error
        if not isinstance(revision, str) or not is_id(revision):
            raise RegistryReplied(f"{host(wire.endpoint)} names no usable commit for '{repository}'.")
        for file in files:
            if not is_safe(file.path):
                raise RegistryReplied(
                    f"'{repository}' lists a file whose name would lead out of the cache ({file.path[:100]!r}); "
                    "nothing of it is fetched."
                )
        return Listing(self.name, repository, revision, files)

    def fetch(self, listing: Listing, files: Sequence[RemoteFile], place: Place, watch: Watch) -> None:
        """See `Registry.fetch`."""
        from urllib.parse import quote

        wire = self._wire()
        for file in files:
            if file.size < 0:
                raise RegistryReplied(f"{host(wire.endpoint)} does not say how large '{file.path}' is.")
            url = f"{wire.endpoint}/{listing.repository}/resolve/{listing.revision}/{quote(file.path)}"
            with alone(place.lock(file), watch):
                if not place.blob(file).exists():
                    Transfer(wire, url, file, place, watch, self._patience).run()

    def _wire(self) -> Wire:
        if any(self._env.get(name, "").upper() in ("1", "ON", "YES", "TRUE") for name in _OFFLINE):
            raise Offline("HF_HUB_OFFLINE is set, so nothing is fetched from the hub. Unset it to download models.")
        hub = mirror(self._env)
        from huggingface_hub import constants, get_token

        return Wire(hub or constants.ENDPOINT, get_token(), silence=self._patience.silence)

    def _ask(self, wire: Wire, url: str, repository: str) -> Any:
        import msgspec

        for attempt in range(_LISTING_ATTEMPTS):
            try:
                body = self._read(wire, url, repository)
                break
            except RegistryUnreachable as error:
                # Without a connection nothing changes in a moment; a hub that answers badly often does better at once.
                if not isinstance(error, _Stumbled) or attempt + 1 == _LISTING_ATTEMPTS:
                    raise
                time.sleep(self._patience.first_pause)
        try:
            return msgspec.json.decode(body)
        except msgspec.DecodeError as error:
            raise RegistryReplied(
                f"{host(wire.endpoint)} answered with something that is no JSON. Is there a login page or a proxy "
                "between? Check HF_ENDPOINT."
            ) from error

    def _read(self, wire: Wire, url: str, repository: str) -> bytes:
        import httpx2

        try:
            with wire.get(url) as response:
                if response.status_code != 200:
                    response.read()
                    raise _refusal(response, wire, repository)
                body = bytearray()
                for chunk in response.iter_bytes():
                    body += chunk
                    if len(body) > _MAX_LISTING:
                        raise RegistryReplied(f"The listing of '{repository}' is larger than any real one.")
                return bytes(body)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise RegistryUnreachable(
                f"{host(wire.endpoint)} cannot be reached ({error or 'no answer'}). Check the network, a proxy "
                "(HTTPS_PROXY) or a mirror (HF_ENDPOINT)."
            ) from error
        except httpx2.TransportError as error:
            raise _Stumbled(f"The connection to {host(wire.endpoint)} broke; try again later.") from error


def mirror(env: Mapping[str, str]) -> str | None:
    """The hub that `HF_ENDPOINT` names. Looked at before huggingface_hub is imported, which fails at one that is no
    address.

    Raises:
        RegistryUnreachable: it is none.
    """
    given = env.get("HF_ENDPOINT")
    return endpoint("HF_ENDPOINT", given) if given else None


class _Stumbled(RegistryUnreachable):
    """The hub was reached, but did not manage to answer."""


_OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")


def _file(entry: dict[str, Any]) -> RemoteFile:
    lfs = entry.get("lfs") or {}
    sha256 = lfs.get("sha256") or lfs.get("oid")
    etag = sha256 or entry.get("blobId")
    size = lfs.get("size", entry.get("size"))
    if not isinstance(entry["rfilename"], str) or not (etag is None or (isinstance(etag, str) and is_id(etag))):
        raise TypeError("a file's name or hash is no string")
    return RemoteFile(entry["rfilename"], size if isinstance(size, int) and size >= 0 else -1, sha256, etag)


def _refusal(response: httpx2.Response, wire: Wire, repository: str) -> HubError:
    from huggingface_hub import errors, hf_raise_for_status

    name, status = host(wire.endpoint), response.status_code
    try:
        hf_raise_for_status(response)
    except errors.GatedRepoError:
        return RepositoryGated(
            f"'{repository}' is gated. Accept its terms on its page at {name}, and set HF_TOKEN to a token that may "
            "read it."
        )
    except errors.RepositoryNotFoundError:
        return RepositoryNotFound(
            f"{name} has no '{repository}', or it is private. Check the name; for a private one set HF_TOKEN."
        )
    except errors.DisabledRepoError:
        return RepositoryGated(f"{name} has disabled access to '{repository}'.")
    except errors.HfHubHTTPError:
        pass
    if status in (401, 403):
        return RepositoryGated(f"{name} refuses '{repository}' (HTTP {status}). Is HF_TOKEN valid and allowed to read?")
    if status == 404:
        return RepositoryNotFound(f"{name} has no '{repository}'.")
    if status == 429:
        return _Stumbled(f"{name} has had too many requests from here; try again in a while.")
    if status >= 500:
        return _Stumbled(f"{name} is out of order (HTTP {status}); try again later.")
    return RegistryReplied(f"{name} answered HTTP {status} for '{repository}'.")
