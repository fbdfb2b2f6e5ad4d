"""`POST /internal/simulate-vram-pressure`: what would happen if the memory were so full."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import INVALID_ARGUMENT, MISSING_ARGUMENT, ROOT, Endpoint
from lemonade.api.exchange import Exchange
from lemonade.errors import InvalidArgument


class PressureRequest(msgspec.Struct):
    """How full the memory shall count as."""

    pct: Annotated[
        float, Meta(description="Share of the memory in use, 0 to 1; -1 evaluates idle models once instead.")
    ]


class PressureResponse(msgspec.Struct):
    """It was evaluated."""

    status: Annotated[str, Meta(description="Always `ok`.")]


async def simulate(exchange: Exchange, body: PressureRequest) -> None:
    if body.pct != -1 and not 0 <= body.pct <= 1:
        raise InvalidArgument("'pct' must be between 0 and 1, or -1.", param="pct")
    await exchange.services.residency.memory.simulate(body.pct)
    await exchange.json({"status": "ok"})


SIMULATE_PRESSURE = Endpoint(
    id="internal.simulate_vram_pressure",
    method="POST",
    path="/internal/simulate-vram-pressure",
    prefixes=ROOT,
    summary="Behave as if the memory were so full",
    description="For trying `auto_evict` out: models are unloaded as they would be.",
    body=PressureRequest,
    response=PressureResponse,
    errors=(MISSING_ARGUMENT, INVALID_ARGUMENT),
    changes=True,
    handler=simulate,
)
