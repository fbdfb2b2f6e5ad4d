"""Failures on the wire: JSON before the first byte of an answer, one event after it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.errors import LemonadeError

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange, Headers

logger = logging.getLogger("lemonade.api")


def as_failure(error: BaseException) -> LemonadeError:
    """Any exception as a failure of the tree. What nobody foresaw is logged whole and told without its insides."""
    if isinstance(error, LemonadeError):
        return error
    logger.error("Unexpected failure", exc_info=error)
    return LemonadeError(f"An unexpected failure inside the daemon ({type(error).__name__}); its log has the details.")


def error_body(error: LemonadeError) -> dict[str, Any]:
    """`{"error": {"message", "type", "code"?, "param"?, …}}`."""
    return {"error": error.body()}


def error_headers(error: LemonadeError) -> Headers:
    """What tells a client library whether to send the request again: both official ones obey these headers."""
    if not error.retry:
        return [(b"x-should-retry", b"false")]
    if error.retry_after is None:
        return []
    return [(b"retry-after", b"%d" % max(1, round(error.retry_after)))]


def error_event(error: LemonadeError) -> bytes:
    """The one event that ends a stream which failed after its first byte."""
    body = error.body()
    body.setdefault("status_code", error.status)
    return b"data: " + msgspec.json.encode({"error": body}) + b"\n\n"


@dataclass(frozen=True, slots=True)
class Dialect:
    """How an API tells of failures.

    Attributes:
        body: what is answered, as JSON, before the first byte of an answer.
        event: what ends a stream that has begun.
    """

    body: Callable[[LemonadeError], Any]
    event: Callable[[LemonadeError], bytes]


OPENAI = Dialect(error_body, error_event)


async def answer_failure(exchange: Exchange, error: BaseException) -> None:
    """Tells the client of `error` in the way that is still open."""
    failure = as_failure(error)
    dialect = exchange.endpoint.dialect
    if exchange.started and not exchange.of_events:
        # Words inside a sound or a file would be taken for a part of it. The server closes the connection before the
        # end of the body, which clients notice.
        logger.warning("An answer was cut off: %s", failure.message)
    elif exchange.started:
        await exchange.end(dialect.event(failure))
    else:
        await exchange.json(dialect.body(failure), failure.status, error_headers(failure))
