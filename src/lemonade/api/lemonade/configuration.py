"""The daemon's own settings: `/internal/config` and `/internal/set`, `/v1/params`, `/v1/log-level`, and its end."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ROOT, Empty, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.storage import STORAGE_ERROR, storing


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
    with storing():
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
    errors=(
        ErrorRow(400, "invalid_config", "A key is unknown or its value cannot hold; `param` names it."),
        STORAGE_ERROR,
    ),
    changes=True,
    handler=set_config,
)


PARAMS = Endpoint(
    id="lemonade.params_get",
    method="GET",
    path="/params",
    summary="Read the settings in force",
    description="The same as `GET /internal/config`.",
    query=ConfigQuery,
    handler=read_config,
)


async def set_params(exchange: Exchange, body: Empty) -> None:
    updated = exchange.services.settings.change(msgspec.json.decode(exchange.raw), persist=False)
    await exchange.json({"status": "success", "updated": updated})


SET_PARAMS = Endpoint(
    id="lemonade.params_post",
    method="POST",
    path="/params",
    summary="Change settings until the daemon ends",
    description="As `POST /internal/set`, but nothing is saved.",
    body=Empty,
    response=SetResponse,
    errors=(ErrorRow(400, "invalid_config", "A key is unknown or its value cannot hold; `param` names it."),),
    changes=True,
    handler=set_params,
)


class LogLevelRequest(msgspec.Struct):
    """The level."""

    level: Annotated[str, Meta(description="`trace`, `debug`, `info`, `warning`, `error`, `fatal` or `none`.")]


class LogLevelResponse(msgspec.Struct):
    """The level is in force."""

    status: Annotated[str, Meta(description="Always `success`.")]
    level: Annotated[str, Meta(description="As it is now.")]


async def set_log_level(exchange: Exchange, body: LogLevelRequest) -> None:
    settings = exchange.services.settings
    settings.change({"log_level": body.level}, persist=False)
    await exchange.json({"status": "success", "level": settings["log_level"]})


LOG_LEVEL = Endpoint(
    id="lemonade.log_level",
    method="POST",
    path="/log-level",
    summary="Log more, or less, until the daemon ends",
    body=LogLevelRequest,
    response=LogLevelResponse,
    errors=(ErrorRow(400, "invalid_config", "There is no such level."),),
    changes=True,
    handler=set_log_level,
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
