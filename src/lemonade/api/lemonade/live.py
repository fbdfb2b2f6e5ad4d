"""`GET /live`: the daemon takes requests."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import ROOT, Endpoint
from lemonade.api.exchange import Exchange


class Live(msgspec.Struct):
    """The daemon takes requests."""

    status: Annotated[str, Meta(description="Always `ok`.")]


async def live(exchange: Exchange, body: None) -> None:
    await exchange.reply(b'{"status":"ok"}')


LIVE = Endpoint(
    id="lemonade.live",
    method="GET",
    path="/live",
    prefixes=ROOT,
    summary="Say that the daemon takes requests",
    description="Never asks for a key.",
    response=Live,
    handler=live,
)
