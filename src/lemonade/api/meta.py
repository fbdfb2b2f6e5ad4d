"""The API describes itself: `GET /openapi.json` and `GET /docs`."""

from __future__ import annotations

from lemonade.api.endpoint import ROOT, Endpoint
from lemonade.api.exchange import Exchange


async def openapi_document(exchange: Exchange, body: None) -> None:
    from lemonade.api.reference import openapi

    await exchange.json(openapi(exchange.services.endpoints))


async def docs(exchange: Exchange, body: None) -> None:
    from lemonade.api.reference import page

    text = page(exchange.services.endpoints, exchange.services.sockets)
    await exchange.reply(text.encode(), media_type=b"text/html; charset=utf-8")


OPENAPI = Endpoint(
    id="meta.openapi",
    method="GET",
    path="/openapi.json",
    prefixes=ROOT,
    summary="Read the OpenAPI document",
    handler=openapi_document,
)
DOCS = Endpoint(
    id="meta.docs",
    method="GET",
    path="/docs",
    prefixes=ROOT,
    summary="Read the reference as a page",
    media_type="text/html",
    handler=docs,
)
