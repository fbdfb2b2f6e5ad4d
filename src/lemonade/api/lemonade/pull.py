"""Getting models and getting rid of them: `POST /v1/pull`, `POST /v1/delete`."""

from __future__ import annotations

import contextlib
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import NAME_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange, event
from lemonade.errors import (
    InvalidArgument,
    LemonadeError,
    MissingArgument,
    ModelNotFound,
    ModelNotLoaded,
    Offline,
    RequestError,
)
from lemonade.hub.job import Job
from lemonade.model import Model

#: Keys whose presence makes a pull a registration.
DEFINING = ("recipe", "checkpoint", "checkpoints", "components", "models")


class PullRequest(msgspec.Struct):
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
    checkpoint: Annotated[
        str | UnsetType | None, Meta(description="Own model: `OWNER/NAME:VARIANT`, or an absolute path.")
    ] = UNSET
    checkpoints: Annotated[
        dict[str, str] | UnsetType | None, Meta(description="Own model: checkpoints by role, `main` among them.")
    ] = UNSET
    recipe: Annotated[str | UnsetType | None, Meta(description="Own model: how it runs, such as `llamacpp`.")] = UNSET
    labels: Annotated[list[str] | UnsetType | None, Meta(description="Own model: what it can do.")] = UNSET


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
    model = _wanted(exchange, name)
    downloaded = services.catalog.is_downloaded(model)
    if services.settings["offline"] and not (downloaded and body.do_not_upgrade is True):
        raise Offline("The daemon is in offline mode; nothing is downloaded.")
    if model.is_local:
        if not downloaded:
            raise InvalidArgument(f"The files of '{name}' are not where its definition says.", param="model")
        await _done(exchange, body, name)
        return
    job = services.downloads.start(model, upgrade=body.do_not_upgrade is not True)
    if body.stream is not True:
        await job.wait()
        services.catalog.changed()
        await _done(exchange, body, name)
    elif body.subscribe is False:
        await exchange.json(job.snapshot())
    else:
        await _report(exchange, job)


def _wanted(exchange: Exchange, name: str) -> Model:
    """The model of the catalog, or a new one as the body defines it."""
    catalog = exchange.services.catalog
    definition: dict[str, Any] = msgspec.json.decode(exchange.raw)
    if any(definition.get(key) is not None for key in DEFINING):
        return catalog.register({**definition, "model_name": name}, keep=True)
    try:
        return catalog.find(name)
    except ModelNotFound as error:
        error.details = {**error.details, "hint": "Give 'checkpoint' and 'recipe' to pull a model of your own."}
        raise


async def _done(exchange: Exchange, body: PullRequest, name: str) -> None:
    answer = {"status": "success", "message": f"Installed model: {name}", "model_name": name}
    if body.stream is True:
        await exchange.start()
        await exchange.end(event({"status": "ok", "percent": 100}, "complete"))
    else:
        await exchange.json(answer)


async def _report(exchange: Exchange, job: Job) -> None:
    """Progress as events. The job goes on when the client leaves."""
    await exchange.start()
    try:
        async for progress in job.events():
            if progress.complete:
                exchange.services.catalog.changed()
            await exchange.write(event(progress, "complete" if progress.complete else "progress"))
    except LemonadeError as error:
        failure = {"error": error.message, "type": error.type, **({"code": error.code} if error.code else {})}
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
        *NAME_ERRORS,
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


class DeleteRequest(msgspec.Struct):
    """The model to delete."""

    model: Annotated[str | UnsetType | None, Meta(description="The model.")] = UNSET
    model_name: Annotated[str | UnsetType | None, Meta(description="Another spelling of `model`.")] = UNSET


class DeleteResponse(msgspec.Struct):
    """The model's files are gone, and with a model of one's own its definition too."""

    status: Annotated[str, Meta(description="Always `success`.")]
    message: Annotated[str, Meta(description="For people.")]


async def delete(exchange: Exchange, body: DeleteRequest) -> None:
    services = exchange.services
    name = body.model or body.model_name
    if not isinstance(name, str):
        raise MissingArgument("model", "Missing required argument 'model' (or 'model_name').")
    try:
        model = services.catalog.find(name)
    except ModelNotFound as error:
        # The original's status for this one route.
        error.status = 422
        raise
    if model.origin == "extra":
        raise RequestError(
            f"'{name}' lies in the folder of extra models, which is yours; delete its file there.", param="model"
        )
    with contextlib.suppress(ModelNotLoaded):
        await services.residency.unload(model)
    for job in services.downloads.jobs():
        if job.model.canonical == model.canonical:
            job.cancel()
            with contextlib.suppress(LemonadeError):
                await job.wait()
            services.downloads.remove(job)
    services.catalog.delete(model)
    await exchange.json({"status": "success", "message": f"Deleted model: {name}"})


DELETE = Endpoint(
    id="lemonade.delete",
    method="POST",
    path="/delete",
    summary="Delete a model's files",
    description="Unloads it first, and keeps what another model uses.",
    body=DeleteRequest,
    response=DeleteResponse,
    errors=(
        ErrorRow(404, "model_not_supported", "This machine cannot run the model; the message says why."),
        ErrorRow(422, "model_not_found", "No model has that name."),
    ),
    changes=True,
    handler=delete,
)
