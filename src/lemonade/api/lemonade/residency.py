"""Loading, unloading and pinning: `POST /v1/load`, `POST /v1/unload`, `POST /internal/pin`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import LOAD_ERRORS, MISSING_ARGUMENT, ROOT, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.parts import loaded_together
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.catalog.option_checks import MAX_CONTEXT
from lemonade.errors import InvalidArgument, MissingArgument, ModelNotFound, ModelNotLoaded, RequestError
from lemonade.model import Model


class LoadRequest(msgspec.Struct):
    """Beside these, any option of the model's recipe, such as `llamacpp_args`. Unknown keys are ignored."""

    model_name: Annotated[str, Meta(description="The model to load.")]
    pinned: Annotated[
        bool | UnsetType | None, Meta(description="Whether the model is kept when another needs room.")
    ] = UNSET
    save_options: Annotated[
        bool | UnsetType | None, Meta(description="Remember the options given here for every later load.")
    ] = UNSET
    ctx_size: Annotated[
        Annotated[int, Meta(ge=-1, le=MAX_CONTEXT)] | UnsetType | None,
        Meta(description="Context size in tokens; -1 sizes it to the model and the memory."),
    ] = UNSET


class LoadResponse(msgspec.Struct):
    """The model is loaded."""

    status: Annotated[str, Meta(description="Always `success`.")]
    message: Annotated[str, Meta(description="For people.")]
    model_name: Annotated[str, Meta(description="The model.")]
    checkpoint: Annotated[str, Meta(description="Its main checkpoint.")]
    recipe: Annotated[str, Meta(description="How it runs.")]


async def load(exchange: Exchange, body: LoadRequest) -> None:
    services = exchange.services
    model = services.catalog.find(body.model_name)
    if "on-demand" in model.labels:
        raise InvalidArgument(f"'{body.model_name}' runs on demand and is never loaded.", param="model_name")
    pinned = body.pinned if isinstance(body.pinned, bool) else None
    if model.is_collection:
        await _load_parts(exchange, model, pinned)
    elif model.recipe != "cloud":  # a provider keeps its models ready
        await services.residency.load(model, _options(exchange, body, model), pinned=pinned)
    await exchange.json(
        {
            "status": "success",
            "message": f"Loaded model: {body.model_name}",
            "model_name": body.model_name,
            "checkpoint": model.checkpoint,
            "recipe": model.recipe,
        }
    )


def _options(exchange: Exchange, body: LoadRequest, model: Model) -> dict[str, Any]:
    """The request's options, kept for later loads if it says so."""
    options = exchange.services.options
    request: dict[str, Any] = msgspec.json.decode(exchange.raw)
    accepted = options.accept(model, {key: value for key, value in request.items() if key != "pinned"})
    if body.save_options is True:
        pin = {"pinned": body.pinned} if "pinned" in request else {}
        with storing():
            options.replace(model, {**accepted, **pin})
    return accepted


async def _load_parts(exchange: Exchange, collection: Model, pinned: bool | None) -> None:
    """Each model of an omni collection, with its own options. A router loads what it needs when it needs it."""
    if collection.recipe != "collection.omni":
        return
    services = exchange.services
    known = (services.catalog.entry_or_none(name) for name in collection.components)
    for model in loaded_together(services, (entry.model for entry in known if entry is not None)):
        await services.residency.load(model, {}, pinned=pinned)


LOAD = Endpoint(
    id="lemonade.load",
    method="POST",
    path="/load",
    summary="Load a model now, with options",
    description=(
        "Does nothing if the model is loaded with the same options; reloads it if they differ. An option that is left "
        "out has its saved value; `null` passes over what is saved for this load. Of a collection every model that is "
        "known is loaded, with its own options; where `max_loaded_models` leaves no room for all of a type, the first."
    ),
    body=LoadRequest,
    response=LoadResponse,
    errors=(*LOAD_ERRORS, STORAGE_ERROR),
    changes=True,
    handler=load,
)


class UnloadRequest(msgspec.Struct):
    """Without a name every model is unloaded."""

    model_name: Annotated[str | UnsetType | None, Meta(description="The model to unload.")] = UNSET
    model: Annotated[str | UnsetType | None, Meta(description="Another spelling of `model_name`.")] = UNSET


class UnloadResponse(msgspec.Struct):
    """Nothing of the model is in memory any more."""

    status: Annotated[str, Meta(description="Always `success`.")]
    message: Annotated[str, Meta(description="For people.")]
    model_name: Annotated[str | None, Meta(description="The model, if one was named.")] = None


async def unload(exchange: Exchange, body: UnloadRequest) -> None:
    services = exchange.services
    name = body.model_name or body.model
    if not isinstance(name, str):
        await services.residency.unload(None)
        await exchange.json({"status": "success", "message": "All models unloaded successfully"})
        return
    await services.residency.unload(_loaded(exchange, name))
    await exchange.json({"status": "success", "message": "Model unloaded successfully", "model_name": name})


def _loaded(exchange: Exchange, name: str) -> Model:
    """The model of that name that is loaded or being loaded; it may have left the catalog meanwhile."""
    services = exchange.services
    try:
        wanted = services.catalog.find(name).canonical
    except ModelNotFound:
        wanted = name
    residency = services.residency
    for model in (*(resident.model for resident in residency.residents()), *residency.loading()):
        if wanted in (model.canonical, model.name):
            return model
    raise ModelNotLoaded(f"Model not loaded: {name}", requested=name)


UNLOAD = Endpoint(
    id="lemonade.unload",
    method="POST",
    path="/unload",
    summary="Unload one model, or all",
    description="Waits for the requests that run on the model, and unloads pinned models too.",
    body=UnloadRequest,
    body_optional=True,
    response=UnloadResponse,
    errors=(ErrorRow(404, "model_not_loaded", "The model is not loaded."),),
    changes=True,
    handler=unload,
)


class PinRequest(msgspec.Struct):
    """A loaded model, and whether it is kept."""

    pinned: Annotated[bool, Meta(description="Whether the model is kept when another needs room.")]
    model: Annotated[str | UnsetType | None, Meta(description="The loaded model.")] = UNSET
    model_name: Annotated[str | UnsetType | None, Meta(description="Another spelling of `model`.")] = UNSET


class PinResponse(msgspec.Struct):
    """The pin is set or taken off."""

    status: Annotated[str, Meta(description="Always `success`.")]
    model_name: Annotated[str, Meta(description="The model.")]
    pinned: Annotated[bool, Meta(description="As it is now.")]


async def pin(exchange: Exchange, body: PinRequest) -> None:
    name = body.model or body.model_name
    if not isinstance(name, str):
        raise MissingArgument("model", "Parameter 'model' or 'model_name' is required")
    try:
        model = _loaded(exchange, name)
    except ModelNotLoaded as error:
        raise RequestError(error.message, param="model") from None
    exchange.services.residency.pin(model, body.pinned)
    await exchange.json({"status": "success", "model_name": name, "pinned": body.pinned})


PIN = Endpoint(
    id="internal.pin",
    method="POST",
    path="/internal/pin",
    prefixes=ROOT,
    summary="Keep a loaded model, or let it go",
    body=PinRequest,
    response=PinResponse,
    errors=(MISSING_ARGUMENT, ErrorRow(400, None, "The model is not loaded.")),
    changes=True,
    handler=pin,
)
