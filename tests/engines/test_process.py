from __future__ import annotations

import asyncio
import logging
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lemonade.engines.engine import Launch
from lemonade.engines.ports import PortLost, take_port
from lemonade.engines.process import LINE_BYTES, EngineProcess
from lemonade.errors import ModelLoadError
from tests.engines.launching import fake_launch

ROOT = Path(__file__).parents[2]


@asynccontextmanager
async def running(**switches: Any) -> AsyncIterator[EngineProcess]:
    process = await EngineProcess.start(fake_launch(**switches))
    try:
        await process.wait_ready(30)
        yield process
    finally:
        await process.stop(grace=0.5)


def script(code: str, name: str = "engine") -> Launch:
    return Launch(name=name, argv=(sys.executable, "-c", textwrap.dedent(code)), port=take_port())


async def until(condition: Callable[[], bool], timeout: float = 5.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        await asyncio.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def children_of(pid: int) -> list[int]:
    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


async def test_an_engine_becomes_ready_and_ends_on_sigterm() -> None:
    async with running() as process:
        assert await process.probe()
        assert alive(process.pid)
        assert "running" in process.epitaph()
        await process.stop()
        assert process.exited.is_set()
        assert process.returncode == 0
        assert not await process.probe()


async def test_it_has_a_process_group_of_its_own() -> None:
    async with running() as process:
        assert os.getpgid(process.pid) == process.pid != os.getpgid(0)


async def test_a_slow_start_is_waited_for() -> None:
    started = time.monotonic()
    async with running(slow_start=1.0):
        assert time.monotonic() - started >= 0.9


async def test_one_that_never_gets_ready_is_given_up_after_the_timeout() -> None:
    process = await EngineProcess.start(fake_launch(never_ready=True))
    with pytest.raises(ModelLoadError, match=r"fake-engine was not ready after 1\.5 s"):
        await process.wait_ready(1.5)
    assert not process.exited.is_set()
    await process.stop()


async def test_an_early_exit_fails_at_once_with_the_last_lines() -> None:
    process = await EngineProcess.start(fake_launch(exit_at_start=7))
    with pytest.raises(ModelLoadError) as caught:
        await asyncio.wait_for(process.wait_ready(600), 20)
    assert "fake-engine exited with code 7" in caught.value.message
    assert "fatal: the file is no model" in caught.value.message
    assert process.returncode == 7


async def test_a_program_that_is_not_there() -> None:
    with pytest.raises(ModelLoadError, match="no-such-program"):
        await EngineProcess.start(Launch(name="engine", argv=("no-such-program",), port=take_port()))


async def test_a_port_lost_to_another_program_is_told_apart() -> None:
    async with running() as process:
        second = await EngineProcess.start(fake_launch(port=process.launch.port))
        with pytest.raises(PortLost, match=str(process.launch.port)):
            await second.exited.wait()
            await second.wait_ready(20)
        await second.stop()


async def test_death_is_known_at_once_and_named() -> None:
    async with running() as process:
        os.kill(process.pid, signal.SIGKILL)
        await asyncio.wait_for(process.exited.wait(), 2)
        assert process.returncode == -signal.SIGKILL
        assert process.epitaph() == "fake-engine was killed by SIGKILL"


async def test_a_crash_is_named() -> None:
    process = await EngineProcess.start(script("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"))
    await asyncio.wait_for(process.exited.wait(), 10)
    assert process.epitaph() == "engine crashed with SIGSEGV"
    await process.stop()


async def test_its_child_is_reaped_and_grandchildren_do_not_outlive_it() -> None:
    async with running(fork_child=True) as process:
        family = children_of(process.pid)
        assert family
        os.kill(process.pid, signal.SIGKILL)
        await process.exited.wait()
        assert not psutil.pid_exists(process.pid)
        await until(lambda: not any(map(alive, family)))


async def test_stop_ends_grandchildren_too() -> None:
    async with running(fork_child=True, ignore_sigterm=True) as process:
        family = children_of(process.pid)
        await process.stop(grace=0.2)
        assert process.returncode == -signal.SIGKILL
        await until(lambda: not any(map(alive, family)))


async def test_a_stopped_child_is_ended_by_the_kind_request() -> None:
    async with running() as process:
        os.kill(process.pid, signal.SIGSTOP)
        await asyncio.wait_for(process.stop(grace=20), 10)
        assert process.returncode == 0


async def test_a_hung_child_does_not_pass_the_probe() -> None:
    async with running() as process:
        os.kill(process.pid, signal.SIGSTOP)
        assert not await process.probe(0.3)
        os.kill(process.pid, signal.SIGCONT)
        assert await process.probe(5)


async def test_stop_may_be_called_at_once_and_again() -> None:
    async with running(ignore_sigterm=True) as process:
        await asyncio.gather(*(process.stop(grace=0.2) for _ in range(5)))
        await process.stop()
        assert process.exited.is_set()


async def test_a_cancelled_caller_does_not_stop_the_stopping() -> None:
    async with running(ignore_sigterm=True) as process:
        caller = asyncio.create_task(process.stop(grace=0.3))
        await asyncio.sleep(0.05)
        caller.cancel()
        await asyncio.wait_for(process.exited.wait(), 10)


async def test_stop_while_starting() -> None:
    process = await EngineProcess.start(fake_launch(slow_start=60))
    waiting = asyncio.create_task(process.wait_ready(60))
    await process.stop()
    with pytest.raises(ModelLoadError):
        await waiting


async def test_output_is_cut_escaped_logged_and_bounded(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="lemonade.engine")
    async with running(noise=300) as process:
        lines = process.tail()
        assert len(lines) == 100
        assert lines[-2] == "line 299"
    logged = [record.getMessage() for record in caplog.records if record.name == "lemonade.engine.fake-engine"]
    assert "x" * LINE_BYTES + "…" in logged
    assert r"red \x1b[31m text \x07" in logged


async def test_a_line_without_an_end_stays_small() -> None:
    code = "import sys; [sys.stdout.write('y' * 100_000) for _ in range(50)]; print(); print('last')"
    process = await EngineProcess.start(script(code))
    await process.exited.wait()
    await process.stop()
    assert process.tail() == ["y" * LINE_BYTES + "…", "last"]


async def test_its_standard_input_ends_with_the_daemon_and_not_before() -> None:
    process = await EngineProcess.start(script("import sys; print('end of input', sys.stdin.read())"))
    await asyncio.sleep(0.2)
    assert not process.exited.is_set()
    await process.stop()


async def test_descriptors_of_the_daemon_do_not_leak_into_an_engine(tmp_path: Path) -> None:
    with (tmp_path / "secret").open("w") as held:
        os.set_inheritable(held.fileno(), True)
        async with running() as process:
            opened = [entry.resolve() for entry in Path(f"/proc/{process.pid}/fd").iterdir()]
            assert tmp_path / "secret" not in opened


async def test_keys_of_the_daemon_stay_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LEMONADE_API_KEY", "sk-canary")
    monkeypatch.setenv("HF_TOKEN", "hf-canary")
    monkeypatch.setenv("PASSED_ON", "yes")
    process = await EngineProcess.start(script("import os; print(*map('='.join, os.environ.items()), sep='\\n')"))
    await process.exited.wait()
    await process.stop()
    assert "PASSED_ON=yes" in process.tail()
    assert not any("canary" in line for line in process.tail())


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("ready", [True, False])
@pytest.mark.parametrize("runner", ["asyncio", "uvloop"])
async def test_nothing_outlives_a_parent_that_is_ended(
    end: signal.Signals, ready: bool, runner: str, tmp_path: Path
) -> None:
    pytest.importorskip(runner)
    said = tmp_path / "stderr.txt"
    code = f"""
        import asyncio, {runner}
        from lemonade.engines.process import EngineProcess
        from tests.engines.launching import fake_launch

        async def main():
            processes = [
                await EngineProcess.start(fake_launch(fork_child=True, ignore_sigterm=True))
                for _ in range(2)
            ]
            if {ready}:
                for process in processes:
                    await process.wait_ready(30)
            print(*(process.pid for process in processes), flush=True)
            await asyncio.sleep(600)

        {runner}.run(main())
    """
    with said.open("wb") as errors:
        parent = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(code)],
            stdout=subprocess.PIPE,
            stderr=errors,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        )
    assert parent.stdout is not None
    with parent.stdout:
        await asyncio.to_thread(parent.stdout.readline)
        family = children_of(parent.pid)
        parent.send_signal(end)
        await asyncio.to_thread(parent.wait, 10)
    assert len(family) >= (5 if ready else 3), said.read_text()  # the guard, two engines, and their children
    await until(lambda: not any(map(alive, family)))


async def test_a_guard_that_was_killed_is_replaced_and_told_again() -> None:
    code = """
        import asyncio
        from lemonade.engines import process
        from lemonade.engines.process import EngineProcess
        from tests.engines.launching import fake_launch

        async def main():
            processes = [await EngineProcess.start(fake_launch(ignore_sigterm=True))]
            await processes[0].wait_ready(30)
            process._guard._child.kill()
            process._guard._child.wait()
            processes.append(await EngineProcess.start(fake_launch(fork_child=True)))
            await processes[1].wait_ready(30)
            print(*(process.pid for process in processes), flush=True)
            await asyncio.sleep(600)

        asyncio.run(main())
    """
    parent = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    assert parent.stdout is not None
    started = [int(pid) for pid in (await asyncio.to_thread(parent.stdout.readline)).split()]
    assert len(started) == 2
    family = children_of(parent.pid)
    assert set(started) <= set(family)
    parent.kill()
    await asyncio.to_thread(parent.wait, 10)
    parent.stdout.close()
    await until(lambda: not any(map(alive, family)))


async def test_under_uvloop() -> None:
    uvloop = pytest.importorskip("uvloop")
    code = """
        import asyncio, os, signal, uvloop
        from lemonade.engines.process import EngineProcess
        from tests.engines.launching import fake_launch

        async def main():
            process = await EngineProcess.start(fake_launch(fork_child=True))
            await process.wait_ready(30)
            assert await process.probe()
            os.kill(process.pid, signal.SIGKILL)
            await asyncio.wait_for(process.exited.wait(), 5)
            print(process.epitaph(), process.tail())
            await process.stop()
            other = await EngineProcess.start(fake_launch())
            await other.wait_ready(30)
            await other.stop()
            print(other.epitaph())

        uvloop.run(main())
    """
    assert uvloop
    made = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
        timeout=60,
    )
    assert made.stderr == ""
    assert "killed by SIGKILL" in made.stdout
    assert "exited with code 0" in made.stdout
