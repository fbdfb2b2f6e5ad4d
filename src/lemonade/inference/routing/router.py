"""Router models: which of its candidates answers a request."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from lemonade.catalog.policy import document
from lemonade.catalog.policy.document import RECIPE, Policy
from lemonade.errors import InvalidArgument, LemonadeError, ModelLoadRefused
from lemonade.inference.routing.evaluation import Decision, decide
from lemonade.inference.routing.facts import Facts
from lemonade.inference.routing.scores import Models

if TYPE_CHECKING:
    from lemonade.catalog.catalog import Catalog
    from lemonade.engines.cloud.providers import Providers
    from lemonade.model import Model
    from lemonade.residency.manager import Residency
    from lemonade.system.metrics import Metrics

logger = logging.getLogger("lemonade.routing")

#: Conversations whose last model is remembered. Source: the original.
MAX_CONVERSATIONS = 1024
#: What is known of a candidate's price, and shown with the decision.
COSTS = ("cost_tier", "cost_input_per_million", "cost_output_per_million", "latency_ms_hint")


class Routed(NamedTuple):
    """A decision and the model that it means."""

    decision: Decision
    model: Model


class Router:
    """Follows the policies of router models.

    Args:
        metrics: counts decisions, and how many changed a conversation's model.
    """

    def __init__(self, catalog: Catalog, residency: Residency, providers: Providers, metrics: Metrics) -> None:
        self._catalog = catalog
        self._residency = residency
        self._providers = providers
        self._metrics = metrics
        self._models = Models(residency, providers)
        self._policies: dict[str, tuple[Model, Policy | InvalidArgument]] = {}
        self._tried: set[str] = set()
        self._conversations: OrderedDict[tuple[str, bytes], str] = OrderedDict()

    async def route(self, router: Model, facts: Facts) -> Routed:
        """The candidate of a router model that answers a request.

        Raises:
            ModelLoadRefused: the policy cannot be followed, and names no default either.
            ModelNotFound, ModelNotSupported: the candidate is not here any more.
        """
        policy = self._policy(router)
        if isinstance(policy, InvalidArgument):
            decision = self._open(router, policy)
        else:
            decision = await self._decide(policy, router.components, facts)
        await self._providers.settle(decision.route_to)
        model = self._find(decision.route_to, router.components)
        decision.outputs |= _costs(model)
        self._count(router, facts, model)
        return Routed(decision, model)

    async def try_out(self, policy: Policy, facts: Facts) -> Decision:
        """The decision of a policy that no model has; nothing is counted. Its helpers stay until another policy is
        tried, or any is registered or deleted."""
        self._tried = self._canonical(policy.helpers, policy.components)
        self._keep()
        decision = await self._decide(policy, policy.components, facts)
        try:
            decision.outputs |= _costs(self._find(decision.route_to, policy.components))
        except LemonadeError:
            logger.debug("'%s' is not here", decision.route_to)
        return decision

    def refresh(self) -> None:
        """Lets helpers go that no policy needs any more. To be called when policies came or went."""
        self._tried = set()
        self._keep()

    def _keep(self) -> None:
        wanted = set(self._tried)
        for model in self._catalog.all_models():
            if model.recipe == RECIPE and isinstance(policy := self._policy(model), Policy):
                wanted |= self._canonical(policy.helpers, model.components)
        self._residency.keep_helpers(wanted)

    def _canonical(self, names: Iterable[str], components: tuple[str, ...]) -> set[str]:
        """The canonical names of those models that are here."""
        found = set()
        for name in names:
            try:
                found.add(self._find(name, components).canonical)
            except LemonadeError:
                continue
        return found

    async def _decide(self, policy: Policy, components: tuple[str, ...], facts: Facts) -> Decision:
        candidates = self._canonical(policy.candidates, components)
        scorer = self._models.scorer(lambda name: self._find(name, components), candidates)
        return await decide(policy, facts, scorer)

    def _find(self, name: str, components: tuple[str, ...]) -> Model:
        """The model that a policy means by a name: the component of that name, wherever it comes from."""
        return self._catalog.find(document.component(name, components) or name)

    def _policy(self, router: Model) -> Policy | InvalidArgument:
        known = self._policies.get(router.canonical)
        if known is None or (known[0] is not router and known[0] != router):
            policy: Policy | InvalidArgument
            try:
                policy = document.read(router)
            except InvalidArgument as error:
                policy = error
            known = self._policies[router.canonical] = (router, policy)
        return known[1]

    def _open(self, router: Model, reason: InvalidArgument) -> Decision:
        """What a policy says that cannot be followed, as after a mistake in an editor: its default, if it has one."""
        routing = router.extras.get("routing")
        default = routing.get("default_model") if isinstance(routing, dict) else None
        if not isinstance(default, str):
            raise ModelLoadRefused(
                f"The policy of '{router.name}' cannot be followed. {reason.message} Register it anew.",
                requested=router.name,
            )
        logger.warning("The policy of '%s' cannot be followed; requests go to its default. %s", router.name, reason)
        return Decision(default, "", True, {}, [])

    def _count(self, router: Model, facts: Facts, model: Model) -> None:
        self._metrics.routing_decisions += 1
        if not facts.conversation:
            return
        key = (router.canonical, facts.conversation)
        before = self._conversations.pop(key, model.canonical)
        self._conversations[key] = model.canonical
        if before != model.canonical:
            self._metrics.routing_switches += 1
        if len(self._conversations) > MAX_CONVERSATIONS:
            self._conversations.popitem(last=False)


def _costs(model: Model) -> dict[str, Any]:
    known = {key: model.extras[key] for key in COSTS if model.extras.get(key) is not None}
    return {"estimated_cost": known} if known else {}
