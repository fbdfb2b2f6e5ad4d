"""`POST /v1/classify`: how well labels fit a text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.errors import MissingArgument
from lemonade.inference.classification import ClassifyRequest, check_model, engine_request, labels_of, text_of
from lemonade.inference.relay import forward

if TYPE_CHECKING:
    from lemonade.api.services import Services


class Classification(msgspec.Struct):
    """The labels with their scores."""

    object: Annotated[str, Meta(description="Always `classification`.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    labels: Annotated[dict[str, float], Meta(description="Label to score, 0 to 1, the best first.")]


async def classify(exchange: Exchange, body: ClassifyRequest) -> None:
    services = exchange.services
    text, labels = text_of(body), labels_of(body)
    name = body.model if isinstance(body.model, str) else _only_one(services)
    model = services.catalog.find(name)
    check_model(model, labels)
    top = body.top_k if isinstance(body.top_k, int) else None
    request = engine_request(model, text, labels, asked=name, top=top, options=body.load_options)
    await forward(services.residency, model, request, exchange, services.metrics)


def _only_one(services: Services) -> str:
    """The classification model that is loaded, if there is exactly one; those that only routers need count last."""
    loaded = [one for one in services.residency.residents() if one.model.mode == "classification"]
    usual = [one for one in loaded if one.residency_class == "standard"] or loaded
    if len(usual) != 1:
        raise MissingArgument(
            "model",
            "No 'model' specified and no single classification model is loaded (load one, or name it in the request).",
        )
    return usual[0].model.canonical


CLASSIFY = Endpoint(
    id="lemonade.classify",
    method="POST",
    path="/classify",
    summary="Classify a text",
    description="Downloads and loads the model if it is not loaded. `null` counts as absent.",
    body=ClassifyRequest,
    response=Classification,
    errors=(
        ErrorRow(400, None, "`unsupported_operation`: the model is no classification model."),
        ErrorRow(400, "context_length_exceeded", "The text and the labels are longer than the model can take."),
        *LOAD_ERRORS,
        *(row for row in ENGINE_ERRORS if row.status not in (501, 503)),
        ErrorRow(500, "classification_error", "The engine's answer is no classification."),
    ),
    handler=classify,
)
