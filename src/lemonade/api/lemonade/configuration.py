"""The daemon's own settings: `/internal/config`, `/internal/set`, `/internal/shutdown`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ROOT, Empty, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange


class ConfigQuery(msgspec.Struct):
    """What to show beside the values."""

    origin: Annotated[bool, Meta(description="`true` answers where each value comes from instead.")] = False


async def read_config(exchange: Exchange, body: None) -> None:
    settings = exchange.services.settings
    if exchange.query.origin:
        await exchange.json({key: {"value": settings[key], "origin": settings.origin(key)} for key in settings})
        return
    await exchange.json(settings.snapshot())


CONFIG = Endpoint(
    id="internal.config",
    method="GET",
    path="/internal/config",
    prefixes=ROOT,
    summary="Read the settings in force",
    query=ConfigQuery,
    handler=read_config,
)


async def read_defaults(exchange: Exchange, body: None) -> None:
    await exchange.json(exchange.services.settings.defaults())


CONFIG_DEFAULTS = Endpoint(
    id="internal.config_defaults",
    method="GET",
    path="/internal/config/defaults",
    prefixes=ROOT,
    summary="Read the built-in settings",
    handler=read_defaults,
)


class SetResponse(msgspec.Struct):
    """The settings are in force and saved."""

    status: Annotated[str, Meta(description="Always `success`.")]
    updated: Annotated[dict[str, Any], Meta(description="What was set, nested.")]


async def set_config(exchange: Exchange, body: Empty) -> None:
    updated = exchange.services.settings.change(msgspec.json.decode(exchange.raw), persist=True)
    await exchange.json({"status": "success", "updated": updated})


SET = Endpoint(
    id="internal.set",
    method="POST",
    path="/internal/set",
    prefixes=ROOT,
    summary="Change settings now and for later",
    description="All of them or, if one cannot hold, none. `host` and `port` move the daemon at once.",
    body=Empty,
    response=SetResponse,
    errors=(ErrorRow(400, "invalid_config", "A key is unknown or its value cannot hold; `param` names it."),),
    changes=True,
    handler=set_config,
)


class ShutdownResponse(msgspec.Struct):
    """The daemon unloads everything and ends."""

    status: Annotated[str, Meta(description="Always `shutting down`.")]


async def shutdown(exchange: Exchange, body: None) -> None:
    await exchange.json({"status": "shutting down"})
    exchange.services.stop()


SHUTDOWN = Endpoint(
    id="internal.shutdown",
    method="POST",
    path="/internal/shutdown",
    prefixes=ROOT,
    summary="Stop the daemon",
    response=ShutdownResponse,
    changes=True,
    handler=shutdown,
)
