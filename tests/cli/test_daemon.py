"""`lemonade` and a real daemon: found, started once, and told about when it does not come up."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.cli.conftest import PATIENCE, Shell
from tests.daemon import FAKE_ENGINE, alive, free_port, gguf, wait_for


def daemons(shell: Shell) -> list[int]:
    """Processes of daemons that listen on this shell's port."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "serve" in words and shell.env["LEMONADE_PORT"] in words:
            found.append(process.pid)
    return found


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """A machine with one model, `tiny`, on a fake engine, and no daemon. Whatever is started is gone afterwards."""
    shell = Shell(tmp_path, free_port())
    for name in ("models", "config", "bin"):
        (tmp_path / name).mkdir()
    (tmp_path / "models" / "tiny.gguf").write_bytes(gguf({"general.architecture": "llama"}))
    settings = {"extra_models_dir": str(tmp_path / "models"), "llamacpp": {"backend": "system"}}
    (tmp_path / "config" / "config.json").write_text(json.dumps(settings))
    engine = tmp_path / "bin" / "llama-server"
    engine.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE_ENGINE}" "$@"\n')
    engine.chmod(0o755)
    shell.env["PATH"] = f"{engine.parent}{os.pathsep}{shell.env['PATH']}"
    shell.env["HF_HUB_CACHE"] = str(tmp_path / "hub")
    yield shell
    for pid in daemons(shell):
        os.kill(pid, signal.SIGTERM)
        wait_for(lambda pid=pid: not alive(pid), PATIENCE)


def test_run_starts_a_daemon_that_outlives_it(shell: Shell) -> None:
    first = shell("run", "tiny", "hi")
    assert first.code == 0, first.err
    assert first.out.strip()
    assert "Started the daemon" in first.err
    second = shell("run", "tiny", "hi")
    assert (second.code, second.err) == (0, "")
    assert second.out.strip()
    (pid,) = daemons(shell)
    assert os.getsid(pid) == pid
    assert "tiny" in shell("status").out
    lines = shell("logs").out.splitlines()
    assert any(shell.env["LEMONADE_PORT"] in line for line in lines)
    assert len([line for line in lines if "listens on" in line]) == 1


def test_two_at_once_start_one(shell: Shell) -> None:
    both = [
        subprocess.Popen(
            shell.command("run", "tiny", "hi"), env=shell.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        for _ in range(2)
    ]
    ended = [process.communicate(timeout=PATIENCE) for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert all(out.strip() for out, _ in ended)
    assert sum(b"Started the daemon" in err for _, err in ended) == 1
    assert len(daemons(shell)) == 1


def test_a_daemon_that_does_not_come_up_is_quoted(shell: Shell) -> None:
    # A port that accepts nothing and that nobody else can have.
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", int(shell.env["LEMONADE_PORT"])))
        ended = shell("run", "tiny", "hi")
    assert ended.code == 1
    assert ended.out == ""
    assert ended.err.count("\n") == 1
    assert "already in use" in ended.err
    assert "lemond.log" in ended.err


def test_another_program_on_the_port_is_named(shell: Shell) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "http.server", shell.env["LEMONADE_PORT"], "--bind", "127.0.0.1"],
        cwd=shell.home,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as other:
        try:

            def listens() -> bool:
                with socket.socket() as probe:
                    return probe.connect_ex(("127.0.0.1", int(shell.env["LEMONADE_PORT"]))) == 0

            wait_for(listens, PATIENCE)
            ended = shell("run", "tiny", "hi")
        finally:
            other.terminate()
    assert ended.code == 1
    assert "is not Lemonade" in ended.err
    assert daemons(shell) == []


def test_no_daemon_is_started_for_another_machine(shell: Shell) -> None:
    ended = shell("run", "tiny", "hi", "--host", "nowhere.invalid")
    assert ended.code == 1
    assert daemons(shell) == []


def test_serve_on_a_busy_port(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", int(shell.env["LEMONADE_PORT"]))):
        ended = shell("serve")
    assert ended.code == 1
    assert [line for line in ended.err.splitlines() if "already in use" in line]
    assert "Traceback" not in ended.err


def test_stop_ends_it_and_comes_back_when_it_has(shell: Shell) -> None:
    assert shell("run", "tiny", "hi").code == 0
    (pid,) = daemons(shell)
    stopped = shell("stop")
    assert (stopped.code, stopped.out) == (0, "")
    assert "has stopped" in stopped.err
    wait_for(lambda: not alive(pid), PATIENCE)
    again = shell("stop")
    assert again.code == 1
    assert "lemonade serve" in again.err


def test_a_cache_that_cannot_be_written(shell: Shell, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    shell.env["LEMONADE_CACHE_DIR"] = str(tmp_path / "file" / "cache")
    run = shell("run", "tiny", "hi")
    assert run.code == 1 and "Traceback" not in run.err
    assert "none can be started in the background" in run.err and "LEMONADE_CACHE_DIR" in run.err
    assert str(tmp_path / "file") in run.err
    assert daemons(shell) == []
