"""`POST /v1/rerank`, and its other spellings."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.inference.relay import EngineRequest, forward
from lemonade.inference.reranking import ReplyCheck, RerankRequest, check_model, shape


class RerankResult(msgspec.Struct):
    """One document's score."""

    index: Annotated[int, Meta(description="Position in `documents`.")]
    relevance_score: Annotated[float, Meta(description="The higher, the better it answers the query.")]
    document: Annotated[dict[str, str] | None, Meta(description='With `return_documents`: `{"text"}`.')] = None


class Ranking(msgspec.Struct):
    """The documents in the order of their scores."""

    object: Annotated[str, Meta(description="Always `list`.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    results: Annotated[list[RerankResult], Meta(description="The best first.")]
    usage: Annotated[dict[str, Any], Meta(description="`prompt_tokens` and `total_tokens`.")]


async def rerank(exchange: Exchange, body: RerankRequest) -> None:
    services = exchange.services
    model = services.catalog.find(body.model)
    check_model(model)
    request = EngineRequest(
        path="/v1/rerank",
        body=shape(body, exchange.raw),
        asked=body.model,
        alias=model.name,
        options=body.load_options,
        check=ReplyCheck(body),
    )
    await forward(services.residency, model, request, exchange, services.metrics)


RERANK = Endpoint(
    id="lemonade.rerank",
    method="POST",
    path="/rerank",
    summary="Order documents by how well they answer a query",
    description="Downloads and loads the model if it is not loaded. `null` counts as absent.",
    body=RerankRequest,
    response=Ranking,
    errors=(
        ErrorRow(400, None, "`unsupported_operation`: the model's engine cannot rank."),
        ErrorRow(400, "context_length_exceeded", "The query and a document are longer than the model can take."),
        *LOAD_ERRORS,
        *(row for row in ENGINE_ERRORS if row.status != 501),
        ErrorRow(501, None, "A llama.cpp model that is no reranking model."),
    ),
    handler=rerank,
)
_SAME = "The same as `/v1/rerank`."
RERANKING = replace(RERANK, id="lemonade.reranking", path="/reranking", description=_SAME)
RERANKER = replace(RERANK, id="lemonade.reranker", path="/reranker", description=_SAME)
