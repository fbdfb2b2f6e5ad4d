"""The way of pictures from an engine to the client."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.engines.sdcpp import protocol
from lemonade.engines.sdcpp.engine import SYSTEM
from lemonade.errors import EngineReplied
from lemonade.inference.failure import engine_failure
from lemonade.inference.images import Wanted
from lemonade.inference.images_dialects import Asked, for_library, for_server, size_of
from lemonade.inference.images_events import engine_events
from lemonade.inference.relay import MAX_ERROR, Heartbeat, Sink

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease


class _Picture(msgspec.Struct):
    b64_json: msgspec.Raw


class _Pictures(msgspec.Struct):
    data: list[_Picture]


_pictures = msgspec.json.Decoder(_Pictures)


class ImageWork:
    """One request for pictures, as `relay.Work`."""

    def __init__(self, wanted: Wanted, model: Model, sink: Sink) -> None:
        self._wanted = wanted
        self._model = model
        self._sink = sink
        self.passed_on = False
        #: Pictures are not counted in tokens.
        self.measurement = None

    async def run(self, lease: Lease) -> None:
        wanted, options = self._wanted, lease.resident.options
        is_program = lease.resident.launch.backend == SYSTEM
        shape = for_server if is_program else for_library
        # Files are read beside the loop.
        asked = await asyncio.to_thread(shape, wanted, self._model, options)
        if not wanted.events:
            body = await self._answer(lease, asked)
            self.passed_on = True
            await self._sink.reply(body)
            return
        with Heartbeat(self._sink) as heart:
            if is_program:
                await self._tell(await self._answer(lease, asked), options, heart)
            else:
                await self._stream(lease, asked, heart)

    async def _answer(self, lease: Lease, asked: Asked) -> bytes:
        """The whole answer, with as many pictures as were asked for."""
        name = lease.resident.launch.name
        reply = await lease.connection.request("POST", asked.path, asked.body, asked.headers)
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), name)
            body = await reply.read()
        finally:
            reply.close()
        try:
            found = len(_pictures.decode(body).data)
        except msgspec.MsgspecError as error:
            raise EngineReplied(f"The engine's answer lacks what it must have: {error}.", status=502) from None
        if found != self._wanted.n:
            raise EngineReplied(f"{name} made {found} of {self._wanted.n} pictures.", status=500)
        return body

    async def _stream(self, lease: Lease, asked: Asked, heart: Heartbeat) -> None:
        reply = await lease.connection.request("POST", asked.path, asked.body, asked.headers)
        try:
            async with aclosing(engine_events(reply, lease.resident.launch.name)) as events:  # type: ignore[type-var]
                async for event in events:
                    lease.touch()
                    self.passed_on = True
                    await self._write(event, heart)
        finally:
            reply.close()
        await heart.settle()
        await self._sink.end()

    async def _tell(self, body: bytes, options: Mapping[str, Any], heart: Heartbeat) -> None:
        """The events of an engine that tells of nothing until all is done."""
        size = size_of(self._wanted, options)
        facts = {"created_at": int(time.time()), "size": f"{size.width}x{size.height}"}
        facts |= {"quality": "auto", "background": "opaque", "output_format": "png"}
        kind = f"{self._wanted.events}.{protocol.COMPLETED}"
        self.passed_on = True
        for picture in msgspec.json.decode(body)["data"]:
            data = msgspec.json.encode({"type": kind, **picture, **facts, "usage": protocol.NO_USAGE})
            await self._write(b"event: %b\ndata: %b\n\n" % (kind.encode(), data), heart)
        await heart.settle()
        await self._sink.end()

    async def _write(self, event: bytes, heart: Heartbeat) -> None:
        await heart.settle()
        heart.reset()
        if not self._sink.started:
            await self._sink.start()
        await self._sink.write(event)
