"""The way of pictures from an engine to the client."""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from typing import TYPE_CHECKING

import msgspec

from lemonade.engines.sdcpp import protocol
from lemonade.engines.sdcpp.native import SERVER
from lemonade.inference.failure import engine_failure
from lemonade.inference.images import Wanted
from lemonade.inference.images_dialects import Asked, for_library, size_of
from lemonade.inference.images_events import engine_events
from lemonade.inference.images_server import painted
from lemonade.inference.relay import MAX_ERROR, Heartbeat, Sink

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease


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
        wanted = self._wanted
        if lease.resident.launch.name == SERVER:
            await self._by_server(lease)
            return
        # Files are read beside the loop.
        asked = await asyncio.to_thread(for_library, wanted, self._model, lease.resident.options)
        if wanted.events:
            with Heartbeat(self._sink) as heart:
                await self._stream(lease, asked, heart)
        else:
            body = await self._answer(lease, asked)
            self.passed_on = True
            await self._sink.reply(body)

    async def _answer(self, lease: Lease, asked: Asked) -> bytes:
        reply = await lease.connection.request("POST", asked.path, asked.body, asked.headers)
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
            return await reply.read()
        finally:
            reply.close()

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

    async def _by_server(self, lease: Lease) -> None:
        pictures = painted(self._wanted, self._model, lease)
        if not self._wanted.events:
            made = [picture async for picture in pictures]
            self.passed_on = True
            await self._sink.reply(
                msgspec.json.encode({"created": int(time.time()), "data": made, "output_format": "png"})
            )
            return
        # It tells of nothing until a picture is done.
        kind = f"{self._wanted.events}.{protocol.COMPLETED}"
        size = size_of(self._wanted, lease.resident.options)
        facts = {"size": f"{size.width}x{size.height}", "quality": "auto", "background": "opaque"}
        with Heartbeat(self._sink) as heart:
            async with aclosing(pictures):  # type: ignore[type-var]
                async for picture in pictures:
                    told = {"type": kind, "created_at": int(time.time()), **picture, **facts, "output_format": "png"}
                    data = msgspec.json.encode({**told, "usage": protocol.NO_USAGE})
                    self.passed_on = True
                    await self._write(b"event: %b\ndata: %b\n\n" % (kind.encode(), data), heart)
            await heart.settle()
            await self._sink.end()

    async def _write(self, event: bytes, heart: Heartbeat) -> None:
        await heart.settle()
        heart.reset()
        if not self._sink.started:
            await self._sink.start()
        await self._sink.write(event)
