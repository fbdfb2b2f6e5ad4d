"""Router models at the endpoints for text: where a request goes, and how its answer tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from lemonade.catalog.policy.document import RECIPE
from lemonade.errors import UnsupportedOperation
from lemonade.inference.routing.exposure import HEADER, Exposed

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.inference.relay import Sink
    from lemonade.inference.routing.facts import Facts
    from lemonade.inference.sampling import Loading
    from lemonade.model import Model

    Request = TypeVar("Request", bound=Loading)


class Condition(msgspec.Struct):
    """One condition that a router looked at."""

    condition: Annotated[str, Meta(description="Its key, such as `keywords_any`, or `classifier:ID`.")]
    result: Annotated[bool, Meta(description="Whether it held.")]
    score: Annotated[float | None, Meta(description="Classifiers: the score of the label.")] = None
    label: Annotated[str | None, Meta(description="Classifiers: the label that was looked at.")] = None
    rationale: Annotated[
        str | None, Meta(description="Classifiers: the model's reason, or why it could not be asked.")
    ] = None


class RouteDecision(msgspec.Struct):
    """What a router decided."""

    version: Annotated[str, Meta(description='Always `"1"`.')]
    route_to: Annotated[str, Meta(description="The model that answers, by its name in the policy.")]
    matched_rule: Annotated[str, Meta(description="The rule that held; empty when none did.")]
    default_used: Annotated[bool, Meta(description="Whether the policy's default model answers.")]
    outputs: Annotated[
        dict[str, Any], Meta(description="Those of the rule, and `estimated_cost` when the model's prices are known.")
    ]
    trace: Annotated[
        list[Condition] | None,
        Meta(description="With `route_trace`: the conditions in the order in which they were looked at."),
    ] = None


#: The field of answers of the endpoints for text.
RouteField = Annotated[
    RouteDecision | None,
    Meta(description="Router models only: what was decided. In a stream it is in the first event."),
]


class Destination(NamedTuple):
    """Where a request goes.

    Attributes:
        name: the name of the model in the answer.
    """

    model: Model
    name: str
    sink: Sink


async def destination(
    exchange: Exchange, model: Model, name: str, request: Request, facts: Callable[[Request], Facts]
) -> Destination:
    """The model itself, or the candidate that it chooses if it is a router; the answer goes through `sink` then, and
    the body of the request names the candidate.

    Args:
        name: the model as the client wrote it.
        facts: what a router looks at in the request.

    Raises:
        UnsupportedOperation: the model is a collection whose models work together, which only chats do.
    """
    if model.recipe == "collection.omni":
        raise UnsupportedOperation(
            f"The models of '{name}' work together at /v1/chat/completions alone. Name one of them here instead.",
            param="model",
        )
    if model.recipe != RECIPE:
        return Destination(model, name, exchange)
    decision, chosen = await exchange.services.router.route(model, facts(request))
    exchange.add_header(HEADER, decision.name.encode())
    shown = decision.body(trace=request.route_trace is True)
    exchange.raw = _renamed(exchange.raw, decision.route_to)
    return Destination(chosen, decision.route_to, Exposed(exchange, shown))


def _renamed(raw: bytes, name: str) -> bytes:
    """The body with another model; the other fields are not looked into."""
    body = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    return msgspec.json.encode({**body, "model": name})
