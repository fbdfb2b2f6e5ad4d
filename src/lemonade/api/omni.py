"""Omni collections at the endpoint for chats: the models of a collection, working together on one answer."""

from __future__ import annotations

import asyncio
import base64
import logging
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.api.conversation import converse
from lemonade.api.endpoint import explain
from lemonade.api.parts import loaded_together, parts_of
from lemonade.errors import EngineReplied, LemonadeError, UnsupportedOperation
from lemonade.inference import images, speech
from lemonade.inference.chat import ChatRequest, check, check_reply
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.images import Wanted, read_file, read_size
from lemonade.inference.images_work import ImageWork
from lemonade.inference.media import examine, fetches_pictures, sees
from lemonade.inference.omni.answer import Stream, whole
from lemonade.inference.omni.loop import Loop, Show
from lemonade.inference.omni.tools import DEFAULT_VOICE, offered
from lemonade.inference.relay import Collected, Heartbeat, on_engine
from lemonade.inference.speech import SpeechRequest
from lemonade.inference.speech_work import KokoroWork, OpenMossWork

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.api.services import Services
    from lemonade.model import Model

Tree = dict[str, Any]

RECIPE = "collection.omni"

logger = logging.getLogger("lemonade.inference")

_decoder = msgspec.json.Decoder(ChatRequest)


class _Function(msgspec.Struct):
    name: str
    arguments: str | None = None


class _Call(msgspec.Struct):
    function: _Function


class _Message(msgspec.Struct):
    content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    message: _Message


class _Plan(msgspec.Struct):
    """As much of a planner's answer as the loop leans on."""

    choices: list[_Choice]


_plan_decoder = msgspec.json.Decoder(_Plan)


async def answer_together(exchange: Exchange, collection: Model, body: ChatRequest) -> None:
    """Answers a chat with the models of a collection.

    Raises:
        LemonadeError: before the first byte; later ones are told in the answer.
    """
    request = {key: value for key, value in msgspec.json.decode(exchange.raw).items() if value is not None}
    if body.stream is not True:
        loop = await _begin(exchange, collection, body, _nobody)
        await loop.run(request)
        await exchange.json(whole(loop, body.model))
        return
    usage = isinstance(body.stream_options, dict) and body.stream_options.get("include_usage") is True
    with Heartbeat(exchange) as heart:
        stream = Stream(exchange, body.model, heart)
        try:
            loop = await _begin(exchange, collection, body, stream.show)
            await stream.begin()
            await loop.run(request)
            await stream.finish(loop, usage=usage)
        except LemonadeError as error:
            if not exchange.started:
                raise
            await stream.fail(error)


async def _nobody(media: str) -> None:
    """Who gets the answer whole is shown nothing before."""


async def _begin(exchange: Exchange, collection: Model, body: ChatRequest, show: Show) -> Loop:
    """The loop for a request that was looked at, with everything loaded that it may need."""
    services = exchange.services
    collection = await _fetched(services, collection)
    components = _components(services, collection)
    planner = _planner(collection, components)
    tools = offered(components)
    check(body, beside=[tool.definition() for tool, _ in tools.values()])
    # The address of a picture that the planner is not given is fetched by nobody here.
    allow_remote = planner.recipe == "cloud" or not sees(planner) or fetches_pictures(services.settings)
    await examine(body.messages, collection, size=len(exchange.raw), allow_remote=allow_remote)
    await _load(services, components, planner, body.load_options)
    return Loop(planner, tools, collection.system_prompt, Components(services, planner), show)


async def _fetched(services: Services, collection: Model) -> Model:
    """The collection; one that a repository describes is downloaded with its models if it is not here."""
    if collection.components or not collection.checkpoints:
        return collection
    await services.downloads.start(collection, parts=parts_of(services, collection)).wait()
    services.catalog.changed()
    return services.catalog.find(collection.canonical)


def _components(services: Services, collection: Model) -> list[Model]:
    """The models of the collection that are known and can run here."""
    models = []
    for name in collection.components:
        entry = services.catalog.entry_or_none(name)
        if entry is None:
            logger.info("'%s' has to do without '%s', which is not known here.", collection.name, name)
        elif not entry.model.is_collection:
            models.append(entry.model)
    return models


def _planner(collection: Model, components: Sequence[Model]) -> Model:
    planner = next((model for model in components if "chat" in model.labels), None) or next(iter(components), None)
    if planner is None or planner.mode != "chat":
        known = ", ".join(f"'{model.name}'" for model in components) or "none"
        raise UnsupportedOperation(
            f"The collection '{collection.name}' has no model that can chat; of its models there are here: {known}.",
            param="model",
        )
    return planner


async def _load(services: Services, components: Sequence[Model], planner: Model, options: Mapping[str, Any]) -> None:
    """Loads what is not loaded, so that what is missing is known before anything is said.

    The planner, which is needed first, comes last: no other one of its kind can take its place then.
    """
    others = [model for model in components if model is not planner]
    for model in reversed(loaded_together(services, [planner, *others])):
        async with services.residency.lease(model, options=options if model is planner else {}):
            pass


class Components:
    """The models of a collection at work, as `loop.Hands`."""

    def __init__(self, services: Services, planner: Model) -> None:
        self._services = services
        self._planner = planner

    async def plan(self, body: Tree) -> Tree:
        services, planner = self._services, self._planner
        raw = msgspec.json.encode(body)
        answer = Collected()
        if planner.recipe == "cloud":
            request = CloudRequest(path="chat/completions", body=raw, asked=planner.name, check=check_reply)
            await forward_cloud(services.providers, planner, request, answer, services.metrics)
        else:
            await converse(services, planner, planner.name, _decoder.decode(raw), raw, answer)
        try:
            _plan_decoder.decode(answer.body)
        except msgspec.MsgspecError as error:
            raise EngineReplied(f"The answer of '{planner.name}' is not understood: {error}.", status=502) from None
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
        answer = Collected()
        await on_engine(
            self._services.residency, model, ImageWork(wanted, model, answer), metrics=self._services.metrics
        )
        try:
            return base64.b64decode(msgspec.json.decode(answer.body)["data"][0]["b64_json"])
        except (KeyError, IndexError, TypeError, ValueError):
            raise EngineReplied("The engine's answer holds no picture.", status=502) from None

    async def speak(self, model: Model, request: Tree) -> bytes:
        speech.check_model(model)
        if model.recipe == "openmoss":
            # It writes no MP3, and has a voice of its own.
            return await self._say(model, {**request, "response_format": "wav"})
        try:
            return await self._say(model, {"voice": DEFAULT_VOICE, **request})
        except LemonadeError as error:
            if error.param != "voice":
                raise
            # Small planners make voices up. What was to be said is worth more.
            return await self._say(model, {**request, "voice": DEFAULT_VOICE})

    async def _say(self, model: Model, request: Tree) -> bytes:
        try:
            wish = msgspec.convert({"model": model.name, **request}, SpeechRequest)
        except msgspec.ValidationError as error:
            raise explain(str(error), SpeechRequest) from None
        asked = speech.read(wish, model)
        answer = Collected()
        work = OpenMossWork(asked, answer) if model.recipe == "openmoss" else KokoroWork(asked, answer)
        await on_engine(self._services.residency, model, work, metrics=self._services.metrics)
        return answer.body


def _wanted(request: Tree) -> Wanted:
    fields = {key: value for key, value in request.items() if key not in ("size", "sample_method")}
    return Wanted(
        kind="generation", size=read_size(request.get("size")), sampling_method=request.get("sample_method"), **fields
    )
