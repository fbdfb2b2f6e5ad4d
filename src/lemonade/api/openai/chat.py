"""`POST /v1/chat/completions`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.conversation import converse
from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.omni import RECIPE as OMNI
from lemonade.api.omni import answer_together
from lemonade.api.provided import PROVIDER_ERRORS, at_provider, find
from lemonade.api.routed import RouteField, destination
from lemonade.inference.chat import ChatRequest, check, check_model, check_reply
from lemonade.inference.routing.facts import of_chat


class ChatMessage(msgspec.Struct):
    """The assistant's message."""

    role: Annotated[str, Meta(description="Always `assistant`.")]
    content: Annotated[str | None, Meta(description="The text.")]
    reasoning_content: Annotated[str | None, Meta(description="Models that reason only: what the model thought.")] = (
        None
    )
    tool_calls: Annotated[list[dict[str, Any]] | None, Meta(description="Calls to the request's tools.")] = None


class ChatChoice(msgspec.Struct):
    """One answer."""

    index: Annotated[int, Meta(description="Position in `choices`.")]
    message: Annotated[ChatMessage, Meta(description="The message.")]
    finish_reason: Annotated[str | None, Meta(description="Why it ended: `stop`, `length` or `tool_calls`.")]


class Usage(msgspec.Struct):
    """Token counts of a request."""

    prompt_tokens: Annotated[int, Meta(description="Tokens in the prompt.")]
    completion_tokens: Annotated[int, Meta(description="Tokens generated.")]
    total_tokens: Annotated[int, Meta(description="The sum of both.")]
    prompt_tokens_details: Annotated[
        dict[str, Any] | None, Meta(description="Breakdown, such as `cached_tokens`, when the engine tells it.")
    ] = None


class ChatCompletion(msgspec.Struct):
    """A whole answer. With `stream` it comes as `chat.completion.chunk` events that end with `data: [DONE]`."""

    id: Annotated[str, Meta(description="Identifier of the completion.")]
    object: Annotated[str, Meta(description="Always `chat.completion`.")]
    created: Annotated[int, Meta(description="Unix time.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    choices: Annotated[list[ChatChoice], Meta(description="The answers.")]
    usage: Annotated[Usage | None, Meta(description="Token counts.")] = None
    timings: Annotated[dict[str, Any] | None, Meta(description="Speed of prompt and generation, from llama.cpp.")] = (
        None
    )
    system_fingerprint: Annotated[str | None, Meta(description="The engine's build.")] = None
    x_lemonade_route: RouteField = None


async def chat_completions(exchange: Exchange, body: ChatRequest) -> None:
    services = exchange.services
    found = await find(services, body.model)
    if found.recipe == OMNI:
        await answer_together(exchange, found, body)
        return
    if found.recipe != "cloud":
        check(body)
    model, name, sink = await destination(exchange, found, body.model, body, of_chat)
    check_model(model)
    stream = body.stream is True
    if await at_provider(exchange, model, name, sink, "chat/completions", stream=stream, check=check_reply):
        return
    await converse(services, model, name, body, exchange.raw, sink)


CHAT_COMPLETIONS = Endpoint(
    id="openai.chat_completions",
    method="POST",
    path="/chat/completions",
    summary="Generate the next message of a conversation",
    description=(
        "Downloads and loads the model if it is not loaded. Arguments that are not listed go to the engine untouched; "
        "`null` counts as absent. A stream is silent for at most a second: then it carries a comment. What "
        "is asked of a cloud model goes to its provider as it is, and so do its answers and errors come back. With an "
        "omni collection one of its models answers, and draws, changes pictures and speaks with the others: what they "
        "make is in `content`, as `![generated image](data:image/png;base64,…)` and "
        "`<audio>data:audio/mpeg;base64,…</audio>`. Calls to the request's own `tools` are handed back. In a stream "
        "such media come as soon as they are made, in pieces of at most 16,000 characters, and a failure is told as "
        "the text `Error: …`."
    ),
    body=ChatRequest,
    response=ChatCompletion,
    streams=True,
    errors=(
        ErrorRow(400, None, "The model is not an LLM."),
        ErrorRow(400, "context_length_exceeded", "The conversation does not fit into the model's context."),
        *LOAD_ERRORS,
        *ENGINE_ERRORS,
        *PROVIDER_ERRORS,
    ),
    handler=chat_completions,
)
