"""`GET /v1/stats`: the newest answer, and all of them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import Exchange


class Stats(msgspec.Struct):
    """Figures of the newest generated answer, and sums since the daemon was started."""

    input_tokens: Annotated[int, Meta(description="Tokens of the last prompt that were computed anew.")]
    output_tokens: Annotated[int, Meta(description="Tokens of the last answer.")]
    prompt_tokens: Annotated[int, Meta(description="Tokens of the last prompt, the remembered ones included.")]
    cache_tokens: Annotated[
        int | None, Meta(description="Tokens of the last prompt that the engine remembered; `null` if it does not say.")
    ]
    time_to_first_token: Annotated[float, Meta(description="Seconds that the last prompt took.")]
    tokens_per_second: Annotated[float, Meta(description="Speed of the last answer.")]
    request_count_total: Annotated[int, Meta(description="Requests that an engine was asked.")]
    input_tokens_total: Annotated[int, Meta(description="Sum of `input_tokens`.")]
    output_tokens_total: Annotated[int, Meta(description="Sum of `output_tokens`.")]
    prompt_tokens_total: Annotated[int, Meta(description="Sum of `prompt_tokens`.")]
    cache_tokens_total: Annotated[int, Meta(description="Sum of `cache_tokens`.")]
    routing_decisions_total: Annotated[int, Meta(description="Decisions of routers.")]
    routing_switches_total: Annotated[int, Meta(description="Decisions that changed a conversation's model.")]


async def stats(exchange: Exchange, body: None) -> None:
    metrics = exchange.services.metrics
    last, totals = metrics.last, metrics.totals
    await exchange.json(
        Stats(
            input_tokens=last.input_tokens,
            output_tokens=last.output_tokens,
            prompt_tokens=last.prompt_tokens,
            cache_tokens=last.cache_tokens,
            time_to_first_token=last.time_to_first_token,
            tokens_per_second=last.tokens_per_second,
            request_count_total=totals.requests,
            input_tokens_total=totals.input_tokens,
            output_tokens_total=totals.output_tokens,
            prompt_tokens_total=totals.prompt_tokens,
            cache_tokens_total=totals.cache_tokens,
            routing_decisions_total=metrics.routing_decisions,
            routing_switches_total=metrics.routing_switches,
        )
    )


STATS = Endpoint(
    id="lemonade.stats",
    method="GET",
    path="/stats",
    summary="Read how fast the last answer was, and what was counted",
    response=Stats,
    handler=stats,
)
