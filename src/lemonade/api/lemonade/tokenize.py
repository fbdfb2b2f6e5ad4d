"""`POST /v1/tokenize`: a text as a model reads it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade.loaded import chosen
from lemonade.inference.relay import EngineRequest, forward

if TYPE_CHECKING:
    from lemonade.system.metrics import Measurement


class TokenizeRequest(msgspec.Struct):
    """Arguments that are not listed go to the engine untouched."""

    content: Annotated[str, Meta(description="The text.")]
    model: Annotated[
        str | UnsetType | None,
        Meta(description="The model to read it; the LLM that was used last by default."),
    ] = UNSET
    add_special: Annotated[
        bool | UnsetType | None, Meta(description="`true` adds the tokens that begin a text, where the model has any.")
    ] = UNSET
    parse_special: Annotated[
        bool | UnsetType | None, Meta(description="`false` reads the names of special tokens as text.")
    ] = UNSET
    with_pieces: Annotated[bool | UnsetType | None, Meta(description="`true` returns each token with its text.")] = (
        UNSET
    )


class Tokens(msgspec.Struct):
    """The tokens of a text."""

    tokens: Annotated[
        list[Any], Meta(description="Their ids; with `with_pieces` objects of `id` and `piece` (text, or bytes).")
    ]


_decoder = msgspec.json.Decoder(Tokens)


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    _decoder.decode(body)
    return body, None


async def tokenize(exchange: Exchange, body: TokenizeRequest) -> None:
    services = exchange.services
    model = chosen(services, body.model or None, "tokenization")
    given = {key: value for key, value in msgspec.json.decode(exchange.raw).items() if value is not None}
    request = EngineRequest(
        path="/tokenize",
        body=msgspec.json.encode(given),
        asked=model.name,
        alias=model.name,
        check=check_reply,
    )
    await forward(services.residency, model, request, exchange, None)


TOKENIZE = Endpoint(
    id="lemonade.tokenize",
    method="POST",
    path="/tokenize",
    summary="Turn a text into a model's tokens",
    description="A model that is named is downloaded and loaded if it is not loaded.",
    body=TokenizeRequest,
    response=Tokens,
    errors=(
        ErrorRow(400, None, "No model is named and none is loaded, or the model's engine has no tokens."),
        *LOAD_ERRORS,
        *ENGINE_ERRORS,
    ),
    handler=tokenize,
)
