"""`POST /v1/messages` and `POST /v1/messages/count_tokens`: Anthropic's API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint
from lemonade.api.exchange import event
from lemonade.api.provided import PROVIDER_ERRORS, find
from lemonade.api.render import Dialect
from lemonade.api.routed import RouteField, destination
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.media import fetches_pictures
from lemonade.inference.messages import MessageEvents, check_model, check_passed_on, check_reply, shape
from lemonade.inference.relay import EngineRequest, forward
from lemonade.inference.routing.facts import of_anthropic
from lemonade.inference.sampling import Loading

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.errors import LemonadeError

#: The version that is asked for when the client does not say.
VERSION = "2023-06-01"

#: Types of errors by status. Source: Anthropic's API.
_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def error_body(error: LemonadeError) -> dict[str, Any]:
    """A failure in Anthropic's words; what the daemon says beside them stands beside them."""
    told = error.body()
    kind = error.type if error.type in _TYPES.values() else _TYPES.get(error.status)
    if kind is None:
        kind = "invalid_request_error" if error.status < 500 else "api_error"
    return {"type": "error", "error": {**told, "type": kind}}


def error_event(error: LemonadeError) -> bytes:
    return event(error_body(error), "error")


ANTHROPIC = Dialect(error_body, error_event)


class MessagesQuery(msgspec.Struct):
    """What Anthropic's clients say in the address."""

    beta: Annotated[str, Meta(description="`true` goes on to the provider.")] = ""


class MessagesRequest(Loading, kw_only=True):
    """Arguments that are not listed go to the engine or the provider untouched."""

    model: Annotated[str, Meta(description="The model.", min_length=1)]
    messages: Annotated[
        list[dict[str, Any]],
        Meta(
            description="The conversation so far. Blocks may be `text`, `image` (base64), `tool_use`, `tool_result` "
            "and `thinking`; providers take what they know.",
            min_length=1,
        ),
    ]
    max_tokens: Annotated[int | UnsetType | None, Meta(description="Most tokens to generate.")] = UNSET
    system: Annotated[str | list[Any] | UnsetType | None, Meta(description="What the model is told first.")] = UNSET
    tools: Annotated[list[Any] | UnsetType | None, Meta(description="Tools that the model may call.")] = UNSET
    stream: Annotated[
        bool | UnsetType | None, Meta(description="`true` sends the answer as events while it is made.")
    ] = UNSET


class Message(msgspec.Struct):
    """A whole answer. With `stream` it comes as Anthropic's events from `message_start` to `message_stop`."""

    id: Annotated[str, Meta(description="Identifier of the message.")]
    type: Annotated[str, Meta(description="Always `message`.")]
    role: Annotated[str, Meta(description="Always `assistant`.")]
    model: Annotated[str, Meta(description="The model; a provider's as the provider names it.")]
    content: Annotated[list[dict[str, Any]], Meta(description="Blocks: texts, calls of tools, thoughts.")]
    stop_reason: Annotated[str | None, Meta(description="`end_turn`, `max_tokens`, `stop_sequence` or `tool_use`.")]
    usage: Annotated[dict[str, Any], Meta(description="`input_tokens` and `output_tokens`.")]
    stop_sequence: Annotated[str | None, Meta(description="The sequence that ended it.")] = None
    x_lemonade_route: RouteField = None


class Count(msgspec.Struct):
    """The length of a request."""

    input_tokens: Annotated[int, Meta(description="Its tokens, as the model reads them.")]


_count_decoder = msgspec.json.Decoder(Count)


def check_count(body: bytes, asked: str) -> tuple[bytes, None]:
    _count_decoder.decode(body)
    return body, None


async def messages(exchange: Exchange, body: MessagesRequest) -> None:
    await _ask(exchange, body, "messages", stream=body.stream is True)


async def count_tokens(exchange: Exchange, body: MessagesRequest) -> None:
    await _ask(exchange, body, "messages/count_tokens", stream=False)


async def _ask(exchange: Exchange, body: MessagesRequest, path: str, *, stream: bool) -> None:
    services = exchange.services
    found = await find(services, body.model)
    model, name, sink = await destination(exchange, found, body.model, body, of_anthropic)
    counts = path != "messages"
    if model.recipe == "cloud":
        request = CloudRequest(
            path=path,
            body=exchange.raw,
            asked=name,
            stream=stream,
            check=check_count if counts else check_passed_on,
            headers=_headers(exchange),
            query="?beta=true" if exchange.query.beta == "true" else "",
        )
        # The figures of this API are not those that the daemon counts.
        await forward_cloud(services.providers, model, request, sink, None, tell=exchange.add_header)
        return
    check_model(model)
    own = EngineRequest(
        path=f"/v1/{path}",
        body=await shape(exchange.raw, model, allow_remote=fetches_pictures(services.settings)),
        asked=name,
        alias=model.name,
        stream=stream,
        options=body.load_options,
        check=check_count if counts else check_reply,
    )
    await forward(services.residency, model, own, MessageEvents(sink), None if counts else services.metrics)


def _headers(exchange: Exchange) -> dict[str, str]:
    """Those of the client's headers that are meant for the provider."""
    headers = {"anthropic-version": VERSION}
    for name, value in exchange.scope["headers"]:
        if name.startswith(b"anthropic-") and value.isascii():
            headers[name.decode("latin-1")] = value.decode()
    return headers


MESSAGES = Endpoint(
    id="anthropic.messages",
    method="POST",
    path="/messages",
    prefixes=("/v1",),
    summary="Generate the next message of a conversation, in Anthropic's format",
    description=(
        "For models of cloud providers with the wire `anthropic`, and of others that have this API: the request goes "
        "on as it is but for the model's name, with the client's `anthropic-` headers, and the answer comes back as it "
        "is. Also for models that run in llama.cpp here, which are downloaded and loaded if need be. Failures are told "
        "in Anthropic's format."
    ),
    body=MessagesRequest,
    query=MessagesQuery,
    response=Message,
    streams=True,
    errors=(*LOAD_ERRORS, *ENGINE_ERRORS, *PROVIDER_ERRORS),
    dialect=ANTHROPIC,
    handler=messages,
)
COUNT_TOKENS = Endpoint(
    id="anthropic.count_tokens",
    method="POST",
    path="/messages/count_tokens",
    prefixes=("/v1",),
    summary="Count the tokens of a conversation, in Anthropic's format",
    body=MessagesRequest,
    query=MessagesQuery,
    response=Count,
    errors=(*LOAD_ERRORS, *ENGINE_ERRORS, *PROVIDER_ERRORS),
    dialect=ANTHROPIC,
    handler=count_tokens,
)
