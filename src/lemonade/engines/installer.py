"""Installing and removing the programs of backends."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lemonade.catalog.recipes import RECIPES
from lemonade.engines.engine import Backend, Build, Wheels
from lemonade.engines.programs import Programs, program_in
from lemonade.engines.table import Engines
from lemonade.errors import (
    DownloadCancelled,
    HubError,
    InvalidArgument,
    NotEnoughSpace,
    Offline,
    RegistryUnreachable,
    StorageError,
    UnsupportedOperation,
)
from lemonade.hub.archive import unpack
from lemonade.hub.downloads import Downloads
from lemonade.hub.fetch import disk_free
from lemonade.hub.job import Job, Work
from lemonade.hub.progress import Meter
from lemonade.hub.pypi import PyPI
from lemonade.hub.releases import Release, Releases, Shelf, choose
from lemonade.hub.transfer import disk_error
from lemonade.settings import Settings

#: What is unpacked is about three times as large as its archive; the archive is still there then.
_UNPACKED = 4


class Installer:
    """Brings programs into `Programs` by jobs of `Downloads`.

    Args:
        changed: called on the loop after a program came or went.
        releases: makes the way to the releases; called in a worker thread.
    """

    def __init__(
        self,
        *,
        engines: Engines,
        programs: Programs,
        downloads: Downloads,
        settings: Settings,
        changed: Callable[[], None],
        releases: Callable[[], Releases] = Releases,
    ) -> None:
        self._engines = engines
        self._programs = programs
        self._downloads = downloads
        self._settings = settings
        self._changed = changed
        self._releases = releases

    def install(self, recipe: str, backend: str, *, force: bool = False) -> Job | None:
        """The job that installs a backend, one that runs already or a new one; None when nothing has to be done.

        Args:
            force: also what would not run here, and what is installed already.

        Raises:
            InvalidArgument: there is no such recipe or backend.
            UnsupportedOperation: it cannot be installed, or would not run here.
            Offline
        """
        state = self._engines.backend(recipe, backend)
        details = {"recipe": recipe, "backend": backend}
        build = self._engines.build(recipe, backend) if force or state.state != "unsupported" else None
        if build is None:
            if state.can_run:
                return None
            hint = " With `force` it is installed anyway." if self._is_fetched(recipe, backend) else ""
            message = f"{recipe}:{backend} cannot be installed. {state.message}{hint}"
            raise UnsupportedOperation(message, details=details)
        if state.can_run and not force and (state.state == "installed" and build.tag != "latest"):
            return None
        if self._settings["no_fetch_executables"]:
            if state.can_run and not force:
                return None
            raise UnsupportedOperation(
                f"{recipe}:{backend} is not installed: the setting no_fetch_executables forbids it.", details=details
            )
        if self._settings["offline"]:
            if state.can_run and not force:
                return None
            raise Offline(f"{recipe}:{backend} is not installed: the daemon is in offline mode.", details=details)
        name = f"{recipe}:{backend}"
        found: list[Release] = []
        return self._downloads.start_work(
            Work(
                kind="backend",
                name=name,
                again=f"Install it again to go on: lemonade backends install {name}.",
                run=lambda meter: self._bring(recipe, backend, build, meter, found, force=force),
                withdraw=lambda: self._withdraw(found),
                arrived=self._changed,
            )
        )

    def missing(self, recipe: str, options: Mapping[str, Any]) -> Backend | None:
        """The backend that a model's options or the settings name, when it can be fetched and is not here yet."""
        key = f"{recipe}_backend"
        name = str(options.get(key) or "auto")
        if name == "auto" and recipe in RECIPES and key in RECIPES[recipe].options:
            name = str(self._settings[RECIPES[recipe].options[key].setting])
        if name == "auto":
            return None  # what is here is taken
        with suppress(InvalidArgument):
            backend = self._engines.backend(recipe, name)
            if backend.state == "installable" and self._is_fetched(recipe, name):
                return backend
        return None

    def plan(self, recipe: str, backend: str, arch: str = "") -> tuple[Build | Wheels | None, Release | None]:
        """What an installation would fetch; blocks, and asks the network only for a tag that is not pinned.

        Raises:
            InvalidArgument, UnsupportedOperation, HubError
        """
        build = self._engines.build(recipe, backend, arch)
        if not isinstance(build, Build) or self._is_known(build) or self._settings["offline"]:
            return build, None
        return build, self._releases().find(build.repository, build.tag, build.files, build.hashes)

    def uninstall(self, recipe: str, backend: str) -> bool:
        """Removes what was fetched for a backend; False when there was nothing. Blocks.

        Raises:
            InvalidArgument: there is no such recipe or backend.
            StorageError
        """
        self._engines.known(recipe, backend)
        try:
            return self._programs.remove(recipe, backend)
        except OSError as error:
            raise _in_use(recipe, backend, error) from error

    def _is_fetched(self, recipe: str, backend: str) -> bool:
        """Whether there is a build for this system, and fetching is allowed."""
        with suppress(UnsupportedOperation):
            return not self._settings["no_fetch_executables"] and self._engines.build(recipe, backend) is not None
        return False

    @staticmethod
    def _is_known(build: Build) -> bool:
        return build.tag != "latest" and choose(build.files, build.tag, list(build.hashes)) is not None

    # In the worker's thread.

    def _bring(
        self, recipe: str, backend: str, build: Build | Wheels, meter: Meter, found: list[Release], *, force: bool
    ) -> None:
        if isinstance(build, Wheels):
            self._bring_wheels(recipe, backend, build, meter)
            return
        installed = self._programs.find(recipe, backend)
        releases = self._releases()
        try:
            release = releases.find(build.repository, build.tag, build.files, build.hashes)
        except RegistryUnreachable:
            if installed is not None and not force:
                return
            raise
        if installed is not None and installed.version == release.tag and not force:
            return
        found[:] = [release]
        folder = self._programs.downloads
        total = sum(archive.file.size for archive in release.archives)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if (free := disk_free(folder)) < _UNPACKED * total:
                raise NotEnoughSpace(
                    f"{recipe}:{backend} needs about {_UNPACKED * total / 1e9:.1f} GB of space below {folder}, and "
                    f"{free / 1e9:.1f} GB are free."
                )
            meter.plan(len(release.archives), total, 0)
            archives = releases.fetch(release, folder, meter)
            self._put(recipe, backend, build, release, archives, meter)
        except OSError as error:
            raise disk_error(error, error.filename or f"{recipe}:{backend}", folder) from error

    def _bring_wheels(self, recipe: str, backend: str, wheels: Wheels, meter: Meter) -> None:
        def fill(folder: Path) -> None:
            for package in wheels.packages:
                # In the folder, which goes when the work breaks off.
                workplace = folder / ".wheel"
                workplace.mkdir()
                unpack(PyPI({}).wheel(package, workplace, meter), folder, check=meter.check)
                shutil.rmtree(workplace)

        meter.plan(len(wheels.packages), 0, 0)
        try:
            self._programs.put(recipe, backend, wheels.tag, "", fill)
        except PermissionError as error:
            raise _in_use(recipe, backend, error) from error
        except OSError as error:
            raise disk_error(error, error.filename or f"{recipe}:{backend}", self._programs.root) from error

    def _put(
        self, recipe: str, backend: str, build: Build, release: Release, archives: list[Path], meter: Meter
    ) -> None:
        def fill(folder: Path) -> None:
            for archive in archives:
                unpack(archive, folder, check=meter.check)
            if program_in(folder, build.program) is None:
                raise HubError(f"The release {release.tag} of {build.repository} holds no {build.program}.")

        try:
            self._programs.put(recipe, backend, release.tag, build.program, fill)
        except DownloadCancelled:
            raise
        except HubError:
            self._forget(release)
            raise
        except PermissionError as error:
            raise _in_use(recipe, backend, error) from error
        self._forget(release)

    def _forget(self, release: Release) -> None:
        shelf = Shelf(self._programs.downloads)
        for archive in release.archives:
            shelf.discard(archive.file)
            shelf.blob(archive.file).unlink(missing_ok=True)
            shelf.lock(archive.file).unlink(missing_ok=True)

    def _withdraw(self, found: list[Release]) -> None:
        """Removes what came of a download that was cancelled."""
        for release in found:
            self._forget(release)


def _in_use(recipe: str, backend: str, error: OSError) -> StorageError:
    return StorageError(
        f"The program of {recipe}:{backend} cannot be replaced ({error.strerror or error}). Is a model running on it? "
        "Unload it first: lemonade unload"
    )
