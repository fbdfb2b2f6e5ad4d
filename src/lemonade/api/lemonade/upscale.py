"""`POST /v1/images/upscale`."""

from __future__ import annotations

import asyncio
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.openai.images import Images
from lemonade.engines.sdcpp.protocol import Enlargement
from lemonade.errors import HubError, ModelNotFound, UpscalerNotFound
from lemonade.inference.images import read_base64
from lemonade.inference.upscaling import EVENTS, check_model

#: The most that any upscaler does.
MAX_FACTOR = 8


class UpscaleRequest(msgspec.Struct):
    """`null` counts as absent; what is not listed is ignored."""

    image: Annotated[
        str, Meta(description="The picture: PNG, JPEG or WebP in base64, or such a data URL.", min_length=1)
    ]
    model: Annotated[
        str,
        Meta(description="An upscaling model, such as `RealESRGAN-x4plus`; downloaded on first use.", min_length=1),
    ]
    upscale_factor: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_FACTOR)] | UnsetType | None,
        Meta(description="How much larger, at most the model's own factor, which is the default."),
    ] = UNSET
    stream: Annotated[bool | UnsetType | None, Meta(description="Extension: answer by server-sent events.")] = UNSET
    progress: Annotated[
        bool | UnsetType | None,
        Meta(description="Extension, in a stream: events `image_upscale.progress` with `step` and `steps`."),
    ] = UNSET


async def upscale(exchange: Exchange, body: UpscaleRequest) -> None:
    services = exchange.services
    data = await asyncio.to_thread(read_base64, body.image, "image")
    try:
        model = services.catalog.find(body.model)
    except ModelNotFound as error:
        raise UpscalerNotFound(f"Upscale model not found: {body.model}", param="model") from error
    check_model(model, body.model)
    try:
        if not services.store.is_downloaded(model):
            await services.downloads.ensure(model)
            services.catalog.changed()
    except HubError as error:
        raise UpscalerNotFound(f"Upscale model not found: {body.model}. {error.message}", param="model") from error
    file = services.store.locate(model)["main"]
    if file is None:
        raise UpscalerNotFound(f"Upscale model not found: {body.model}. Its file is not there.", param="model")
    asked = Enlargement(
        image=data,
        factor=body.upscale_factor if isinstance(body.upscale_factor, int) else 0,
        events=EVENTS if body.stream is True else "",
        progress=body.progress is True,
    )
    await services.upscaling.upscale(file, services.options.resolve(model), asked, exchange)


UPSCALE = Endpoint(
    id="lemonade.images_upscale",
    method="POST",
    path="/images/upscale",
    summary="Make a picture larger",
    description=(
        "The model is in memory only while it works, and takes no other model's place. See-through parts stay so. "
        "Pictures are made larger one at a time; when the client closes the connection, the work stops."
    ),
    body=UpscaleRequest,
    response=Images,
    streams=True,
    errors=(
        ErrorRow(400, None, "The model has no label `upscaling`."),
        ErrorRow(400, "unsupported_operation", "No engine of the model's recipe makes pictures larger."),
        ErrorRow(404, None, "No model has that name, or it cannot be downloaded."),
        ErrorRow(404, "model_not_supported", "This machine cannot run the model; the message says why."),
        ErrorRow(429, "queue_full", "Too many pictures wait; `Retry-After` says when to come back."),
        ErrorRow(500, None, "The engine made no picture."),
    ),
    handler=upscale,
)
