"""`GET /v1/health`: what is loaded, and how it is doing."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade import __version__
from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.services import Services
from lemonade.residency.resident import Resident

#: The types that the original counts; every other type has a pool of the same size.
COUNTED_TYPES = ("llm", "embedding", "reranking", "transcription", "image", "tts", "classification")


class Health(msgspec.Struct):
    """The daemon and the models in memory."""

    status: Annotated[str, Meta(description="Always `ok`.")]
    version: Annotated[str, Meta(description="Version of the daemon.")]
    model_loaded: Annotated[str | None, Meta(description="The model that was used last, or `null`.")]
    all_models_loaded: Annotated[
        list[dict[str, Any]], Meta(description="One entry per loaded model: process, options, state and last use.")
    ]
    max_models: Annotated[dict[str, int], Meta(description="Models per type that are kept; -1 is no limit.")]
    pinned_models: Annotated[dict[str, int], Meta(description="Pinned models per type.")]
    pinned_helper_models: Annotated[dict[str, int], Meta(description="Pinned helpers of routers per type.")]
    websocket_port: Annotated[
        int | None, Meta(description="A second port that takes WebSockets; `null` if there is none.")
    ]
    update_check_done: Annotated[bool, Meta(description="Whether the check for newer model files is over.")]
    telemetry: Annotated[dict[str, Any], Meta(description="Whether spans are recorded.")]


async def health(exchange: Exchange, body: None) -> None:
    await exchange.json(describe(exchange.services))


def describe(services: Services) -> dict[str, Any]:
    residents = services.residency.residents()
    standard = [one for one in residents if one.residency_class == "standard"]
    last = max(standard, key=lambda one: one.used, default=None)
    return {
        "status": "ok",
        "version": __version__,
        "model_loaded": services.catalog.public_id(last.model) if last else None,
        "all_models_loaded": [_entry(services, one) for one in residents],
        "max_models": dict.fromkeys(COUNTED_TYPES, services.settings["max_loaded_models"]),
        "pinned_models": _pinned(residents, "standard"),
        "pinned_helper_models": _pinned(residents, "routing_helper"),
        "websocket_port": services.websocket_port(),
        "update_check_done": True,
        "telemetry": {"enabled": services.settings["telemetry.enabled"]},
    }


def _pinned(residents: list[Resident], residency_class: str) -> dict[str, int]:
    counts = dict.fromkeys(COUNTED_TYPES, 0)
    for one in residents:
        if one.pinned and one.residency_class == residency_class:
            counts[one.model.type] = counts.get(one.model.type, 0) + 1
    return counts


def _entry(services: Services, one: Resident) -> dict[str, Any]:
    name = services.catalog.public_id(one.model)
    # A model in memory may be gone from the catalog: the folder of extra models is its owner's.
    known = services.catalog.entry_or_none(name)
    window = known.max_context_window if known else None
    entry: dict[str, Any] = {
        "model_name": name,
        "checkpoint": one.model.checkpoint,
        "type": one.model.type,
        "device": one.device,
        "recipe": one.model.recipe,
        "recipe_options": {**one.options, **({"pinned": True} if one.pinned else {})},
        "pinned": one.pinned,
        "pid": one.pid,
        "launch_command": list(one.launch.argv),
        "backend_url": f"http://127.0.0.1:{one.port}/v1",
        "last_use": round(one.last_use),
        "is_busy": one.is_busy,
        "is_streaming": one.is_streaming,
        "status": one.status,
        "loaded": True,
        "backend_alive": True,
        "backend_health": one.backend_health,
        "watchdog_reset": one.watchdog_reset,
        "residency_class": one.residency_class,
        "slot_pool": one.slot_pool,
    }
    if one.watchdog_reset_reason:
        entry["watchdog_reset_reason"] = one.watchdog_reset_reason
    if window:
        entry["max_context_window"] = window
    return entry


HEALTH = Endpoint(
    id="lemonade.health",
    method="GET",
    path="/health",
    summary="Read which models are loaded, and how they are doing",
    response=Health,
    handler=health,
)
