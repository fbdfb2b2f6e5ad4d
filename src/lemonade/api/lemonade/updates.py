"""`POST /v1/models/check-updates`: whether the registries have newer files."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.errors import Offline


class UpdatesResponse(msgspec.Struct):
    """What is known now."""

    status: Annotated[str, Meta(description="Always `success`.")]
    updates_available: Annotated[int, Meta(description="How many models have newer files.")]
    models: Annotated[list[str], Meta(description="Their ids; pull them to get the files.")]
    unknown: Annotated[
        list[dict[str, str]],
        Meta(description="Models whose registry could not be asked: `model` and `message`. They stay as they were."),
    ]


async def check_updates(exchange: Exchange, body: None) -> None:
    services = exchange.services
    if services.settings["offline"]:
        error = Offline("Cannot check model updates while offline=true")
        # The original's status for this one route.
        error.status = 409
        raise error
    models = services.updates.candidates()
    found, failures = await services.updates.check(models)
    if failures and not found:
        raise next(iter(failures.values()))
    catalog = services.catalog
    outdated = [entry.id for entry in map(catalog.entry_or_none, found | failures) if entry and entry.update_available]
    unknown = [
        {"model": catalog.public_id(model), "message": failures[model.canonical].message}
        for model in models
        if model.canonical in failures
    ]
    answer: dict[str, Any] = {"status": "success", "updates_available": len(outdated), "models": outdated}
    await exchange.json(answer | {"unknown": unknown})


CHECK_UPDATES = Endpoint(
    id="lemonade.models_check_updates",
    method="POST",
    path="/models/check-updates",
    summary="Ask the registries for newer files",
    description="Nothing is downloaded. What is found shows as `update_available` until the model is pulled.",
    response=UpdatesResponse,
    errors=(
        ErrorRow(409, "lemond_offline", "The daemon is in offline mode."),
        ErrorRow(502, "registry_unreachable", "No registry can be reached."),
    ),
    changes=True,
    handler=check_updates,
)
