"""The engine's packages, by a real daemon from an index that lies on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.backends import installed_version
from lemonade.engines.fasterwhisper.engine import LIBRARY, PACKAGES, PYTHON, VERSION
from tests.daemon import Daemon, events
from tests.hub.fake_index import FakeIndex, running
from tests.whisper import FASTER_WHISPER as BACKEND

pytestmark = pytest.mark.skipif(bool(installed_version(LIBRARY)), reason="it is installed beside the daemon already")


@pytest.fixture
def index(tmp_path: Path) -> Iterator[FakeIndex]:
    with running(tmp_path / "wheels") as fake:
        for package in PACKAGES:
            name, _, version = package.partition("==")
            folder = name.replace("-", "_")
            fake.add(name, version, {f"{folder}/__init__.py": b"", f"{folder}.libs/x.so": os.urandom(3000)})
        yield fake


@pytest.fixture
def site(tmp_path: Path, index: FakeIndex) -> Iterator[Daemon]:
    env = {
        "PIP_INDEX_URL": index.url,
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_RETRIES": "0",
        "PIP_CACHE_DIR": str(tmp_path / "pip"),
        "NO_PROXY": "127.0.0.1",
    }
    with Daemon(tmp_path / "site", env=env) as one:
        yield one


def state(site: Daemon) -> dict[str, Any]:
    shown: dict[str, Any] = site.get("/v1/system-info").json()["recipes"]["fasterwhisper"]["backends"]["cpu"]
    return shown


def listed(site: Daemon) -> bool:
    rows = site.get("/v1/models?show_all=true").json()["data"]
    return "Faster-Whisper-Tiny" in [row["id"] for row in rows]


def test_it_comes_and_goes(site: Daemon) -> None:
    assert (state(site)["state"], state(site)["version"]) == ("installable", VERSION)
    assert not listed(site)
    refused = site.post("/v1/load", {"model_name": "Faster-Whisper-Tiny"})
    assert (refused.status, refused.error["code"]) == (404, "model_not_supported")
    assert "lemonade backends install fasterwhisper:cpu" in refused.error["message"]
    plan = site.post("/v1/install/dry-run", BACKEND).json()
    assert (plan["filename"], plan["files"], plan["supported"]) == (PACKAGES[0], list(PACKAGES), True)
    answer = site.post("/v1/install", {**BACKEND, "stream": True})
    parts = [json.loads(event) for event in events(answer.body)]
    assert parts[-1]["complete"] is True
    assert {part["file"] for part in parts} == {"", *PACKAGES}
    lies = site.folder / "cache" / "bin" / "fasterwhisper" / "cpu"
    assert (lies / "version.txt").read_text() == f"{VERSION}-{PYTHON}\n"
    assert (lies / "faster_whisper" / "__init__.py").is_file()
    assert (lies / "ctranslate2.libs" / "x.so").stat().st_size == 3000
    assert not list(lies.rglob("*.whl")), "wheels are not kept"
    assert (state(site)["state"], state(site)["can_uninstall"]) == ("installed", True)
    assert listed(site)
    assert site.post("/v1/uninstall", BACKEND).json() == {"status": "success", **BACKEND}
    assert not lies.exists()
    assert state(site)["state"] == "installable"
    assert not listed(site)


def test_what_hinders_it(site: Daemon, index: FakeIndex) -> None:
    site.post("/internal/set", {"offline": True})
    assert site.post("/v1/install", BACKEND).error["code"] == "lemond_offline"
    site.post("/internal/set", {"offline": False, "no_fetch_executables": True})
    forbidden = site.post("/v1/install", BACKEND)
    assert (forbidden.status, "no_fetch_executables" in forbidden.error["message"]) == (400, True)
    assert state(site)["action"] == "pip install faster-whisper"
    site.post("/internal/set", {"no_fetch_executables": False})
    # The first one comes, of the second there is none for this machine.
    (wheel,) = index.root.glob("ctranslate2*")
    wheel.rename(wheel.with_name(wheel.name.replace("py3-none-any", "cp30-cp30-win32")))
    unfit = site.post("/v1/install", BACKEND)
    assert (unfit.status, "ctranslate2" in unfit.error["message"]) == (404, True)
    left = site.folder / "cache" / "bin" / "fasterwhisper"
    assert not left.exists() or not list(left.iterdir()), "nothing is left of a half of it"
    assert state(site)["state"] == "installable"


def test_an_index_that_is_not_reached(site: Daemon, index: FakeIndex) -> None:
    index.server.server_close()
    answer = site.post("/v1/install", BACKEND)
    assert (answer.status, answer.error["code"]) == (502, "registry_unreachable")
    assert PACKAGES[0] in answer.error["message"]


def test_the_command_names_no_setting_that_there_is_not(site: Daemon, tmp_path: Path) -> None:
    command = (sys.executable, "-m", "lemonade.cli.main", "--port", str(site.port))
    done = subprocess.run(
        (*command, "backends", "install", "fasterwhisper:cpu"), capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, "is installed." in done.stderr, "config set" in done.stderr) == (0, True, False)
