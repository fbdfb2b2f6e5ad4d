"""How the bytes of one file come over HTTP: resumed where they stopped, verified before anybody sees them.

The bytes gather in `place.incomplete(file)`; the validator (ETag) that they came with is noted beside them, so that
another process can go on after this one was killed. `place.blob(file)` appears by a rename after size and hash were
found right.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import msgspec

from lemonade.errors import (
    FileNotInRepository,
    HubError,
    IntegrityError,
    NotEnoughSpace,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryGated,
)
from lemonade.hub.gguf import MAGIC
from lemonade.hub.layout import write
from lemonade.hub.registry import Place, RemoteFile, Watch
from lemonade.hub.wire import Wire, hang_up, host

if TYPE_CHECKING:
    import httpx2

_CHUNK = 1 << 20
_NO_SPACE = (errno.ENOSPC, errno.EDQUOT)
_CONTENT_RANGE = re.compile(r"^bytes (\d+)-\d+/(\d+|\*)$")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long a transfer tries.

    Attributes:
        attempts: failures in a row, none of which brought a byte, after which it is given up.
        first_pause: seconds before the second attempt; doubled from then on.
        longest_pause: limit of that, in seconds.
        silence: seconds over which less than `slowest` is as good as no connection.
        slowest: bytes per second.
    """

    attempts: int = 10
    first_pause: float = 2.0
    longest_pause: float = 120.0
    silence: float = 60.0
    slowest: int = 1000


class Interrupted(Exception):
    """The connection ended before the file did; another attempt may help.

    Attributes:
        pause: seconds that the registry asked to wait.
    """

    def __init__(self, reason: str, pause: float | None = None) -> None:
        super().__init__(reason)
        self.pause = pause


class Validator(msgspec.Struct, frozen=True):
    """Which content the gathered bytes belong to."""

    etag: str | None = None


class Digest:
    """The hash that a registry names for a file: sha256 for large ones, git's object id for small ones."""

    def __init__(self, file: RemoteFile) -> None:
        self.expected = (file.sha256 or file.etag or "").lower()
        self.size = 0
        if file.sha256:
            self._hash = hashlib.sha256()
        else:
            # Git hashes "blob SIZE\0" and the bytes; the id is a name here, not a protection, but it is all there is.
            self._hash = hashlib.sha1(f"blob {file.size}\0".encode(), usedforsecurity=False)

    def update(self, chunk: bytes) -> None:
        self._hash.update(chunk)
        self.size += len(chunk)

    @property
    def is_right(self) -> bool:
        return self._hash.hexdigest() == self.expected


class Transfer:
    """One file's way from `url` to `place.blob(file)`."""

    def __init__(self, wire: Wire, url: str, file: RemoteFile, place: Place, watch: Watch, patience: Patience) -> None:
        self._wire = wire
        self._url = url
        self._file = file
        self._place = place
        self._watch = watch
        self._patience = patience
        self._partial = place.incomplete(file)
        self._digest = Digest(file)
        self._host = host(wire.endpoint)

    def run(self) -> None:
        """Brings the file.

        Raises:
            IntegrityError: what came twice was not what the registry had announced.
            NotEnoughSpace: the disk is full; the bytes so far stay for a later attempt.
            FileNotInRepository, RepositoryGated, RegistryReplied: the registry refuses.
            RegistryUnreachable: no attempt got through.
        """
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        self._watch.begin(self._file, self._file.size, self._here())
        failures, wrong, before = 0, 0, self._here()
        while True:
            self._watch.check()
            try:
                with self._disk():
                    self._attempt()
                    self._finish()
                return
            except IntegrityError:
                self._place.discard(self._file)
                self._watch.advance(0)
                wrong += 1
                if wrong > 1:
                    raise
            except Interrupted as interruption:
                failures = 1 if self._here() > before else failures + 1
                if failures >= self._patience.attempts:
                    if self._here() == 0:
                        self._place.discard(self._file)
                    raise RegistryUnreachable(
                        f"'{self._file.path}' could not be fetched from {self._host}: {interruption}. "
                        "What has come so far is kept; try again later."
                    ) from interruption
                self._rest(interruption.pause or self._pause(failures))
            before = self._here()

    def _attempt(self) -> None:
        """One connection, from where the bytes stopped to the end of the file."""
        here = self._here()
        if here > self._file.size:
            self._place.discard(self._file)
            here = 0
        if here == self._file.size and self._file.size > 0:
            return
        headers = {}
        if here:
            headers["range"] = f"bytes={here}-"
            etag = self._validator().etag
            if etag and not etag.startswith("W/"):
                headers["if-range"] = etag
        import httpx2

        try:
            with self._wire.get(self._url, headers) as response:
                self._receive(response, here)
        except httpx2.TransportError as error:
            raise Interrupted(_reason(error)) from error

    def _receive(self, response: httpx2.Response, here: int) -> None:
        status = response.status_code
        if status == 416:
            # The registry says there is nothing after what is here, but it is not whole: it belongs to something else.
            self._place.discard(self._file)
            raise Interrupted("it has nothing after what is here already", pause=0.001)
        self._refuse(response)
        etag = response.headers.get("etag")
        start = here
        if status == 206:
            match = _CONTENT_RANGE.match(response.headers.get("content-range", ""))
            known = self._validator().etag
            is_same = match and int(match[1]) == here and match[2] in ("*", str(self._file.size))
            if not is_same or (known and etag and known != etag):
                self._place.discard(self._file)
                raise Interrupted("the file changed on the way", pause=0.001)
        else:
            start = 0
            length = response.headers.get("content-length", "")
            if length.isdigit() and int(length) != self._file.size:
                raise IntegrityError(self._explain(f"it has {length} bytes instead of {self._file.size}"))
        if start == 0:
            self._place.discard(self._file)
            if etag:
                write(self._place.validator(self._file), msgspec.json.encode(Validator(etag)))
        self._watch.advance(start)
        self._digest_so_far(start)
        self._watch.on_stop(lambda: hang_up(response))
        try:
            with self._partial.open("ab") as target:
                self._copy(response, target, start)
        finally:
            self._watch.on_stop(None)

    def _copy(self, response: httpx2.Response, target: BinaryIO, here: int) -> None:
        window, since = here, time.monotonic()
        # Whatever has come is written at once: a large chunk of a slow line would be lost with the process.
        for chunk in response.iter_raw():
            self._watch.check()
            if here + len(chunk) > self._file.size:
                raise IntegrityError(self._explain(f"it has more than {self._file.size} bytes"))
            if here < len(MAGIC) and self._file.path.lower().endswith(".gguf"):
                self._check_magic(here, chunk)
            target.write(chunk)
            self._digest.update(chunk)
            here += len(chunk)
            self._watch.advance(here)
            now = time.monotonic()
            if now - since >= self._patience.silence:
                if here - window < self._patience.slowest * (now - since):
                    raise Interrupted("the connection stalled")
                window, since = here, now
        if here < self._file.size:
            raise Interrupted(f"the connection ended after {here} of {self._file.size} bytes")

    def _check_magic(self, here: int, chunk: bytes) -> None:
        part = chunk[: len(MAGIC) - here]
        if MAGIC[here : here + len(part)] != part:
            raise IntegrityError(self._explain("it does not begin as a GGUF file does"))

    def _digest_so_far(self, here: int) -> None:
        """Makes the digest cover exactly the first `here` bytes, read again where they came in an earlier attempt."""
        if self._digest.size == here:
            return
        self._digest = Digest(self._file)
        if here:
            with self._partial.open("rb") as source:
                while chunk := source.read(min(_CHUNK, here - self._digest.size)):
                    self._watch.check()
                    self._digest.update(chunk)

    def _finish(self) -> None:
        self._digest_so_far(self._file.size)
        if not self._digest.is_right:
            raise IntegrityError(self._explain("its hash is wrong"))
        with self._partial.open("rb+") as partial:
            os.fsync(partial.fileno())
        self._partial.replace(self._place.blob(self._file))
        self._place.validator(self._file).unlink(missing_ok=True)

    def _refuse(self, response: httpx2.Response) -> None:
        status, reason = response.status_code, response.headers.get("x-error-code", "")
        if status in (200, 206):
            is_page = response.headers.get("content-type", "").startswith("text/html")
            if is_page and not self._file.path.lower().endswith((".html", ".htm")):
                raise IntegrityError(self._explain("a web page came instead (a login or a proxy?)"))
            return
        if status == 404:
            raise FileNotInRepository(f"{self._host} has no '{self._file.path}' any more; ask for the model again.")
        if status in (401, 403):
            raise RepositoryGated(
                f"{self._host} refuses '{self._file.path}' (HTTP {status}{', ' + reason if reason else ''}). Accept "
                "the model's terms on its page and set HF_TOKEN to a token that may read it."
            )
        if status in (408, 425, 429) or status >= 500:
            raise Interrupted(f"it answered HTTP {status}", _retry_after(response))
        raise RegistryReplied(f"{self._host} answered HTTP {status} for '{self._file.path}'.")

    def _explain(self, what: str) -> str:
        return f"'{self._file.path}' from {self._host} is not what was announced: {what}. It was removed."

    def _validator(self) -> Validator:
        try:
            return msgspec.json.decode(self._place.validator(self._file).read_bytes(), type=Validator)
        except (OSError, msgspec.MsgspecError):
            return Validator()

    def _here(self) -> int:
        try:
            return self._partial.stat().st_size
        except OSError:
            return 0

    def _pause(self, failures: int) -> float:
        # The exponent is bounded so that a large number of attempts cannot overflow.
        return float(min(self._patience.first_pause * 2 ** min(failures - 1, 30), self._patience.longest_pause))

    def _rest(self, seconds: float) -> None:
        """Waits, ready to be called off."""
        until = time.monotonic() + min(seconds, self._patience.longest_pause)
        while (left := until - time.monotonic()) > 0:
            self._watch.check()
            time.sleep(min(left, 0.1))

    @contextmanager
    def _disk(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise disk_error(error, self._file.path, self._partial.parent) from error


def disk_error(error: OSError, file: str, folder: Path) -> HubError:
    """What a failure to write means to the person who waits."""
    if error.errno in _NO_SPACE or getattr(error, "winerror", None) == 112:
        return NotEnoughSpace(
            f"The disk with {folder} became full while '{file}' was written. Free space and try again."
        )
    return HubError(f"'{file}' could not be written to {folder}: {error.strerror or error}.")


def _reason(error: Exception) -> str:
    import httpx2

    if isinstance(error, httpx2.ConnectTimeout | httpx2.PoolTimeout):
        return "no connection came about"
    if isinstance(error, httpx2.TimeoutException):
        return "the connection went silent"
    if isinstance(error, httpx2.ConnectError | httpx2.ProxyError):
        return f"no connection ({error})"
    return f"the connection broke ({error or type(error).__name__})"


def _retry_after(response: httpx2.Response) -> float | None:
    text = response.headers.get("retry-after", "")
    return float(text) if text.isdigit() else None
