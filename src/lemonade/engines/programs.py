"""The engine programs that the daemon fetched: `<cache>/bin/RECIPE/BACKEND/`, each with its `version.txt`.

A folder appears, and is replaced, by one rename: what is in it is always whole.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec

VERSION = "version.txt"
#: Seconds for which a look at the disk is believed; what the daemon does itself shows at once.
FRESH = 5.0
#: Seconds after which nobody works in a folder any more that is being filled.
ABANDONED = 3600.0
#: Where, below a folder, programs of llama.cpp and its kin lie: in their releases, and where they are built.
_PLACES = ("", "bin", "build/bin", "build/bin/Release")

_NAME = re.compile(r"^[a-z0-9](?:[a-z0-9.-]{0,62}[a-z0-9])?\Z")


class Installed(msgspec.Struct, frozen=True):
    """A program that was fetched.

    Attributes:
        version: the tag of its release.
        folder: where it lies.
    """

    version: str
    folder: Path


class Programs:
    """What is installed. Any thread may use it.

    Args:
        root: the folder with one folder per recipe.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._seen: dict[Path, tuple[float, Installed | None]] = {}

    @property
    def downloads(self) -> Path:
        """Where archives gather; on the same disk."""
        return self.root / ".downloads"

    def find(self, recipe: str, backend: str) -> Installed | None:
        """What was fetched for a backend, or None."""
        folder = self._folder(recipe, backend)
        now = time.monotonic()
        when, found = self._seen.get(folder, (-FRESH, None))
        if now - when >= FRESH:
            found = self._look(folder)
            self._seen[folder] = (now, found)
        return found

    def put(self, recipe: str, backend: str, version: str, program: str, fill: Callable[[Path], None]) -> None:
        """Installs a program, instead of the one that is there.

        Args:
            program: the file that is run, without `.exe`; nothing when it is none but a library.
            fill: puts the files into the folder that it is given.

        Raises:
            FileNotFoundError: `program` is not among the files; what was there before stays.
            OSError: from writing, or because the program runs on a system that does not let go of it.
        """
        folder = self._folder(recipe, backend)
        self._clear_leftovers(folder)
        new = folder.with_name(f".{backend}.{uuid.uuid4().hex[:8]}.new")
        try:
            new.mkdir(parents=True)
            fill(new)
            if program and program_in(new, program) is None:
                raise FileNotFoundError(program)
            (new / VERSION).write_text(f"{version}\n", encoding="utf-8")
            self._remove(folder)
            new.replace(folder)
        finally:
            shutil.rmtree(new, ignore_errors=True)
            self.forget()

    def remove(self, recipe: str, backend: str) -> bool:
        """Removes what was fetched for a backend; False when there is nothing.

        Raises:
            OSError
        """
        try:
            return self._remove(self._folder(recipe, backend))
        finally:
            self.forget()

    def forget(self) -> None:
        """Has the disk looked at again."""
        self._seen.clear()

    def _folder(self, recipe: str, backend: str) -> Path:
        if not (_NAME.match(recipe) and _NAME.match(backend)):
            raise ValueError(f"{recipe}:{backend} is no backend")
        return self.root / recipe / backend

    @staticmethod
    def _clear_leftovers(folder: Path) -> None:
        """What an installation left behind that was killed. Another daemon's may go on right now."""
        for left in folder.parent.glob(f".{folder.name}.*"):
            with suppress(OSError):
                if time.time() - left.stat().st_mtime > ABANDONED:
                    shutil.rmtree(left, ignore_errors=True)

    @staticmethod
    def _look(folder: Path) -> Installed | None:
        try:
            version = (folder / VERSION).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError):
            return None
        return Installed(version, folder)

    @staticmethod
    def _remove(folder: Path) -> bool:
        """First the name goes: a program that is half removed is never found."""
        old = folder.with_name(f".{folder.name}.{uuid.uuid4().hex[:8]}.old")
        try:
            folder.replace(old)
        except FileNotFoundError:
            return False
        shutil.rmtree(old, ignore_errors=True)
        return True


def loader_path(folder: Path) -> dict[str, str]:
    """The environment in which a program finds the libraries that lie beside it in `folder`."""
    variable = "PATH" if sys.platform == "win32" else "LD_LIBRARY_PATH"
    before = os.environ.get(variable)
    return {variable: f"{folder}{os.pathsep}{before}" if before else str(folder)}


def program_in(folder: Path, name: str) -> Path | None:
    """A program in a folder that holds a release or a build of it, or None."""
    for place in _PLACES:
        for file in (name, f"{name}.exe"):
            path = folder / place / file
            if path.is_file() and os.access(path, os.X_OK):
                return path
    return None
