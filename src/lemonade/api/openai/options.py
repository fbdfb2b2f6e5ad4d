"""`/v1/models/{id}/options`: the options of one model, layer by layer."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import NAME_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.storage import STORAGE_ERROR, storing


class OptionsRequest(msgspec.Struct):
    """Beside these, any option of the model's recipe. `null` removes what is saved of an option, and so do -1, `""` and
    `"auto"` for every option but `ctx_size`; what is left out stays."""

    ctx_size: Annotated[
        int | float | UnsetType | None,
        Meta(description="Context size in tokens; -1 sizes it to the model and the memory, whatever the settings say."),
    ] = UNSET
    dry_run: Annotated[bool | UnsetType | None, Meta(description="`true` checks and resolves, and saves nothing.")] = (
        UNSET
    )
    model_name: Annotated[
        str | UnsetType | None, Meta(description="Ignored, so that `effective` can be sent back.")
    ] = UNSET


class OptionsReport(msgspec.Struct):
    """The layers of a model's options."""

    model_name: Annotated[str, Meta(description="The id as requested.")]
    recipe: Annotated[str, Meta(description="The recipe that the options belong to.")]
    saved: Annotated[dict[str, Any], Meta(description="What is saved for this model.")]
    effective: Annotated[dict[str, Any], Meta(description="Every option as a load would use it: a body for a load.")]
    defaults: Annotated[dict[str, Any], Meta(description="The same without what is saved.")]
    resolved_ctx_size: Annotated[int, Meta(description="Tokens of context that a load would give right now.")]


async def read_options(exchange: Exchange, body: None) -> None:
    services = exchange.services
    with storing():
        report = services.options.report(services.catalog.find(exchange.id), exchange.id)
    await exchange.json(report)


async def save_options(exchange: Exchange, body: OptionsRequest) -> None:
    services = exchange.services
    model = services.catalog.find(exchange.id)
    changes: dict[str, Any] = msgspec.json.decode(exchange.raw)
    with storing():
        if body.dry_run is True:
            report = services.options.report(model, exchange.id, preview=changes)
        else:
            services.options.save(model, changes)
            report = services.options.report(model, exchange.id)
    await exchange.json(report)


async def forget_options(exchange: Exchange, body: None) -> None:
    services = exchange.services
    model = services.catalog.find(exchange.id)
    with storing():
        services.options.forget(model)
        report = services.options.report(model, exchange.id)
    await exchange.json(report)


OPTIONS = Endpoint(
    id="openai.models_id_options_get",
    method="GET",
    path="/models/{id}/options",
    summary="Read a model's options",
    description=(
        "What the architecture in the model's file asks for shows once it is downloaded. `effective` and `defaults` "
        "are bodies of `POST /v1/load`."
    ),
    response=OptionsReport,
    errors=(*NAME_ERRORS, STORAGE_ERROR),
    handler=read_options,
)
SAVE_OPTIONS = Endpoint(
    id="openai.models_id_options_post",
    method="POST",
    path="/models/{id}/options",
    summary="Save options for a model",
    description="All of them or, if one cannot be, none. A running model keeps its options until it is loaded again.",
    body=OptionsRequest,
    response=OptionsReport,
    errors=(
        ErrorRow(400, None, "The recipe has no such option, or the option cannot have this value; `param` names it."),
        ErrorRow(400, None, "`pinned` belongs to `/v1/load` and `/internal/pin`."),
        *NAME_ERRORS,
        STORAGE_ERROR,
    ),
    changes=True,
    handler=save_options,
)
FORGET_OPTIONS = Endpoint(
    id="openai.models_id_options_delete",
    method="DELETE",
    path="/models/{id}/options",
    summary="Erase what is saved of a model's options",
    response=OptionsReport,
    errors=(*NAME_ERRORS, STORAGE_ERROR),
    changes=True,
    handler=forget_options,
)
