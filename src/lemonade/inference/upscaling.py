"""Pictures made larger. No model stays in memory for it: each picture has a process of its own, one at a time."""

from __future__ import annotations

import asyncio
import base64
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.engines.connection import Connection
from lemonade.engines.ports import release_port, take_port
from lemonade.engines.process import EngineProcess
from lemonade.engines.sdcpp import protocol
from lemonade.engines.sdcpp.engine import SdCpp
from lemonade.engines.sdcpp.native import CLI
from lemonade.errors import Busy, EngineError, InvalidArgument, RequestError, UnsupportedOperation
from lemonade.inference.failure import engine_failure
from lemonade.inference.images_events import engine_events
from lemonade.inference.relay import MAX_ERROR, Heartbeat, Sink
from lemonade.model import Model

if TYPE_CHECKING:
    from lemonade.engines.engine import Launch
    from lemonade.engines.table import Engines
    from lemonade.settings import Settings

LABEL = "upscaling"
EVENTS = "image_upscale"
RECIPE = SdCpp.recipe
#: How files begin that an sd-cli decodes: PNG and JPEG.
_DECODED = (b"\x89PNG", b"\xff\xd8")


def check_model(model: Model, name: str) -> None:
    """Raises an error unless `model` makes pictures larger; asked before it is downloaded.

    Raises:
        RequestError: it has not the label.
        UnsupportedOperation: no engine of its recipe does it.
    """
    if LABEL not in model.labels:
        raise RequestError(f"Upscale model is not labeled '{LABEL}': {name}", param="model")
    if model.recipe != RECIPE:
        raise UnsupportedOperation(f"Upscale is not supported by recipe: {model.recipe}", param="model")


class Upscaling:
    """One picture after the other: each fills the processor and a good part of the memory.

    Args:
        settings: `global_timeout`, for the start of the process, and `max_queued_requests`.
    """

    def __init__(self, engines: Engines, settings: Settings) -> None:
        self._engines = engines
        self._settings = settings
        self._turn = asyncio.Lock()
        self._waiting = 0

    async def upscale(self, file: Path, options: Mapping[str, Any], asked: protocol.Enlargement, sink: Sink) -> None:
        """Answers the picture, or events of its making if `asked.events` names them.

        Args:
            file: of the model.
            options: the model's, resolved.
            asked: the picture.

        Raises:
            LemonadeError: to be told to the client, by an event if the answer has begun.
        """
        engine = self._engines.get(RECIPE)
        assert isinstance(engine, SdCpp)
        with Heartbeat(sink) if asked.events else _Silent() as heart:
            async with self._one_at_a_time():
                port = take_port()
                try:
                    launch = engine.upscale(file, options, port)
                except BaseException:
                    release_port(port)
                    raise
                if launch.name == CLI:
                    await self._by_program(launch, asked, sink, heart)
                else:
                    await self._by_library(launch, asked, sink, heart)

    @asynccontextmanager
    async def _one_at_a_time(self) -> AsyncIterator[None]:
        limit = self._settings["max_queued_requests"]
        if self._waiting > limit:
            raise Busy(
                f"Too many pictures wait to be upscaled (max_queued_requests is {limit}); try again in a moment."
            )
        self._waiting += 1
        try:
            async with self._turn:
                yield
        finally:
            self._waiting -= 1

    async def _by_library(
        self, launch: Launch, asked: protocol.Enlargement, sink: Sink, heart: Heartbeat | _Silent
    ) -> None:
        process = await EngineProcess.start(launch)
        connection = Connection(process)
        try:
            await process.wait_ready(self._settings["global_timeout"])
            reply = await connection.request(
                "POST", protocol.UPSCALE, protocol.encode(asked), {"Content-Type": protocol.MEDIA_TYPE}
            )
            if not asked.events:
                body = await reply.read()
                if reply.status != 200:
                    raise engine_failure(reply.status, body[:MAX_ERROR], launch.name)
                await sink.reply(body)
                return
            async with aclosing(engine_events(reply, launch.name)) as events:  # type: ignore[type-var]
                async for event in events:
                    await _write(event, sink, heart)
            await heart.settle()
            await sink.end()
        finally:
            await connection.close()
            await process.stop(0)

    async def _by_program(
        self, launch: Launch, asked: protocol.Enlargement, sink: Sink, heart: Heartbeat | _Silent
    ) -> None:
        release_port(launch.port)  # It listens nowhere.
        if not asked.image.startswith(_DECODED):
            raise InvalidArgument("'image' must be PNG or JPEG for an sd-cli.", param="image")
        if asked.factor:
            raise InvalidArgument(
                "'upscale_factor' is for the bundled engine; an sd-cli makes pictures as large as its model does.",
                param="upscale_factor",
            )
        # It reads by the contents, whatever the name.
        with tempfile.TemporaryDirectory(prefix="lemonade-") as folder:
            before, after = Path(folder, "in.png"), Path(folder, "out.png")
            await asyncio.to_thread(before.write_bytes, asked.image)
            argv = (*launch.argv, "-i", str(before), "-o", str(after))
            process = await EngineProcess.start(msgspec.structs.replace(launch, argv=argv, port=0))
            try:
                await process.exited.wait()
            finally:
                await process.stop(0)
            try:
                picture = await asyncio.to_thread(after.read_bytes)
            except OSError:
                picture = b""
            if process.returncode != 0 or not picture:
                raise EngineError("\n".join([f"Upscale failed: {process.epitaph()}.", *process.tail()[-5:]]))
        fields = {"b64_json": base64.b64encode(picture).decode()}
        if not asked.events:
            answer = {"created": int(time.time()), "data": [fields], "output_format": "png"}
            await sink.reply(msgspec.json.encode(answer))
            return
        kind = f"{asked.events}.{protocol.COMPLETED}"
        data = msgspec.json.encode({"type": kind, "created_at": int(time.time()), **fields, "output_format": "png"})
        await _write(b"event: %b\ndata: %b\n\n" % (kind.encode(), data), sink, heart)
        await heart.settle()
        await sink.end()


class _Silent:
    """In the place of a heartbeat where the answer comes in one piece."""

    def __enter__(self) -> _Silent:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def reset(self) -> None:
        pass

    async def settle(self) -> None:
        pass


async def _write(event: bytes, sink: Sink, heart: Heartbeat | _Silent) -> None:
    await heart.settle()
    heart.reset()
    if not sink.started:
        await sink.start()
    await sink.write(event)
