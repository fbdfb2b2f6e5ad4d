"""An engine's process: started, watched, and ended together with everything that it started itself."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import deque
from pathlib import Path
from typing import cast

from lemonade.engines.engine import ABANDONED, PROGRESS, Launch
from lemonade.engines.ports import PortLost, is_free, release_port
from lemonade.errors import ModelLoadError

#: Lines kept for error messages, and the longest part of one that is kept or logged, in bytes.
TAIL_LINES = 100
LINE_BYTES = 2048
#: Lines that an error message shows.
LINES_SHOWN = 10
#: Seconds between two looks at an engine that starts: short at first, because a small model is there in a blink, and
#: again whenever it says something, because it may be that it is ready.
FIRST_POLL = 0.005
LONGEST_POLL = 0.1
#: Seconds that a look may take. An engine that is loading may well accept and not answer.
PROBE_TIMEOUT = 2.0
#: Seconds for the last words of a process that has exited to arrive through its pipe.
LAST_WORDS = 0.2

#: Variables of the daemon's environment that are no business of a child's: keys of others, and the key that would make
#: a llama-server refuse its own daemon.
WITHHELD = re.compile(r"LEMONADE_(.+_)?API_KEY|LLAMA_API_KEY|HF_TOKEN|HUGGING_FACE_HUB_TOKEN")

# Announces the group to the guard, whose pipe stands in for standard error, and becomes the engine.
_ANNOUNCE = 'printf "+%d\\n" $$ >&2 && exec "$@" 2>&1'

_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")


def environment() -> dict[str, str]:
    """The daemon's environment as a child may have it."""
    return {name: value for name, value in os.environ.items() if not WITHHELD.fullmatch(name)}


class EngineProcess(asyncio.SubprocessProtocol):
    """One child in a process group of its own, with its output read into the log.

    Attributes:
        launch: what was started.
        pid: also the number of the group.
        exited: set within milliseconds of the process's end.
        returncode: None while it runs; minus the signal's number when a signal ended it.
        started_at: `time.monotonic()` at the start.
    """

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.pid = 0
        self.returncode: int | None = None
        self.exited = asyncio.Event()
        self.started_at = time.monotonic()
        self._log = logging.getLogger(f"lemonade.engine.{launch.name}")
        self._lines: deque[str] = deque(maxlen=TAIL_LINES)
        self._partial = b""
        self._drained = asyncio.Event()
        self._spoke = asyncio.Event()
        self._transport: asyncio.SubprocessTransport | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._abandoned = False
        headers = {"Host": "127.0.0.1", "Connection": "close", **launch.headers}
        head = [f"GET {launch.health_path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        self._look = "\r\n".join([*head, "", ""]).encode()

    @classmethod
    async def start(cls, launch: Launch) -> EngineProcess:
        """Starts the child; it is not ready yet.

        Raises:
            ModelLoadError: the program is not there or cannot be run.
        """
        if shutil.which(launch.argv[0]) is None:
            release_port(launch.port)
            raise ModelLoadError(f"the program '{launch.argv[0]}' of {launch.name} is not there or cannot be run")
        loop = asyncio.get_running_loop()
        process = cls(launch)
        env = {**environment(), **launch.env}
        try:
            if sys.platform == "win32":
                # Grandchildren need a job object here; our own engines end with their standard input.
                await loop.subprocess_exec(lambda: process, *launch.argv, env=env, stderr=subprocess.STDOUT)
            else:
                await loop.subprocess_exec(
                    lambda: process,
                    *("/bin/sh", "-c", _ANNOUNCE, launch.name, *launch.argv),
                    env=env,
                    stderr=_guard.pipe(),
                    start_new_session=True,
                )
        except (OSError, ValueError) as error:
            release_port(launch.port)
            raise ModelLoadError(f"{launch.name} cannot be started: {error}") from error
        return process

    # What the event loop reports.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an isinstance: uvloop's transport has the methods without the class.
        self._transport = cast(asyncio.SubprocessTransport, transport)
        self.pid = self._transport.get_pid() or 0
        _guard.remember(self.pid)
        self._log.debug("started process %d: %s", self.pid, " ".join(self.launch.argv))

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._spoke.set()
        *lines, partial = (self._partial + data).split(b"\n")
        for line in lines:
            self._keep(line)
        # A line without an end must not grow for ever; what is beyond the limit would be cut anyway.
        self._partial = partial[: LINE_BYTES + 1]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if fd == 1:
            if self._partial:
                self._keep(self._partial)
                self._partial = b""
            self._drained.set()

    def process_exited(self) -> None:
        assert self._transport is not None
        self.returncode = ABANDONED if self._abandoned else self._transport.get_returncode()
        _kill_group(self.pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
        _guard.forget(self.pid)
        release_port(self.launch.port)
        self.exited.set()
        self._log.debug("process %d: %s", self.pid, self.epitaph())
        # Its pipes end with the group; whoever left the group must not keep them open for us.
        asyncio.get_running_loop().call_later(LAST_WORDS, self._transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._transport is not None:
            self._transport.close()

    # What the owner asks.

    async def wait_ready(self, timeout: float) -> None:
        """Returns as soon as the engine answers its health path with 2xx.

        Args:
            timeout: seconds from now.

        Raises:
            ModelLoadError: it exited, or the time is over; with the last lines of its log. The process is not
                stopped by this.
            PortLost: it exited because another program listens on its port.
        """
        answered = asyncio.ensure_future(self._answered())
        ended = asyncio.ensure_future(self.exited.wait())
        try:
            await asyncio.wait((answered, ended), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            answered.cancel()
            ended.cancel()
        if not self.exited.is_set():
            if answered.done() and not answered.cancelled():
                return
            raise ModelLoadError(f"{self.launch.name} was not ready after {timeout:g} s{self._last_words()}")
        await self._drain()
        said = "\n".join(self._lines).lower()
        if not is_free(self.launch.port) or "address already in use" in said or "couldn't bind" in said:
            raise PortLost(f"another program took port {self.launch.port} before {self.launch.name} could listen on it")
        raise ModelLoadError(f"{self.epitaph()}{self._last_words()}")

    async def _answered(self) -> None:
        pause = FIRST_POLL
        while True:
            self._spoke.clear()
            if await self.probe():
                return
            await asyncio.sleep(FIRST_POLL)
            try:
                await asyncio.wait_for(self._spoke.wait(), pause)
                pause = FIRST_POLL
            except TimeoutError:
                pause = min(pause * 1.5, LONGEST_POLL)

    async def _drain(self) -> None:
        """Waits for the last words, which may arrive after the exit; not for ever, as others may hold the pipe."""
        try:
            await asyncio.wait_for(self._drained.wait(), LAST_WORDS)
        except TimeoutError:
            pass

    async def probe(self, timeout: float = PROBE_TIMEOUT) -> bool:
        """Whether the engine answers its health path with 2xx within `timeout` seconds."""
        try:
            async with asyncio.timeout(timeout):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.launch.port)
                try:
                    writer.write(self._look)
                    status = await reader.readline()
                finally:
                    writer.transport.abort()
        except (OSError, TimeoutError, ValueError):
            return False
        return re.match(rb"HTTP/1\.[01] 2\d\d", status) is not None

    async def stop(self, grace: float = 5.0) -> None:
        """Ends the process and all that it started. Returns when it is gone; may be called at any time, repeatedly
        and at once. A caller that is cancelled does not stop the stopping.

        Args:
            grace: seconds between the request to end and the kill; 0 kills at once.
        """
        if self._stopping is None:
            self._stopping = asyncio.ensure_future(self._stop(grace))
        await asyncio.shield(self._stopping)

    def abandon(self) -> None:
        """Ends the process at once, as nothing else stops the work that it does for a client who has left. That is no
        crash: its `returncode` will be `ABANDONED`."""
        if not self.exited.is_set():
            self._abandoned = True
            _kill_group(self.pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)

    async def _stop(self, grace: float) -> None:
        if not self.exited.is_set():
            if grace > 0:
                _kill_group(self.pid, signal.SIGTERM)
                if sys.platform != "win32":
                    # A stopped process sees the request only when it goes on.
                    _kill_group(self.pid, signal.SIGCONT)
            try:
                await asyncio.wait_for(self.exited.wait(), grace)
            except TimeoutError:
                self._log.debug("process %d did not end within %g s; killing it", self.pid, grace)
                _kill_group(self.pid, signal.SIGKILL if sys.platform != "win32" else signal.SIGTERM)
                await self.exited.wait()
        await self._drain()

    def tail(self) -> list[str]:
        """The last lines that the process wrote, the newest last, control characters escaped."""
        return list(self._lines)

    def epitaph(self) -> str:
        """How it ended, in words: `llama-server exited with code 1`, `llama-server was killed by SIGKILL`."""
        code = self.returncode
        if code is None:
            return f"{self.launch.name} is running (process {self.pid})"
        if code >= 0:
            return f"{self.launch.name} exited with code {code}"
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        how = {"SIGKILL": "was killed by", "SIGTERM": "was ended by"}.get(name, "crashed with")
        return f"{self.launch.name} {how} {name}"

    def _keep(self, raw: bytes) -> None:
        line = raw[:LINE_BYTES].rstrip(b"\r").decode(errors="replace")
        if len(raw) > LINE_BYTES:
            line += "…"
        line = _CONTROL.sub(lambda match: f"\\x{ord(match.group()):02x}", line)
        self._lines.append(line)
        level = logging.INFO if line.startswith(PROGRESS) else logging.DEBUG
        self._log.log(level, "%s", line.removeprefix(PROGRESS))

    def _last_words(self) -> str:
        lines = [line for line in self._lines if line.strip()][-LINES_SHOWN:]
        return "; its last log lines:\n" + "\n".join(lines) if lines else "; it wrote no log"


def _kill_group(group: int, number: signal.Signals) -> None:
    try:
        if sys.platform == "win32":
            os.kill(group, number)
        else:
            os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        # Gone already; macOS says "not permitted" of a group whose only member is a zombie.
        pass


class _Guard:
    """The daemon's end of the guard (see `guard.py`)."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._write = -1
        #: Nobody else ever holds it: its closing tells the guard that the daemon is gone.
        self._lifeline = -1
        self._groups: set[int] = set()

    def pipe(self) -> int:
        """The descriptor on which a new group announces itself; starts the guard when there is none."""
        if self._child is None or self._child.poll() is not None:
            self._start()
        return self._write

    def remember(self, group: int) -> None:
        """The group has announced itself; it is told again to a guard that has to be replaced."""
        self._groups.add(group)

    def forget(self, group: int) -> None:
        self._groups.discard(group)
        self._tell(f"-{group}\n")

    def close(self) -> None:
        if self._child is not None:
            os.close(self._write)
            os.close(self._lifeline)
            self._child.wait()
            self._child = None

    def _start(self) -> None:
        if self._child is not None:
            os.close(self._write)
            os.close(self._lifeline)
        else:
            atexit.register(self.close)
        read, self._write = os.pipe()
        end, self._lifeline = os.pipe()
        program = Path(__file__).with_name("guard.py")
        try:
            self._child = subprocess.Popen(
                (sys.executable, "-I", "-S", str(program), str(end)),
                pass_fds=(end,),
                stdin=read,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd="/",
                env=environment(),
                start_new_session=True,
            )
        finally:
            os.close(read)
            os.close(end)
        for group in self._groups:
            self._tell(f"+{group}\n")

    def _tell(self, line: str) -> None:
        if self._child is not None:
            try:
                os.write(self._write, line.encode())
            except BrokenPipeError:
                pass


_guard = _Guard()
