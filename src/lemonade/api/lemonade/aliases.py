"""`/internal/aliases`: second names for models."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import MISSING_ARGUMENT, ROOT, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.errors import MissingArgument


class Aliases(msgspec.Struct):
    """All aliases."""

    aliases: Annotated[
        list[dict[str, Any]], Meta(description="Per alias `alias`, `target`, and the target's `downloaded`, `recipe`.")
    ]


class AliasRequest(msgspec.Struct):
    """A name, and the model that it shall mean."""

    alias: Annotated[str | UnsetType | None, Meta(description="The new name. One that was an alias is replaced.")] = (
        UNSET
    )
    target: Annotated[str | UnsetType | None, Meta(description="A model, or another alias. It need not exist.")] = UNSET
    model: Annotated[str | UnsetType | None, Meta(description="Another spelling of `target`.")] = UNSET


class AliasResponse(msgspec.Struct):
    """The alias as it is now."""

    status: Annotated[str, Meta(description="`ok`, or `deleted`.")]
    alias: Annotated[str, Meta(description="The name.")]
    target: Annotated[str | None, Meta(description="What it means; left out when it was deleted.")] = None


async def list_aliases(exchange: Exchange, body: None) -> None:
    catalog = exchange.services.catalog
    shown = []
    for alias, target in catalog.aliases.all().items():
        entry = catalog.entry_or_none(alias)
        shown.append(
            {
                "alias": alias,
                "target": target,
                "downloaded": entry is not None and entry.downloaded,
                "recipe": entry.model.recipe if entry else "llamacpp",
            }
        )
    await exchange.json({"aliases": shown})


async def add_alias(exchange: Exchange, body: AliasRequest) -> None:
    alias, target = body.alias, body.target or body.model
    if not isinstance(alias, str) or not isinstance(target, str):
        param = "target" if isinstance(alias, str) else "alias"
        raise MissingArgument(param, "Alias and target fields are required")
    with storing():
        exchange.services.catalog.aliases.add(alias, target)
    await exchange.json({"status": "ok", "alias": alias.strip(), "target": target.strip()})


async def remove_alias(exchange: Exchange, body: None) -> None:
    with storing():
        exchange.services.catalog.aliases.remove(exchange.id)
    await exchange.json({"status": "deleted", "alias": exchange.id})


ALIASES = Endpoint(
    id="internal.aliases_get",
    method="GET",
    path="/internal/aliases",
    prefixes=ROOT,
    summary="List the aliases",
    response=Aliases,
    handler=list_aliases,
)
ADD_ALIAS = Endpoint(
    id="internal.aliases_post",
    method="POST",
    path="/internal/aliases",
    prefixes=ROOT,
    summary="Give a model a second name",
    description="Every route that takes a model understands it, `/v1/models/{id}/files` excepted.",
    body=AliasRequest,
    response=AliasResponse,
    errors=(
        MISSING_ARGUMENT,
        ErrorRow(400, "invalid_alias", "The name is reserved, or its own target."),
        ErrorRow(409, "alias_conflict", "A model has this name, or the aliases would lead in a circle."),
        STORAGE_ERROR,
    ),
    changes=True,
    handler=add_alias,
)
REMOVE_ALIAS = Endpoint(
    id="internal.aliases_delete",
    method="DELETE",
    path="/internal/aliases/{id}",
    prefixes=ROOT,
    summary="Take a second name away",
    response=AliasResponse,
    errors=(ErrorRow(404, "alias_not_found", "There is no such alias."), STORAGE_ERROR),
    changes=True,
    handler=remove_alias,
)
