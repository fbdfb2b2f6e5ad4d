"""`POST /v1/audio/speech` and `GET /v1/audio/voices`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, NAME_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.inference.relay import on_engine
from lemonade.inference.speech import SpeechRequest, check_model, read
from lemonade.inference.speech_voices import Voice, voices_of
from lemonade.inference.speech_work import KokoroWork, OpenMossWork


async def speech(exchange: Exchange, body: SpeechRequest) -> None:
    services = exchange.services
    model = services.catalog.find(body.model)
    check_model(model)
    asked = read(body, model, exchange.raw)
    work = OpenMossWork(asked, exchange) if model.recipe == "openmoss" else KokoroWork(asked, exchange)
    await on_engine(services.residency, model, work, streaming=asked.stream, metrics=services.metrics)


SPEECH = Endpoint(
    id="openai.audio_speech",
    method="POST",
    path="/audio/speech",
    summary="Speak a text",
    description=(
        "Downloads and loads the model if it is not loaded. The sound comes whole, or with `stream` or `stream_format` "
        "piece by piece as it is made: sentences, or parts of long ones. The raw samples of `pcm` have 16 bits, "
        "signed, little-endian: 24000 per second and one channel from Kokoro "
        "(`audio/l16;rate=24000;endianness=little-endian`), and what the headers `X-MOSS-Sample-Rate` and "
        "`X-MOSS-Channels` say from OpenMOSS (`audio/pcm`). The header of a streamed `wav` says that its length is not "
        "known. With `stream_format` `sse` there are events `speech.audio.delta`, with base64 in `audio`, and one "
        "`speech.audio.done`. A stream of sound that fails is cut off."
    ),
    body=SpeechRequest,
    media_type="audio/mpeg",
    streams=True,
    errors=(
        ErrorRow(400, "model_not_applicable", "The model does not speak; this is checked before it is loaded."),
        ErrorRow(
            400,
            "invalid_argument",
            "The model has no such voice (the message lists them), its engine does not write or stream "
            "`response_format`, or nothing in `input` can be spoken.",
        ),
        ErrorRow(400, None, "`unsupported_operation`: the recipe of the model has no engine for speech."),
        *LOAD_ERRORS,
        *(row for row in ENGINE_ERRORS if row.status not in (501, 503)),
        ErrorRow(502, None, "The engine made no sound."),
    ),
    handler=speech,
)


class VoicesQuery(msgspec.Struct):
    """Whose voices."""

    model: Annotated[str | UnsetType, Meta(description="A model that speaks; `kokoro-v1` by default.")] = UNSET


class Voices(msgspec.Struct):
    """The voices of a model."""

    model: Annotated[str, Meta(description="The model, as the request named it.")]
    voices: Annotated[list[Voice], Meta(description="In the order of their names, OpenAI's at the end.")]


async def voices(exchange: Exchange, _: object) -> None:
    services = exchange.services
    name = exchange.query.model or "kokoro-v1"
    model = services.catalog.find(name)
    check_model(model)
    await exchange.json(Voices(model=name, voices=voices_of(model, services.store.locate(model).get("main"))))


VOICES = Endpoint(
    id="openai.audio_voices",
    method="GET",
    path="/audio/voices",
    summary="List the voices of a model",
    description=(
        "An extension that other programs with this API have, too. Loads nothing. Empty for OpenMOSS, whose voices are "
        "described in free words."
    ),
    query=VoicesQuery,
    response=Voices,
    errors=(*NAME_ERRORS, ErrorRow(400, "model_not_applicable", "The model does not speak.")),
    handler=voices,
)
