"""`POST /v1/completions`."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.openai.chat import Usage
from lemonade.api.provided import PROVIDER_ERRORS, at_provider, find
from lemonade.api.routed import RouteField, destination
from lemonade.inference.choices import forward_choices
from lemonade.inference.completion import CompletionRequest, check_model, check_reply, prompts, shape
from lemonade.inference.echo import CompletionEditor
from lemonade.inference.relay import EngineRequest, forward
from lemonade.inference.routing.facts import of_completion


class CompletionChoice(msgspec.Struct):
    """One continuation."""

    index: Annotated[int, Meta(description="Position in `choices`: those of the first prompt come first.")]
    text: Annotated[str, Meta(description="The text.")]
    logprobs: Annotated[
        dict[str, Any] | None,
        Meta(
            description=(
                "With `logprobs`: `tokens`, `token_logprobs`, `top_logprobs` and `text_offset`, and the same in the "
                "form of chats in `content`."
            )
        ),
    ]
    finish_reason: Annotated[str | None, Meta(description="Why it ended: `stop` or `length`.")]


class TextCompletion(msgspec.Struct):
    """A whole answer. With `stream` it comes as `text_completion` events, the last of which has `usage`, that end with
    `data: [DONE]`."""

    id: Annotated[str, Meta(description="Identifier of the completion.")]
    object: Annotated[str, Meta(description="Always `text_completion`.")]
    created: Annotated[int, Meta(description="Unix time.")]
    model: Annotated[str, Meta(description="The model, as the request named it.")]
    choices: Annotated[list[CompletionChoice], Meta(description="The texts: `n` per prompt.")]
    usage: Annotated[Usage | None, Meta(description="Token counts; each prompt counts once.")] = None
    timings: Annotated[dict[str, Any] | None, Meta(description="Speed of prompt and generation, from llama.cpp.")] = (
        None
    )
    system_fingerprint: Annotated[str | None, Meta(description="The engine's build.")] = None
    x_lemonade_route: RouteField = None


async def completions(exchange: Exchange, body: CompletionRequest) -> None:
    services = exchange.services
    texts = prompts(body)
    model, name, sink = await destination(exchange, await find(services, body.model), body.model, body, of_completion)
    check_model(model)
    stream = body.stream is True
    if await at_provider(exchange, model, name, sink, "completions", stream=stream, check=check_reply):
        return
    requests = [
        EngineRequest(
            path="/v1/completions",
            body=one,
            asked=name,
            alias=model.name,
            stream=stream,
            options=body.load_options,
            check=check_reply,
            malformed=500,
        )
        for one in shape(body, exchange.raw, texts)
    ]
    if len(requests) == 1 and not body.needs_editing:
        await forward(services.residency, model, requests[0], sink, services.metrics)
        return
    editor = CompletionEditor(body, texts)
    await forward_choices(services.residency, model, requests, sink, services.metrics, editor, prompts=len(texts))


COMPLETIONS = Endpoint(
    id="openai.completions",
    method="POST",
    path="/completions",
    summary="Continue a text",
    description=(
        "Downloads and loads the model if it is not loaded. Arguments that are not listed go to the engine untouched; "
        "`null` counts as absent. With `echo` and `logprobs` the prompt's tokens are scored too, which takes as long "
        "as generating them."
    ),
    body=CompletionRequest,
    response=TextCompletion,
    streams=True,
    errors=(
        ErrorRow(400, None, "The model is not an LLM."),
        ErrorRow(400, "context_length_exceeded", "The prompt does not fit into the model's context."),
        *LOAD_ERRORS,
        *ENGINE_ERRORS,
        *PROVIDER_ERRORS,
        ErrorRow(500, None, "The engine's answer has no `choices`."),
    ),
    handler=completions,
)
