"""`POST /v1/embeddings`."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.provided import PROVIDER_ERRORS, at_provider, find
from lemonade.inference.embedding import EmbeddingsRequest, ReplyCheck, check_input, check_model, check_width, shape
from lemonade.inference.relay import EngineRequest, forward


class Embedding(msgspec.Struct):
    """One vector."""

    object: Annotated[str, Meta(description="Always `embedding`.")]
    index: Annotated[int, Meta(description="Position of its text in the request.")]
    embedding: Annotated[list[float] | str, Meta(description="Numbers, or base64 of little-endian 32-bit floats.")]


class EmbeddingUsage(msgspec.Struct):
    """Token counts of a request without output."""

    prompt_tokens: Annotated[int, Meta(description="Tokens in the texts.")]
    total_tokens: Annotated[int, Meta(description="The same.")]


class Embeddings(msgspec.Struct):
    """One vector per text, in their order."""

    object: Annotated[str, Meta(description="Always `list`.")]
    data: Annotated[list[Embedding], Meta(description="The vectors.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    usage: Annotated[EmbeddingUsage, Meta(description="Token counts.")]


async def embeddings(exchange: Exchange, body: EmbeddingsRequest) -> None:
    services = exchange.services
    check_input(body)
    model = await find(services, body.model)
    check_model(model)
    check = ReplyCheck(body, None)
    if await at_provider(exchange, model, body.model, exchange, "embeddings", stream=False, check=check):
        return
    cut = None
    if isinstance(body.dimensions, int):
        header = services.catalog.header(model)
        cut = check_width(body, model, header.embedding_length if header else None)
    request = EngineRequest(
        path="/v1/embeddings",
        body=shape(body, exchange.raw, cut),
        asked=body.model,
        alias=model.name,
        options=body.load_options,
        check=ReplyCheck(body, cut),
    )
    await forward(services.residency, model, request, exchange, services.metrics)


EMBEDDINGS = Endpoint(
    id="openai.embeddings",
    method="POST",
    path="/embeddings",
    summary="Make vectors of texts",
    description="Downloads and loads the model if it is not loaded. `null` counts as absent.",
    body=EmbeddingsRequest,
    response=Embeddings,
    errors=(
        ErrorRow(400, None, "`unsupported_operation`: the model's engine cannot embed."),
        ErrorRow(400, "context_length_exceeded", "A text is longer than the model can take."),
        *LOAD_ERRORS,
        *(row for row in ENGINE_ERRORS if row.status != 501),
        *PROVIDER_ERRORS,
        ErrorRow(501, None, "A llama.cpp model that is no embedding model."),
    ),
    handler=embeddings,
)
