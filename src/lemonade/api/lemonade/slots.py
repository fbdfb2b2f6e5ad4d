"""`GET /v1/slots` and `POST /v1/slots/{id}`: llama.cpp's places for conversations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade.loaded import chosen
from lemonade.errors import EngineReplied, InvalidJSON, MissingArgument, RequestError, RouteNotFound
from lemonade.inference.relay import EngineRequest, forward

if TYPE_CHECKING:
    from lemonade.system.metrics import Measurement

ACTIONS = ("erase", "save", "restore")

#: Digits of a slot's number. Python itself refuses to read a number of thousands of digits.
LONGEST = 9


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    msgspec.json.decode(body)
    return body, None


class SlotsQuery(msgspec.Struct):
    """Whose slots."""

    model: Annotated[str | UnsetType, Meta(description="The model; the LLM that was used last by default.")] = UNSET


async def slots(exchange: Exchange, body: None) -> None:
    services = exchange.services
    model = chosen(services, exchange.query.model or None, "slots query")
    request = EngineRequest(
        method="GET", path="/slots", body=None, asked=model.name, alias=model.name, check=check_reply
    )
    await forward(services.residency, model, request, exchange, None)


SLOTS = Endpoint(
    id="lemonade.slots",
    method="GET",
    path="/slots",
    summary="Read the slots of a loaded model",
    description="The answer is llama.cpp's array.",
    query=SlotsQuery,
    response_is_array=True,
    errors=(ErrorRow(400, None, "No model is named and none is loaded."), *LOAD_ERRORS, *ENGINE_ERRORS),
    handler=slots,
)


class SlotQuery(msgspec.Struct):
    """What to do with the slot."""

    action: Annotated[str | UnsetType, Meta(description="`erase`, `save` or `restore`.")] = UNSET
    model: Annotated[str | UnsetType, Meta(description="The model; the LLM that was used last by default.")] = UNSET


class SlotRequest(msgspec.Struct):
    """What `save` and `restore` need."""

    filename: Annotated[
        str | UnsetType | None, Meta(description="`save` and `restore`: a file name in the engine's folder of slots.")
    ] = UNSET


async def slot(exchange: Exchange, body: SlotRequest) -> None:
    services = exchange.services
    if not (exchange.id.isascii() and exchange.id.isdigit() and len(exchange.id) <= LONGEST):
        raise RouteNotFound("The requested endpoint does not exist", details={"path": exchange.scope["path"]})
    action = exchange.query.action
    if not action:
        raise MissingArgument("action", "Missing query parameter 'action', such as ?action=erase.")
    if action not in ACTIONS:
        raise RequestError(f"Unknown action: {action}. Supported actions: {', '.join(ACTIONS)}", param="action")
    given = exchange.raw.strip()
    if given and not _is_object(given):
        raise InvalidJSON("The request body is not a JSON object.")
    if action != "erase" and not isinstance(body.filename, str):
        raise MissingArgument("filename", f"'{action}' needs 'filename': a name in the engine's folder of slots.")
    model = chosen(services, exchange.query.model or None, f"slots {action} operation")
    request = EngineRequest(
        path=f"/slots/{int(exchange.id)}?action={action}",
        body=given or b"{}",
        asked=model.name,
        alias=model.name,
        check=check_reply,
    )
    try:
        await forward(services.residency, model, request, exchange, None)
    except EngineReplied as error:
        if error.status != 501:
            raise
        raise EngineReplied(
            f"'{model.name}' runs without a folder for its slots. Load it with one that is there: lemonade load "
            f'{model.name} --llamacpp-args "--slot-save-path FOLDER" (with --save-options, from now on).',
            status=501,
            type=error.type,
            details=error.details,
        ) from None


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(raw), dict)
    except (msgspec.DecodeError, RecursionError):
        return False


SLOT = Endpoint(
    id="lemonade.slot",
    method="POST",
    path="/slots/{id}",
    summary="Erase, save or restore one slot of a loaded model",
    description=(
        "The answer is llama.cpp's object. The engine does it only when it was started with `--slot-save-path` "
        "(an option in `llamacpp_args`)."
    ),
    body=SlotRequest,
    body_optional=True,
    query=SlotQuery,
    errors=(
        ErrorRow(400, None, "The action is unknown, or no model is named and none is loaded."),
        ErrorRow(404, None, "`{id}` is no number."),
        ErrorRow(400, "missing_argument", "`save` and `restore` without a file name."),
        *LOAD_ERRORS,
        *(row for row in ENGINE_ERRORS if row.status != 501),
        ErrorRow(501, None, "The engine was started without `--slot-save-path`; the message says how to start it."),
    ),
    changes=True,
    handler=slot,
)
