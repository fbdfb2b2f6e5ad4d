"""`POST /internal/cleanup-cache`: what lies in the model cache for nobody."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ROOT, Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.storage import STORAGE_ERROR, storing
from lemonade.hub import leftovers
from lemonade.model import Checkpoint, Model


class CleanupRequest(msgspec.Struct):
    """Whether to remove, or only to look."""

    dry_run: Annotated[bool | UnsetType | None, Meta(description="`false` removes; else nothing is removed.")] = UNSET


class CleanupResponse(msgspec.Struct):
    """What can go, or went."""

    orphaned_files: Annotated[
        list[dict[str, Any]],
        Meta(
            description="Per file `path`, `size` in bytes, `model`, `type` (`old_snapshot`, `partial`), `belongs_to`."
        ),
    ]
    total_bytes: Annotated[int, Meta(description="Bytes of all of them.")]
    dry_run: Annotated[bool, Meta(description="Whether they are still there.")]


async def cleanup(exchange: Exchange, body: CleanupRequest) -> None:
    services = exchange.services
    models = services.catalog.all_models()
    dry_run = body.dry_run is not False
    with storing():
        # A walk over a large cache takes a while; a few hundred thousand files lie in some.
        found = await asyncio.to_thread(leftovers.find, services.store, models)
        # Asked last: a download may have begun during the walk.
        busy = _busy(exchange)
        found = [each for each in found if each.belongs_to not in busy]
        if not dry_run:
            leftovers.remove(services.store, found)
            services.catalog.changed()
    owners: dict[str, str] = {}
    for model in models:
        for text in model.checkpoints.values():
            owners.setdefault(Checkpoint.parse(text).repository, services.catalog.public_id(model))
    shown = [
        {
            "path": str(each.path),
            "size": each.size,
            "model": owners.get(each.belongs_to, ""),
            "type": each.type,
            "belongs_to": each.belongs_to,
        }
        for each in found
    ]
    await exchange.json({"orphaned_files": shown, "total_bytes": sum(each.size for each in found), "dry_run": dry_run})


def _busy(exchange: Exchange) -> set[str]:
    """The repositories of downloads that run or are paused."""
    jobs = [job for job in exchange.services.downloads.jobs() if job.running or job.status == "paused"]
    wanted = [job.model for job in jobs if job.model is not None]
    models = [model for one in wanted for model in (one, *_components(exchange, one))]
    return {Checkpoint.parse(text).repository for model in models for text in model.checkpoints.values()}


def _components(exchange: Exchange, model: Model) -> list[Model]:
    found = (exchange.services.catalog.lookup(name) for name in model.components)
    return [each for each in found if each is not None]


CLEANUP = Endpoint(
    id="internal.cleanup_cache",
    method="POST",
    path="/internal/cleanup-cache",
    prefixes=ROOT,
    summary="Find files in the model cache that nothing uses",
    description=(
        "Files of commits that were replaced, and downloads that were given up. What other tools keep in the same "
        "cache, and what any model of the catalog uses, is left alone."
    ),
    body=CleanupRequest,
    body_optional=True,
    response=CleanupResponse,
    errors=(STORAGE_ERROR,),
    changes=True,
    handler=cleanup,
)
