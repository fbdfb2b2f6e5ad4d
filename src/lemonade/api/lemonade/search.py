"""`GET /v1/registry/search`: looking for models on the hubs."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import INVALID_ARGUMENT, MISSING_ARGUMENT, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade.variants import REGISTRY_ERRORS
from lemonade.catalog.rows import REGISTRIES
from lemonade.errors import InvalidArgument, MissingArgument, Offline
from lemonade.hub import search as hubs


class SearchQuery(msgspec.Struct):
    """What to look for."""

    query: Annotated[str, Meta(description="Part of a name, three characters or more.")] = ""
    q: Annotated[str, Meta(description="Another spelling of `query`.")] = ""
    source: Annotated[str, Meta(description="`huggingface` (or `hf`) or `modelscope` (or `ms`).")] = "huggingface"
    limit: Annotated[int, Meta(ge=1, le=hubs.LARGEST, description="How many at most.")] = 12
    format: Annotated[str, Meta(description="`gguf` finds only repositories with GGUF files.")] = ""


class SearchResponse(msgspec.Struct):
    """The repositories, the best first."""

    source: Annotated[str, Meta(description="The registry.")]
    query: Annotated[str, Meta(description="What was looked for.")]
    total: Annotated[int, Meta(description="How many are listed.")]
    results: Annotated[
        list[dict[str, Any]],
        Meta(
            description="`repository_id`, `display_name`, `source`, `repository_type`, `description`, `tags`, `task`, "
            "`downloads`, `likes`, `has_gguf`."
        ),
    ]
    format: Annotated[str | None, Meta(description="As asked for.")] = None


async def search(exchange: Exchange, body: None) -> None:
    asked: SearchQuery = exchange.query
    query = (asked.query or asked.q).strip()
    source = REGISTRIES.get(asked.source, "")
    if not query:
        raise MissingArgument("query", "Missing required query parameter 'query'")
    if len(query) < hubs.SHORTEST:
        raise InvalidArgument("Query parameter 'query' must contain at least 3 characters", param="query")
    if source not in ("huggingface", "modelscope"):
        raise InvalidArgument("'source' must be 'huggingface' or 'modelscope'.", param="source")
    if asked.format not in ("", "gguf"):
        raise InvalidArgument("'format' must be 'gguf', or left out.", param="format")
    if exchange.services.settings["offline"]:
        raise Offline("The daemon is in offline mode; no registry is searched.")
    hits = await asyncio.to_thread(hubs.search, query, source=source, limit=asked.limit, gguf=asked.format == "gguf")
    answer = {"source": source, "query": query, "total": len(hits), "results": hits}
    await exchange.json(answer | ({"format": asked.format} if asked.format else {}))


SEARCH = Endpoint(
    id="lemonade.registry_search",
    method="GET",
    path="/registry/search",
    summary="Look for models on a hub",
    description="Repositories for tasks that nothing here can do are left out.",
    query=SearchQuery,
    response=SearchResponse,
    errors=(
        MISSING_ARGUMENT,
        INVALID_ARGUMENT,
        *(row for row in REGISTRY_ERRORS if row.status in (400, 502)),
        ErrorRow(429, "registry_unreachable", "The registry has had too many requests from here."),
    ),
    handler=search,
)
