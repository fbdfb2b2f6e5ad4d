"""Omni collections at the endpoint for chats: the models of a collection, working together on one answer."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.api.conversation import converse
from lemonade.errors import EngineReplied, LemonadeError, ModelLoadError
from lemonade.inference import images, speech
from lemonade.inference.chat import ChatRequest, check, check_reply
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.images import Wanted, read_file, read_size
from lemonade.inference.images_work import ImageWork
from lemonade.inference.omni.answer import Stream, whole
from lemonade.inference.omni.loop import Loop
from lemonade.inference.omni.tools import DEFAULT_VOICE, offered
from lemonade.inference.relay import Heartbeat, on_engine
from lemonade.inference.speech import SpeechRequest
from lemonade.inference.speech_work import KokoroWork, OpenMossWork

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.api.services import Services
    from lemonade.model import Model

Tree = dict[str, Any]

RECIPE = "collection.omni"

_decoder = msgspec.json.Decoder(ChatRequest)


async def answer_together(exchange: Exchange, collection: Model, body: ChatRequest) -> None:
    """Answers a chat with the models of a collection.

    Raises:
        LemonadeError: before the first byte; later ones are told in the answer.
    """
    services = exchange.services
    components = _components(services, collection)
    tools = offered(components)
    check(body, beside=[tool.definition() for tool, _ in tools.values()])
    request = {key: value for key, value in msgspec.json.decode(exchange.raw).items() if value is not None}
    planner = next((model for model in components if "chat" in model.labels), components[0])
    stream = Stream(exchange, body.model)

    def begin(show: Any) -> Loop:
        return Loop(planner, tools, collection.system_prompt, Components(services, planner), show)

    if body.stream is not True:
        await _load(services, components)
        loop = begin(_nobody)
        await loop.run(request)
        await exchange.json(whole(loop, body.model))
        return
    usage = isinstance(body.stream_options, dict) and body.stream_options.get("include_usage") is True
    with Heartbeat(exchange) as heart:
        stream.heart = heart
        try:
            await _load(services, components)
            await stream.begin()
            loop = begin(stream.show)
            await loop.run(request)
            await stream.finish(loop, usage=usage)
        except LemonadeError as error:
            if not exchange.started:
                raise
            await stream.fail(error)


async def _nobody(media: str) -> None:
    """Who gets the answer whole is shown nothing before."""


def _components(services: Services, collection: Model) -> list[Model]:
    found = [services.catalog.entry_or_none(name) for name in collection.components]
    models = [entry.model for entry in found if entry is not None and not entry.model.is_collection]
    if not models:
        raise ModelLoadError(
            f"The collection '{collection.name}' has no models that are known; perhaps it has to be pulled first.",
            requested=collection.name,
        )
    return models


async def _load(services: Services, components: list[Model]) -> None:
    """Loads what is not loaded, so that what is missing is known before anything is said."""
    for model in components:
        if model.recipe != "cloud" and "on-demand" not in model.labels:
            async with services.residency.lease(model):
                pass


class Answer:
    """Keeps an answer that comes in one piece; a sink for an engine's work."""

    started = False

    def __init__(self) -> None:
        self.body = b""

    async def reply(self, body: bytes, **_: Any) -> None:
        self.body = body

    async def start(self, *_: Any) -> None:
        raise AssertionError("no stream was asked for")

    async def write(self, data: bytes) -> None:
        raise AssertionError("no stream was asked for")

    async def end(self, data: bytes = b"") -> None:
        raise AssertionError("no stream was asked for")


class Components:
    """The models of a collection at work, as `loop.Hands`."""

    def __init__(self, services: Services, planner: Model) -> None:
        self._services = services
        self._planner = planner

    async def plan(self, body: Tree) -> Tree:
        services, planner = self._services, self._planner
        raw = msgspec.json.encode(body)
        answer = Answer()
        if planner.recipe == "cloud":
            request = CloudRequest(path="chat/completions", body=raw, asked=planner.name, check=check_reply)
            await forward_cloud(services.providers, planner, request, answer, services.metrics)
        else:
            await converse(services, planner, planner.name, _decoder.decode(raw), raw, answer)
        reply: Tree = msgspec.json.decode(answer.body)
        return reply

    async def draw(self, model: Model, request: Tree) -> bytes:
        return await self._paint(model, _wanted(request))

    async def edit(self, model: Model, request: Tree, picture: bytes) -> bytes:
        with tempfile.TemporaryDirectory(prefix="lemonade-") as folder:
            path = Path(folder) / "picture"
            await asyncio.to_thread(path.write_bytes, picture)
            wanted = _wanted(request)
            wanted.kind = "edit"
            wanted.images = [read_file(path, len(picture), "image")]
            return await self._paint(model, wanted)

    async def _paint(self, model: Model, wanted: Wanted) -> bytes:
        images.check_model(model)
        answer = Answer()
        await on_engine(
            self._services.residency, model, ImageWork(wanted, model, answer), metrics=self._services.metrics
        )
        try:
            return base64.b64decode(msgspec.json.decode(answer.body)["data"][0]["b64_json"])
        except (KeyError, IndexError, TypeError, ValueError):
            raise EngineReplied("The engine's answer holds no picture.", status=502) from None

    async def speak(self, model: Model, request: Tree) -> bytes:
        speech.check_model(model)
        if model.recipe == "kokoro":
            request = {"voice": DEFAULT_VOICE, **request}
        else:
            # It writes no MP3.
            request = {**request, "response_format": "wav"}
        asked = speech.read(msgspec.convert({"model": model.name, **request}, SpeechRequest), model)
        answer = Answer()
        work = OpenMossWork(asked, answer) if model.recipe == "openmoss" else KokoroWork(asked, answer)
        await on_engine(self._services.residency, model, work, metrics=self._services.metrics)
        return answer.body


def _wanted(request: Tree) -> Wanted:
    fields = {key: value for key, value in request.items() if key not in ("size", "sample_method")}
    return Wanted(
        kind="generation", size=read_size(request.get("size")), sampling_method=request.get("sample_method"), **fields
    )
