"""Files of a project's releases on GitHub: which there are, and their way here.

What is fetched is always compared with a sha256. It is one that was written down when the release was chosen, or else
the one that the release itself tells; a file of which nobody tells one is refused.

`LEMONADE_RELEASES_ENDPOINT` names a mirror that is laid out like GitHub Enterprise: `/OWNER/NAME/releases/download/…`
for the files, `/api/v3/repos/OWNER/NAME/releases…` for what there is.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from lemonade.errors import (
    FileNotInRepository,
    HubError,
    IntegrityError,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryGated,
)
from lemonade.hub.lock import alone
from lemonade.hub.registry import RemoteFile, Watch
from lemonade.hub.transfer import Patience, Transfer
from lemonade.hub.wire import Wire, host, origin

if TYPE_CHECKING:
    import httpx2

ENDPOINT = "https://github.com"
API = "https://api.github.com"

T = TypeVar("T")

#: The newest releases that are looked through for one that has what is wanted. Uploads take a while.
_NEWEST = 20
#: Bytes of the longest answer that is read; twenty releases of forty files each have 2 MB.
_MAX_ANSWER = 16 * 1024 * 1024

#: What a tag may look like; it becomes a part of addresses and of file names.
TAG = re.compile(r"^(?!.*\.\.)[A-Za-z0-9][\w.+-]{0,63}\Z", re.ASCII)


class Archive(msgspec.Struct, frozen=True):
    """One file of a release; `url` is where its bytes are."""

    file: RemoteFile
    url: str


class Release(msgspec.Struct, frozen=True):
    """The files that were wanted of one release."""

    repository: str
    tag: str
    archives: tuple[Archive, ...]


class Asset(msgspec.Struct, frozen=True):
    """A file as a release lists it. `digest` is `sha256:HEX`; releases of before June 2025 do not tell it."""

    name: str
    size: int
    browser_download_url: str
    digest: str | None = None


class _Listed(msgspec.Struct, frozen=True):
    tag_name: str
    assets: list[Asset] = []


def choose(patterns: Sequence[str], tag: str, names: Sequence[str]) -> list[str] | None:
    """For each pattern the file that it means, None when one means none.

    A pattern is a file name in which `{tag}` stands for the tag and `*` for a version's digits and dots; of several
    versions the highest counts.
    """
    found = []
    for pattern in patterns:
        parts = pattern.replace("{tag}", tag).split("*")
        regex = re.compile(r"([\d.]*)".join(re.escape(part) for part in parts))
        fitting = [match for name in names if (match := regex.fullmatch(name))]
        if not fitting:
            return None
        found.append(max(fitting, key=lambda match: [_version(group) for group in match.groups()]).string)
    return found


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".") if part)


class Releases:
    """The releases of projects. All methods block; call them in worker threads."""

    def __init__(self, env: Mapping[str, str] = os.environ, *, patience: Patience | None = None) -> None:
        mirror = env.get("LEMONADE_RELEASES_ENDPOINT", "").rstrip("/")
        self._wire = Wire(mirror or ENDPOINT, None)
        self._api = Wire(f"{mirror}/api/v3" if mirror else API, None)
        self._patience = patience or Patience()

    def url(self, repository: str, tag: str, name: str) -> str:
        """Where the bytes of a release's file are."""
        return f"{self._wire.endpoint}/{repository}/releases/download/{tag}/{name}"

    def find(self, repository: str, tag: str, patterns: Sequence[str], hashes: Mapping[str, str]) -> Release:
        """The files that `choose` picks from a release.

        Args:
            tag: a release's, or `latest` for the newest one that has the files.
            hashes: file name, or pattern with the tag filled in, to sha256. When it has all the files' names, nobody
                is asked what the release holds.

        Raises:
            FileNotInRepository: there is no such release, or it does not have the files.
            IntegrityError: nobody tells a file's hash, or the release tells another one.
            RegistryUnreachable, RegistryReplied, Offline
        """
        if tag != "latest" and (names := choose(patterns, tag, list(hashes))):
            return Release(repository, tag, tuple(self._pinned(repository, tag, name, hashes[name]) for name in names))
        listed = self._newest(repository) if tag == "latest" else [self._one(repository, tag)]
        for release in listed:
            assets = {asset.name: asset for asset in release.assets}
            if TAG.match(release.tag_name) and (names := choose(patterns, release.tag_name, list(assets))):
                filled = [pattern.replace("{tag}", release.tag_name) for pattern in patterns]
                archives = tuple(
                    self._archive(assets[name], hashes.get(name) or hashes.get(pattern))
                    for name, pattern in zip(names, filled, strict=True)
                )
                return Release(repository, release.tag_name, archives)
        wanted = " and ".join(pattern.replace("{tag}", tag) for pattern in patterns)
        where = f"any of its newest {len(listed)} releases" if tag == "latest" else f"its release {tag}"
        raise FileNotInRepository(f"{repository} has no {wanted} in {where}.")

    def fetch(self, release: Release, folder: Path, watch: Watch) -> list[Path]:
        """Brings the files into a folder, verified; what came of an interrupted one goes on from there.

        Raises:
            HubError: the transfer's.
        """
        place = Shelf(folder)
        for archive in release.archives:
            with alone(place.lock(archive.file), watch):
                if place.blob(archive.file).is_file():
                    continue
                try:
                    Transfer(self._wire, archive.url, archive.file, place, watch, self._patience).run()
                except FileNotInRepository:
                    raise self._gone(release.repository, archive.file.path, release.tag) from None
                except RepositoryGated as error:
                    raise RegistryReplied(
                        f"{host(archive.url)} refuses '{archive.file.path}'. Try again later."
                    ) from error
        return [place.blob(archive.file) for archive in release.archives]

    def _pinned(self, repository: str, tag: str, name: str, sha256: str) -> Archive:
        url = self.url(repository, tag, name)
        # Only the head is of interest: how long the file is. The connection is closed before the bytes come.
        with self._get(self._wire, url) as response:
            self._refuse(response.status_code, repository, name, tag)
            length = response.headers.get("content-length", "")
        if not length.isdigit():
            raise RegistryReplied(f"{host(url)} does not say how long '{name}' is.")
        return Archive(RemoteFile(name, int(length), sha256), url)

    def _archive(self, asset: Asset, known: str | None) -> Archive:
        kind, _, told = (asset.digest or "").partition(":")
        told = told.lower() if kind == "sha256" and re.fullmatch(r"[0-9a-fA-F]{64}", told) else ""
        if known and told and known != told:
            raise IntegrityError(f"'{asset.name}' should have the sha256 {known}, and its release tells {told}.")
        if not (known or told):
            raise IntegrityError(
                f"Nobody tells a hash of '{asset.name}', so it is not installed. Take a newer release, or name the "
                "hash that you trust behind the tag: TAG@sha256:HEX."
            )
        if origin(asset.browser_download_url)[0] != origin(self._wire.endpoint)[0]:
            raise RegistryReplied(
                f"'{asset.name}' would be fetched from {host(asset.browser_download_url)} unprotected."
            )
        return Archive(RemoteFile(asset.name, asset.size, known or told), asset.browser_download_url)

    def _one(self, repository: str, tag: str) -> _Listed:
        body = self._ask(f"/repos/{repository}/releases/tags/{tag}", repository, tag)
        return self._decoded(msgspec.json.Decoder(_Listed), body)

    def _newest(self, repository: str) -> list[_Listed]:
        # Not `/releases/latest`: llama.cpp marks each of its builds as a pre-release, which that one leaves out.
        body = self._ask(f"/repos/{repository}/releases?per_page={_NEWEST}", repository, "latest")
        return self._decoded(msgspec.json.Decoder(list[_Listed]), body)

    def _ask(self, path: str, repository: str, tag: str) -> bytes:
        with self._get(self._api, self._api.endpoint + path) as response:
            self._refuse(response.status_code, repository, "", tag)
            body = b""
            for chunk in response.iter_raw():
                body += chunk
                if len(body) > _MAX_ANSWER:
                    raise RegistryReplied(f"{host(self._api.endpoint)} answers with more than is read.")
        return body

    def _decoded(self, decoder: msgspec.json.Decoder[T], body: bytes) -> T:
        try:
            return decoder.decode(body)
        except msgspec.MsgspecError as error:
            where = host(self._api.endpoint)
            raise RegistryReplied(f"{where} answers with something that is no list of files.") from error

    @contextmanager
    def _get(self, wire: Wire, url: str) -> Iterator[httpx2.Response]:
        import httpx2

        try:
            with wire.get(url) as response:
                yield response
        except httpx2.TransportError as error:
            raise RegistryUnreachable(f"{host(url)} cannot be reached ({error or type(error).__name__}).") from error

    def _refuse(self, status: int, repository: str, name: str, tag: str) -> None:
        if status == 200:
            return
        if status == 404:
            raise self._gone(repository, name, tag)
        if status in (403, 429):
            raise RegistryReplied(
                f"{host(self._api.endpoint)} answers no more questions from here for now (HTTP {status}); it takes "
                "sixty in an hour. Try again later."
            )
        raise RegistryReplied(f"{host(self._api.endpoint)} answered HTTP {status} for {repository}.")

    @staticmethod
    def _gone(repository: str, name: str, tag: str) -> HubError:
        what = f"no file '{name}' in its release {tag}" if name else f"no release {tag}"
        return FileNotInRepository(f"{repository} has {what}.")


class Shelf:
    """Where archives lie until they are unpacked (a `registry.Place`), named by their hash."""

    def __init__(self, folder: Path) -> None:
        self.path = folder

    def blob(self, file: RemoteFile) -> Path:
        # The hash keeps two files of one name apart; the name is for messages.
        return self.path / f"{(file.sha256 or '')[:16]}-{file.path}"

    def incomplete(self, file: RemoteFile) -> Path:
        return self.blob(file).with_name(f"{self.blob(file).name}.incomplete")

    def validator(self, file: RemoteFile) -> Path:
        return self.blob(file).with_name(f"{self.blob(file).name}.json")

    def lock(self, file: RemoteFile) -> Path:
        return self.blob(file).with_name(f"{self.blob(file).name}.lock")

    def discard(self, file: RemoteFile) -> None:
        self.incomplete(file).unlink(missing_ok=True)
        self.validator(file).unlink(missing_ok=True)
