"""`POST /v1/models/check-updates`: whether the registries have newer files."""

from __future__ import annotations

import asyncio
import functools
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.services import Services
from lemonade.errors import HubError, Offline, RepositoryNotFound
from lemonade.hub.freshness import MOVING, is_outdated
from lemonade.model import Model


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
    candidates = [
        entry.model
        for entry in services.catalog.listed(show_all=False)
        if not entry.model.source and entry.model.checkpoints and entry.model.registry in MOVING
    ]
    models = list({model.canonical: model for model in candidates}.values())
    found, failures = await asyncio.to_thread(_ask, services, models)
    if failures and not found:
        raise next(iter(failures.values()))
    catalog = services.catalog
    catalog.mark_outdated(found)
    outdated = [entry.id for entry in map(catalog.entry_or_none, found | failures) if entry and entry.update_available]
    unknown = [
        {"model": catalog.public_id(model), "message": failures[model.canonical].message}
        for model in models
        if model.canonical in failures
    ]
    answer: dict[str, Any] = {"status": "success", "updates_available": len(outdated), "models": outdated}
    await exchange.json(answer | {"unknown": unknown})


def _ask(services: Services, models: list[Model]) -> tuple[dict[str, bool], dict[str, HubError]]:
    found: dict[str, bool] = {}
    failures: dict[str, HubError] = {}
    registries = {model.registry: services.downloads.registry(model) for model in models}
    # One repository may serve many models; its hub is asked once.
    listings = {name: functools.cache(registry.listing) for name, registry in registries.items()}
    for model in models:
        try:
            found[model.canonical] = is_outdated(services.store.models, model, listings[model.registry])
        except RepositoryNotFound:
            # There is nothing newer to be had.
            found[model.canonical] = False
        except HubError as error:
            failures[model.canonical] = error
    return found, failures


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
