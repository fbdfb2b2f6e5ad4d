"""`POST /v1/routing/validate`: what a policy would decide, before it is registered."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.routed import RouteDecision
from lemonade.catalog.policy.document import parse
from lemonade.errors import MissingArgument
from lemonade.inference.routing.facts import Facts


class ValidateRequest(msgspec.Struct):
    """A policy and a request to try it with."""

    policy: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description="The document, as a router model is registered with it; `model_name` may be left out."),
    ] = UNSET
    prompt: Annotated[str | UnsetType | None, Meta(description="What is asked; empty by default.")] = UNSET
    has_images: Annotated[bool | UnsetType | None, Meta(description="As if pictures were in the request.")] = UNSET
    has_tools: Annotated[bool | UnsetType | None, Meta(description="As if the request offered tools.")] = UNSET
    metadata: Annotated[dict[str, str] | UnsetType | None, Meta(description="The request's metadata.")] = UNSET


class ValidateResponse(msgspec.Struct):
    """What the policy decides."""

    decision: Annotated[RouteDecision, Meta(description="As `x_lemonade_route` in an answer, with the trace.")]
    normalized_policy: Annotated[
        dict[str, Any],
        Meta(description="The policy as it was followed: as it was written, with `router` written out as rules."),
    ]


async def validate(exchange: Exchange, body: ValidateRequest) -> None:
    if not isinstance(body.policy, dict):
        raise MissingArgument("policy", "'policy' must be a JSON object.")
    policy = parse(body.policy)
    facts = Facts(
        text=body.prompt or "",
        has_tools=body.has_tools is True,
        has_images=body.has_images is True,
        metadata=body.metadata or {},
    )
    decision = await exchange.services.router.try_out(policy, facts)
    await exchange.json({"decision": decision.body(trace=True), "normalized_policy": policy.document})


VALIDATE = Endpoint(
    id="lemonade.routing_validate",
    method="POST",
    path="/routing/validate",
    summary="Try a routing policy",
    description=(
        "Nothing is registered, and no candidate is asked or looked up; the models of classifiers are, and are loaded "
        "for it. A classifier that cannot be asked counts as its `on_error` says."
    ),
    body=ValidateRequest,
    response=ValidateResponse,
    handler=validate,
)
