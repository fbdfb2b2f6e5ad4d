"""`POST /v1/images/generations`, `/v1/images/edits` and `/v1/images/variations`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.form import Upload
from lemonade.errors import InvalidArgument, MissingArgument, RequestError
from lemonade.inference.images import (
    MAX_EDITS,
    MAX_GUIDANCE,
    MAX_PARTIAL_IMAGES,
    MAX_PICTURES,
    MAX_PROMPT,
    MAX_REFERENCES,
    MAX_STEPS,
    ImageFile,
    Wanted,
    check_model,
    check_together,
    read_file,
    read_size,
)
from lemonade.inference.images_work import ImageWork
from lemonade.inference.relay import on_engine

#: Seeds are whole numbers to every JSON reader.
_MAX_SEED = 2**53

_Model = Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
_Prompt = Annotated[str, Meta(description="What the picture shows.", min_length=1, max_length=MAX_PROMPT)]
_Format = Annotated[
    Annotated[str, Meta(extra_json_schema={"enum": ["b64_json"]})] | UnsetType | None,
    Meta(description="Only `b64_json`: pictures are not kept, so that there is no address for them."),
]
_Steps = Annotated[
    Annotated[int, Meta(ge=1, le=MAX_STEPS)] | UnsetType | None,
    Meta(description="Steps of sampling: fewer are quicker, more can be better. The model's own by default."),
]
_Guidance = Annotated[
    Annotated[float, Meta(ge=0, le=MAX_GUIDANCE)] | UnsetType | None,
    Meta(description="How closely the prompt is followed (classifier-free guidance). The model's own by default."),
]
_Seed = Annotated[
    Annotated[int, Meta(ge=-_MAX_SEED, le=_MAX_SEED)] | UnsetType | None,
    Meta(
        description="The same one gives the same picture again; a negative one is random. Always the same by default. "
        "Of several pictures each has the next one."
    ),
]
_Negative = Annotated[str | UnsetType | None, Meta(description="Extension: what the picture should not show.")]
_Sampler = Annotated[
    Annotated[str, Meta(max_length=64)] | UnsetType | None,
    Meta(description="Extension: the sampler, such as `euler_a`. The model's own by default."),
]
_Shift = Annotated[
    Annotated[float, Meta(ge=0, le=100)] | UnsetType | None, Meta(description="Extension: shift of flow models.")
]
_Stream = Annotated[bool | UnsetType | None, Meta(description="Answer by server-sent events.")]
_Partial = Annotated[
    Annotated[int, Meta(ge=0, le=MAX_PARTIAL_IMAGES)] | UnsetType | None,
    Meta(description="In a stream: previews of the picture while it is made, where the engine can show them."),
]
_Progress = Annotated[
    bool | UnsetType | None,
    Meta(description="Extension, in a stream: events ending in `.progress` with `step` and `steps`."),
]
_Ignored = Annotated[str | UnsetType | None, Meta(description="Accepted and ignored.")]
_Images = Annotated[
    list[Upload],
    Meta(description="PNG, JPEG or WebP (an sd-server takes no WebP). Several in the order of their parts."),
]
_Size = "Size as `WIDTHxHEIGHT` in pixels, such as `512x512`, or `auto`. "


class ImagesRequest(msgspec.Struct, kw_only=True):
    """`null` counts as absent; what is not listed is ignored."""

    prompt: _Prompt
    model: _Model
    size: Annotated[str | UnsetType | None, Meta(description=_Size + "The model's own by default, else `512x512`.")] = (
        UNSET
    )
    n: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_PICTURES)] | UnsetType | None, Meta(description="How many pictures.")
    ] = UNSET
    response_format: _Format = UNSET
    steps: _Steps = UNSET
    cfg_scale: _Guidance = UNSET
    seed: _Seed = UNSET
    negative_prompt: _Negative = UNSET
    sample_method: _Sampler = UNSET
    sampling_method: Annotated[str | UnsetType | None, Meta(description="The same as `sample_method`.")] = UNSET
    flow_shift: _Shift = UNSET
    stream: _Stream = UNSET
    partial_images: _Partial = UNSET
    progress: _Progress = UNSET


class _EditsForm(msgspec.Struct, kw_only=True):
    n: Annotated[
        Annotated[int, Meta(ge=1, le=MAX_EDITS)] | UnsetType | None, Meta(description="How many pictures.")
    ] = UNSET
    image: Annotated[_Images | UnsetType | None, Meta(description="The picture to edit.")] = UNSET
    images: Annotated[_Images | UnsetType | None, Meta(description="The pictures to edit, in order.")] = msgspec.field(
        default=UNSET, name="image[]"
    )
    response_format: _Format = UNSET
    user: _Ignored = UNSET


class EditForm(_EditsForm, kw_only=True):
    """Pictures under `image` or `image[]`, and what is to become of them."""

    mask: Annotated[
        Upload | UnsetType | None,
        Meta(description="White is painted anew, black is kept. See-through parts, if it has any, are painted anew."),
    ] = UNSET
    prompt: _Prompt
    model: _Model
    size: Annotated[
        str | UnsetType | None,
        Meta(
            description=_Size + "That of the first picture by default, scaled down to the model's option "
            "`soft_pixel_cap`, which a size given here passes over."
        ),
    ] = UNSET
    steps: _Steps = UNSET
    cfg_scale: _Guidance = UNSET
    seed: _Seed = UNSET
    negative_prompt: _Negative = UNSET
    strength: Annotated[
        Annotated[float, Meta(ge=0, le=1)] | UnsetType | None,
        Meta(description="Extension: how much of the picture is given up, for models that start from it."),
    ] = UNSET
    sample_method: _Sampler = UNSET
    sampling_method: Annotated[str | UnsetType | None, Meta(description="The same as `sample_method`.")] = UNSET
    flow_shift: _Shift = UNSET
    stream: _Stream = UNSET
    partial_images: _Partial = UNSET
    progress: _Progress = UNSET
    background: _Ignored = UNSET
    quality: _Ignored = UNSET
    input_fidelity: _Ignored = UNSET
    output_compression: Annotated[int | UnsetType | None, Meta(description="Accepted and ignored.")] = UNSET


class VariationForm(_EditsForm, kw_only=True):
    """A picture under `image` or `image[]`."""

    prompt: _Ignored = UNSET
    model: _Model
    size: Annotated[str | UnsetType | None, Meta(description=_Size + "The model's own by default, else `512x512`.")] = (
        UNSET
    )


class Image(msgspec.Struct):
    """One picture."""

    b64_json: Annotated[str, Meta(description="PNG in base64.")]
    generation_info: Annotated[
        dict[str, Any] | UnsetType, Meta(description="`seed`, `steps` and more, when the engine tells.")
    ] = UNSET


class Images(msgspec.Struct):
    """The pictures. A stream ends with one event ending in `.completed` for each of them."""

    created: Annotated[int, Meta(description="Unix seconds.")]
    data: Annotated[list[Image], Meta(description="One entry per picture.")]
    output_format: Annotated[str | UnsetType, Meta(description="`png`, when the engine tells.")] = UNSET


async def generations(exchange: Exchange, body: ImagesRequest) -> None:
    _check_format(body)
    size = read_size(_given(body.size))
    wanted = Wanted(
        kind="generation", prompt=body.prompt, n=_given(body.n) or 1, size=size, **_settings(body, "image_generation")
    )
    await _paint(exchange, body.model, wanted)


async def edits(exchange: Exchange, body: EditForm) -> None:
    _check_format(body)
    images = _images(body)
    mask = read_file(body.mask.path, body.mask.size, "mask") if isinstance(body.mask, Upload) else None
    wanted = Wanted(
        kind="edit",
        prompt=body.prompt,
        n=_given(body.n) or 1,
        size=read_size(_given(body.size)),
        images=images,
        mask=mask,
        strength=_given(body.strength),
        **_settings(body, "image_edit"),
    )
    await _paint(exchange, body.model, wanted)


async def variations(exchange: Exchange, body: VariationForm) -> None:
    _check_format(body)
    images = _images(body)
    if len(images) > 1:
        raise InvalidArgument("'image' must be one picture, not several.", param="image")
    wanted = Wanted(
        kind="variation", prompt="", n=_given(body.n) or 1, size=read_size(_given(body.size)), images=images
    )
    await _paint(exchange, body.model, wanted)


async def _paint(exchange: Exchange, name: str, wanted: Wanted) -> None:
    check_together(wanted.n, wanted.size)
    services = exchange.services
    model = services.catalog.find(name)
    check_model(model)
    work = ImageWork(wanted, model, exchange)
    await on_engine(services.residency, model, work, streaming=bool(wanted.events), metrics=services.metrics)


def _check_format(body: ImagesRequest | _EditsForm) -> None:
    if _given(body.response_format) not in (None, "b64_json"):
        raise InvalidArgument(
            "'response_format' must be b64_json: pictures are not kept, so there is no address for them.",
            param="response_format",
        )


def _given(value: Any) -> Any:
    """The value, None for what was not given."""
    return None if value is UNSET else value


def _settings(body: ImagesRequest | EditForm, events: str) -> dict[str, Any]:
    return {
        "steps": _given(body.steps),
        "cfg_scale": _given(body.cfg_scale),
        "seed": _given(body.seed),
        "negative_prompt": _given(body.negative_prompt) or "",
        "sampling_method": _given(body.sample_method) or _given(body.sampling_method),
        "flow_shift": _given(body.flow_shift),
        "events": events if body.stream is True else "",
        "progress": body.progress is True,
        "partial_images": _given(body.partial_images) or 0,
    }


def _images(form: _EditsForm) -> list[ImageFile]:
    one, several = _given(form.image) or [], _given(form.images) or []
    if one and several:
        raise RequestError("The form has files under both 'image' and 'image[]'; use one of them.", param="image")
    name, uploads = ("image", one) if one else ("image[]", several)
    if not uploads:
        raise MissingArgument("image")
    if len(uploads) > MAX_REFERENCES:
        raise InvalidArgument(f"'{name}' must be at most {MAX_REFERENCES} pictures, not {len(uploads)}.", param=name)
    is_one = len(uploads) == 1
    return [
        read_file(upload.path, upload.size, name, number=0 if is_one else number)
        for number, upload in enumerate(uploads, 1)
    ]


_ERRORS = (
    ErrorRow(400, "unsupported_operation", "The model makes no pictures."),
    *LOAD_ERRORS,
    *(row for row in ENGINE_ERRORS if row.status in (429, 500)),
    ErrorRow(502, "backend_unavailable", "The engine went away twice with the request inside."),
    ErrorRow(502, None, "The engine's answer holds no pictures."),
)
_FORM_ERRORS = (ErrorRow(400, None, "The form has files under both `image` and `image[]`."), *_ERRORS)

GENERATIONS = Endpoint(
    id="openai.images_generations",
    method="POST",
    path="/images/generations",
    summary="Make pictures from a text",
    description=(
        "Pictures have exactly the size that is asked for (an sd-server may round it). In the prompt "
        "`<lora:NAME:WEIGHT>` uses a file of the folder that `sdcpp_args` names by `--lora-model-dir`. When the client "
        "closes the connection, the work stops."
    ),
    body=ImagesRequest,
    response=Images,
    streams=True,
    errors=_ERRORS,
    handler=generations,
)
EDITS = Endpoint(
    id="openai.images_edits",
    method="POST",
    path="/images/edits",
    summary="Change pictures as a text describes",
    description=(
        "A model labelled `edit` looks at all pictures; any other one starts from the first, and looks at the rest if "
        "it can. With a mask every model starts from the first one. Photos are turned upright as their cameras noted; "
        "an sd-server takes them as they lie in their files."
    ),
    form=EditForm,
    response=Images,
    streams=True,
    errors=_FORM_ERRORS,
    handler=edits,
)
VARIATIONS = Endpoint(
    id="openai.images_variations",
    method="POST",
    path="/images/variations",
    summary="Make variations of a picture",
    form=VariationForm,
    response=Images,
    errors=_FORM_ERRORS,
    handler=variations,
)
