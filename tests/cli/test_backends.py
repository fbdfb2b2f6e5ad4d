"""`lemonade backends` and `lemonade system`, against a real daemon with releases that lie on this machine."""

from __future__ import annotations

import json
import platform
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Shell
from tests.daemon import Daemon
from tests.hub.fake_releases import FakeReleases, running, tar

TAG = "b12000"

pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or platform.machine() != "x86_64", reason="the archives are for this system"
)


@pytest.fixture(scope="module")
def releases(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeReleases]:
    with running(tmp_path_factory.mktemp("releases")) as fake:
        fake.add(TAG, f"llama-{TAG}-bin-ubuntu-vulkan-x64.tar.gz", tar({"llama-server": b"#!/bin/sh\nexit 1\n"}))
        yield fake


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, releases: FakeReleases) -> Iterator[Daemon]:
    env = {"LEMONADE_RELEASES_ENDPOINT": releases.url, "NO_PROXY": "127.0.0.1"}
    config = {"llamacpp": {"backend": "cpu", "vulkan_bin": TAG}}
    with Daemon(tmp_path_factory.mktemp("site"), env=env, config=config) as one:
        yield one


@pytest.fixture
def shell(tmp_path: Path, site: Daemon) -> Shell:
    return Shell(tmp_path, site.port)


def test_install_list_and_uninstall(shell: Shell) -> None:
    before = shell("backends")
    assert before.code == 0, before.err
    row = next(line for line in before.out.splitlines() if line.startswith("llamacpp:vulkan"))
    assert "installable" in row
    assert "lemonade backends install llamacpp:vulkan" in row
    assert "llamacpp:metal" not in before.out
    ended = shell("backends", "install", "llamacpp:vulkan")
    assert ended.code == 0, ended.err
    assert f"llama-{TAG}-bin-ubuntu-vulkan-x64.tar.gz" in ended.err
    assert "llamacpp.backend=vulkan" in ended.err
    assert json.loads(shell("backends", "--json").out)["llamacpp"]["vulkan"]["version"] == TAG
    assert shell("backends", "uninstall", "llamacpp:vulkan").code == 0
    assert json.loads(shell("backends", "--json").out)["llamacpp"]["vulkan"]["state"] == "installable"


def test_all_of_them_with_the_reason(shell: Shell) -> None:
    shown = shell("backends", "--all").out
    assert "llamacpp:metal" in shown
    assert "whispercpp" in shown
    assert "llamacpp:cpu (used)" in shown


def test_mistakes(shell: Shell) -> None:
    ended = shell("backends", "install", "llamacpp")
    assert ended.code == 2
    assert "RECIPE:BACKEND" in ended.err
    ended = shell("backends", "install", "llamacpp:nope")
    assert (ended.code, ended.out) == (1, "")
    assert "must be one of llamacpp's: cuda" in ended.err


def test_completion(shell: Shell) -> None:
    words = {"COMP_WORDS": "lemonade backends install llamacpp:v", "COMP_CWORD": "3"}
    ended = shell(env={"_LEMONADE_COMPLETE": "complete_bash", **words})
    assert ended.out.split() == ["llamacpp:vulkan"]


def test_the_machine(shell: Shell) -> None:
    shown = shell("system").out
    assert "llamacpp on cpu" in shown
    assert {line.split()[0] for line in shown.splitlines()} >= {"System", "Processor", "Memory", "Models", "Engine"}
    parsed = json.loads(shell("system", "--json").out)
    assert parsed["load"]["memory_gb"] > 0
    assert parsed["recipes"]["llamacpp"]["default_backend"] == "cpu"
