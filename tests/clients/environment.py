"""Clients that are installed for the tests alone, each set once for each state of the file that pins it."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

FOLDER = Path(__file__).parent
NODE = FOLDER / "node"
NODE_FILES = ("package.json", "package-lock.json", ".npmrc")
#: The oldest Node that the clients run on.
OLDEST_NODE = 20
INSTALL_SECONDS = 600


def python(requirements: str = "requirements.txt") -> Path:
    """The interpreter of an environment with the clients that a file here pins."""
    pins = FOLDER / requirements
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    state = hashlib.sha256(pins.read_bytes() + version.encode()).hexdigest()[:16]

    def install(folder: Path) -> None:
        # An environment cannot be moved: what marks it as whole is moved instead.
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(_interpreter(folder)), "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-r", str(pins)])

    return _interpreter(_made(f"python-{state}", install))


def node() -> tuple[str, Path]:
    """The program, and a folder with `node_modules` in it."""
    program, npm = shutil.which("node"), shutil.which("npm")
    if program is None or npm is None:
        pytest.skip("node and npm are not installed")
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.removeprefix("v").split(".")[0]) < OLDEST_NODE:
        pytest.skip(f"the clients need Node {OLDEST_NODE} or newer, this is {version.strip()}")
    state = hashlib.sha256(b"".join((NODE / name).read_bytes() for name in NODE_FILES)).hexdigest()[:16]

    def install(folder: Path) -> None:
        folder.mkdir()
        for name in NODE_FILES:
            shutil.copy(NODE / name, folder)
        _run([npm, "ci", "--prefer-offline", "--ignore-scripts"], cwd=folder)

    return program, _made(f"node-{state}", install)


def run_node(script: str, *arguments: str) -> Any:
    """The JSON that a script in `node/` prints."""
    program, modules = node()
    with tempfile.TemporaryDirectory() as folder:
        copied = Path(folder) / script
        shutil.copy(NODE / script, copied)
        (Path(folder) / "node_modules").symlink_to(modules / "node_modules", target_is_directory=True)
        return _answer([program, str(copied), *arguments], {})


def run_python(
    script: str, *arguments: str, env: dict[str, str] | None = None, requirements: str = "requirements.txt"
) -> Any:
    """The JSON that a script in `python/` prints."""
    return _answer([str(python(requirements)), str(FOLDER / "python" / script), *arguments], env or {})


def _answer(command: list[str], env: dict[str, str]) -> Any:
    ran = subprocess.run(command, capture_output=True, text=True, timeout=150, env={**os.environ, **env})
    assert ran.returncode == 0, ran.stderr[-4000:]
    return json.loads(ran.stdout.splitlines()[-1])


def _interpreter(folder: Path) -> Path:
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def _made(name: str, install: Callable[[Path], None]) -> Path:
    base = Path(os.environ.get("LEMONADE_TEST_CLIENTS") or Path("~/.cache/lemonade-test-clients").expanduser())
    base.mkdir(parents=True, exist_ok=True)
    target, whole = base / name, base / f"{name}.whole"
    with FileLock(base / f"{name}.lock"):
        if not whole.exists():
            shutil.rmtree(target, ignore_errors=True)
            install(target)
            whole.touch()
    return target


def _run(command: list[str], cwd: Path | None = None) -> None:
    ran = subprocess.run(command, cwd=cwd, capture_output=True, text=True, timeout=INSTALL_SECONDS)
    if ran.returncode == 0:
        return
    reason = f"{' '.join(command)} failed:\n{ran.stderr[-2000:]}"
    if os.environ.get("CI"):
        pytest.fail(reason)
    pytest.skip(f"the clients cannot be installed here: {reason}")
