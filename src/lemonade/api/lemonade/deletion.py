"""`POST /v1/delete`: getting rid of models."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.errors import LemonadeError, MissingArgument, ModelNotFound, ModelNotLoaded, RequestError
from lemonade.model import Model


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
    model = _model(exchange, name)
    if model.origin == "cloud":
        provider = model.extras["cloud_provider"]
        raise RequestError(
            f"'{name}' runs at a cloud provider and has no files here; uninstall '{provider}' to be rid of it.",
            param="model",
        )
    if model.origin == "extra":
        raise RequestError(
            f"'{name}' lies in the folder of extra models, which is yours; delete its file there.", param="model"
        )
    with contextlib.suppress(ModelNotLoaded):
        await services.residency.unload(model)
    for job in services.downloads.jobs():
        if job.model is not None and job.model.canonical == model.canonical:
            job.cancel()
            with contextlib.suppress(LemonadeError):
                await job.wait()
            services.downloads.remove(job)
    with storing():
        await services.catalog.delete(model)
    services.router.refresh()
    await exchange.json({"status": "success", "message": f"Deleted model: {name}"})


def _model(exchange: Exchange, name: str) -> Model:
    """The model, also one that cannot run here, or that an alias means."""
    catalog = exchange.services.catalog
    found = catalog.lookup(name) or catalog.lookup(name.removesuffix(":latest"))
    if found is not None:
        return found
    try:
        return catalog.find(name)
    except ModelNotFound as error:
        # The original's status for this one route.
        error.status = 422
        raise


DELETE = Endpoint(
    id="lemonade.delete",
    method="POST",
    path="/delete",
    summary="Delete a model's files",
    description=(
        "Unloads it first, and keeps what another model uses. A model of one's own loses its definition, too; saved "
        "options stay, for when it comes back. Works for models that cannot run here."
    ),
    body=DeleteRequest,
    response=DeleteResponse,
    errors=(
        ErrorRow(400, None, "The model lies in the folder of extra models, which is the user's own."),
        ErrorRow(422, "model_not_found", "No model has that name."),
        STORAGE_ERROR,
    ),
    changes=True,
    handler=delete,
)
