"""`POST /v1/responses`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.provided import PROVIDER_ERRORS, at_provider, find
from lemonade.api.routed import RouteField, destination
from lemonade.inference.media import fetches_pictures
from lemonade.inference.relay import EngineRequest, forward
from lemonade.inference.response import ResponsesRequest, check_model, check_reply, shape
from lemonade.inference.response_call import ForcedFunction, must_call
from lemonade.inference.response_events import ResponseEvents
from lemonade.inference.response_fields import ResponseFields
from lemonade.inference.response_media import look_at
from lemonade.inference.routing.facts import of_response
from lemonade.system.metrics import Measurement


class ResponseUsage(msgspec.Struct):
    """Token counts of a response."""

    input_tokens: Annotated[int, Meta(description="Tokens in the input.")]
    output_tokens: Annotated[int, Meta(description="Tokens generated.")]
    total_tokens: Annotated[int, Meta(description="The sum of both.")]
    input_tokens_details: Annotated[
        dict[str, Any], Meta(description="`cached_tokens`: those that did not have to be read again.")
    ]
    output_tokens_details: Annotated[
        dict[str, Any], Meta(description="`reasoning_tokens`; the engine does not count them, so 0.")
    ]


class Response(msgspec.Struct):
    """A whole answer. With `stream` it comes as OpenAI's events from `response.created` to `response.completed`, or
    `response.incomplete` (which have llama.cpp's `timings` beside them), and ends with `data: [DONE]`."""

    id: Annotated[str, Meta(description="Identifier of the response.")]
    object: Annotated[str, Meta(description="Always `response`.")]
    created_at: Annotated[int, Meta(description="Unix time.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    status: Annotated[
        str, Meta(description="`completed`, or `incomplete` when `max_output_tokens` cut it off; so is its last item.")
    ]
    output: Annotated[
        list[dict[str, Any]],
        Meta(description="Items: messages, whose text is in `content[].text`, reasoning and calls."),
    ]
    completed_at: Annotated[int | None, Meta(description="Unix time, when the engine tells it.")] = None
    usage: Annotated[ResponseUsage | None, Meta(description="Token counts.")] = None
    x_lemonade_route: RouteField = None


async def responses(exchange: Exchange, body: ResponsesRequest) -> None:
    services = exchange.services
    model, name, way = await destination(exchange, await find(services, body.model), body.model, body, of_response)
    check_model(model)
    stream = body.stream is True
    if await at_provider(exchange, model, name, way, "responses", stream=stream, check=check_reply):
        return
    shaped = shape(body, exchange.raw)
    if isinstance(shaped["input"], list):
        allow_remote = fetches_pictures(services.settings)
        await look_at(shaped["input"], model, size=len(exchange.raw), allow_remote=allow_remote)
    call = ForcedFunction(names) if (names := must_call(body)) else None
    if call:
        call.force(shaped)
    fields = ResponseFields(body)

    def check(whole: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        checked, figures = call.check(whole, asked) if call else check_reply(whole, asked)
        return fields.completed(checked), figures

    request = EngineRequest(
        path="/v1/responses",
        body=msgspec.json.encode(shaped),
        asked=name,
        alias=model.name,
        stream=stream,
        options=body.load_options,
        check=check,
    )
    sink = ResponseEvents(way, name, retell=call.retell if call else lambda event: [event], complete=fields.complete)
    await forward(services.residency, model, request, sink, services.metrics)


RESPONSES = Endpoint(
    id="openai.responses",
    method="POST",
    path="/responses",
    summary="Answer an input, in OpenAI's Responses format",
    description=(
        "Downloads and loads the model if it is not loaded. Arguments that are not listed go to the engine untouched; "
        "`null` counts as absent. Answers are not kept."
    ),
    body=ResponsesRequest,
    response=Response,
    streams=True,
    errors=(
        ErrorRow(400, "model_not_applicable", "The model is not an LLM."),
        ErrorRow(400, "context_length_exceeded", "The input does not fit into the model's context."),
        *LOAD_ERRORS,
        *ENGINE_ERRORS,
        *PROVIDER_ERRORS,
    ),
    handler=responses,
)
