"""`POST /v1/pull`: getting models, and defining and getting one's own."""

from __future__ import annotations

import copy
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import NAME_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange, event
from lemonade.api.lemonade.registration import Definition
from lemonade.api.parts import parts_of
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.catalog.bundles import unbundle
from lemonade.catalog.registration import RESERVED, bare_name
from lemonade.catalog.uploads import find_upload
from lemonade.errors import (
    HubError,
    InvalidArgument,
    LemonadeError,
    MissingArgument,
    ModelNotFound,
    Offline,
    UnknownModel,
)
from lemonade.hub.job import Job
from lemonade.model import Model

#: Keys whose presence makes a pull a registration.
DEFINING = ("recipe", "checkpoint", "checkpoints", "components", "models")


class PullRequest(Definition, kw_only=True):
    """A model of the catalog by name, or the definition of a model of one's own, named `user.NAME`."""

    model: Annotated[str | UnsetType | None, Meta(description="The model.")] = UNSET
    model_name: Annotated[str | UnsetType | None, Meta(description="Another spelling of `model`.")] = UNSET
    stream: Annotated[bool | UnsetType | None, Meta(description="`true` sends progress as server-sent events.")] = UNSET
    subscribe: Annotated[
        bool | UnsetType | None, Meta(description="With `stream`: `false` answers at once with the download job.")
    ] = UNSET
    do_not_upgrade: Annotated[
        bool | UnsetType | None, Meta(description="`true` makes no network call when the model is downloaded.")
    ] = UNSET
    local_import: Annotated[
        bool | UnsetType | None,
        Meta(description="`true` registers files that lie in the model cache under `models--NAME`; no download."),
    ] = UNSET
    models: Annotated[
        list[dict[str, Any]] | UnsetType | None,
        Meta(description="Collections: the model objects of components that may not be here, as an export has them."),
    ] = UNSET


class PullResponse(msgspec.Struct):
    """The model is downloaded."""

    status: Annotated[str, Meta(description="Always `success`.")]
    message: Annotated[str, Meta(description="For people.")]
    model_name: Annotated[str, Meta(description="The model.")]


async def pull(exchange: Exchange, body: PullRequest) -> None:
    services = exchange.services
    name = body.model or body.model_name
    if not isinstance(name, str):
        raise MissingArgument("model", "Missing required argument 'model' (or 'model_name').")
    if body.local_import is True:
        await _import(exchange, name)
        return
    is_new = services.catalog.lookup(name) is None
    model = _wanted(exchange, name)
    downloaded = services.catalog.is_downloaded(model)
    upgrade = body.do_not_upgrade is not True
    if model.is_local or model.source == "local_upload" or model.recipe == "cloud":
        if not downloaded:
            raise InvalidArgument(f"The files of '{name}' are not where its definition says.", param="model")
        await _done(exchange, body, name)
        return
    if services.settings["offline"] and (upgrade or not downloaded):
        raise Offline("The daemon is in offline mode; nothing is downloaded.")
    job = services.downloads.start(model, upgrade=upgrade, parts=parts_of(exchange.services, model))
    kept = f"'{model.canonical}' stays defined: pull it by its name to try again, or delete it." if is_new else ""
    if body.stream is not True:
        try:
            await job.wait()
        except HubError as error:
            raise _with(error, kept) from None
        await _done(exchange, body, name)
    elif body.subscribe is False:
        await exchange.json(job.snapshot())
    else:
        await report(exchange, job, kept)


def _with(error: LemonadeError, remark: str) -> LemonadeError:
    """The error with a sentence more; others hear of the same one."""
    told = copy.copy(error)
    told.message = f"{error.message} {remark}".strip()
    return told


def _wanted(exchange: Exchange, name: str) -> Model:
    """The model of the catalog, or a new one as the body defines it; its options are kept."""
    services = exchange.services
    definition: dict[str, Any] = {**msgspec.json.decode(exchange.raw), "model_name": name}
    with storing():
        if any(definition.get(key) is not None for key in DEFINING):
            model = _register(exchange, definition)
        else:
            model = _known(exchange, name)
        if options := definition.get("recipe_options"):
            services.options.save(model, options)
    return model


def _register(exchange: Exchange, definition: dict[str, Any]) -> Model:
    catalog = exchange.services.catalog
    bare_name(definition)
    if definition.get("models") is None:
        model = catalog.register(definition, keep=True)
    else:
        model = catalog.register_all(unbundle(definition, catalog.lookup), keep=True)[-1]
    exchange.services.router.refresh()
    return model


def _known(exchange: Exchange, name: str) -> Model:
    try:
        found = exchange.services.catalog.find(name)
    except ModelNotFound as error:
        if name.startswith(RESERVED):
            bare_name({"model_name": name})
        raise UnknownModel(
            f"{error.message} To pull a model of your own, name it user.NAME and give its 'checkpoint' and 'recipe'.",
            param="model",
            details={"requested_model": name},
        ) from None
    if name.startswith("extra."):
        raise InvalidArgument(f"'{name}' lies in the folder of extra models; it is not pulled.", param="model")
    return found


async def _import(exchange: Exchange, name: str) -> None:
    """Registers what somebody put into the model cache."""
    services = exchange.services
    definition: dict[str, Any] = {**msgspec.json.decode(exchange.raw), "model_name": name}
    bare = bare_name(definition)
    recipe = definition.get("recipe")
    if not isinstance(recipe, str) or not recipe:
        raise MissingArgument("recipe")
    projector = definition.get("vision") is True or bool(definition.pop("mmproj", None))
    found = find_upload(services.store.models, bare, recipe=recipe, projector=projector)
    row = {key: value for key, value in definition.items() if key not in ("checkpoint", "registry_source")}
    with storing():
        services.catalog.register({**row, "checkpoints": found, "source": "local_upload"})
    services.catalog.changed()
    message = "Model imported and registered successfully"
    await exchange.json({"status": "success", "model_name": name, "message": message})


async def _done(exchange: Exchange, body: PullRequest, name: str) -> None:
    answer = {"status": "success", "message": f"Installed model: {name}", "model_name": name}
    if body.stream is True:
        await report(exchange, None)
    else:
        await exchange.json(answer)


async def report(exchange: Exchange, job: Job | None, remark: str = "") -> None:
    """Progress as events, of None that everything is here already. The job goes on when the client leaves.

    Args:
        remark: what to say after an error's message.
    """
    await exchange.start()
    if job is None:
        await exchange.end(event({"status": "ok", "percent": 100}, "complete"))
        return
    try:
        async for progress in job.events():
            await exchange.write(event(progress, "complete" if progress.complete else "progress"))
    except LemonadeError as error:
        failure = {
            "error": _with(error, remark).message,
            "type": error.type,
            **({"code": error.code} if error.code else {}),
        }
        await exchange.end(event(failure, "error"))
        return
    await exchange.end()


PULL = Endpoint(
    id="lemonade.pull",
    method="POST",
    path="/pull",
    summary="Download a model",
    description=(
        "Two callers share one download, and it goes on when they leave; what is here already is not fetched again. "
        "With `stream` the events are `progress`, then `complete` or `error`."
    ),
    body=PullRequest,
    response=PullResponse,
    streams=True,
    errors=(
        NAME_ERRORS[1],
        STORAGE_ERROR,
        ErrorRow(400, "unknown_model", "No model has that name, and the request does not define one."),
        ErrorRow(400, "lemond_offline", "The daemon is in offline mode."),
        ErrorRow(403, "repository_gated", "The repository asks for terms to be accepted, or for another token."),
        ErrorRow(404, "repository_not_found", "The registry has no such repository, or the token cannot see it."),
        ErrorRow(404, "file_not_found", "The repository has no such file."),
        ErrorRow(500, "integrity_error", "What arrived is not what the registry promised."),
        ErrorRow(500, "not_enough_space", "The disk is too full."),
        ErrorRow(500, "download_cancelled", "Somebody cancelled the download."),
        ErrorRow(502, "registry_unreachable", "The registry cannot be reached."),
        ErrorRow(502, "registry_error", "The registry answered with an error."),
    ),
    changes=True,
    handler=pull,
)
