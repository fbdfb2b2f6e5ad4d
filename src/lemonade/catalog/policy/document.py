"""A routing policy: the document that says which model of a router answers a request.

Everything that can be wrong with one is found when it is registered. What it does with a request is the business of
`inference.routing`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from lemonade.catalog.policy import classifiers, match
from lemonade.catalog.policy.classifiers import Classifier
from lemonade.catalog.policy.fields import distinct, items, mapping, refuse, shown, text, within
from lemonade.catalog.policy.lookup import Lookup
from lemonade.catalog.policy.match import Node
from lemonade.model import Model, Origin

RECIPE = "collection.router"

#: The version of the documents, of which only the first number has to be this.
VERSION = "1"

#: The name of the classifier that `router` is short for, and the beginning of its rules' names.
ROUTER = "__router"
ROUTE = "__route_"
#: What that classifier is told when the document says nothing.
ROUTER_PROMPT = "Choose the model that suits the request best."

_KEYS = ("version", "model_name", "recipe", "components", "models", "routing")
#: What a canonical name begins with.
_ORIGINS = tuple(f"{origin}." for origin in get_args(Origin))
_ID = re.compile(r"[A-Za-z0-9._-]+")


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """Where requests go that `match` holds for.

    Attributes:
        outputs: what the author wants to find in the decision; nothing here reads it.
    """

    id: str
    match: Node
    route_to: str
    outputs: dict[str, Any] = {}


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy that can be followed.

    Attributes:
        components: every model that it names.
        candidates: the models that may answer.
        default_model: the one that does when no rule holds.
        document: the policy as it is followed: as it was written, with `router` written out.
        lookup: finds the words and expressions of all rules.
    """

    components: tuple[str, ...]
    candidates: tuple[str, ...]
    default_model: str
    classifiers: tuple[Classifier, ...]
    rules: tuple[Rule, ...]
    document: dict[str, Any]
    lookup: Lookup

    @property
    def helpers(self) -> tuple[str, ...]:
        """The models that are asked before a candidate is chosen."""
        return tuple(dict.fromkeys(one.model for one in self.classifiers))


def parse(document: Any) -> Policy:
    """The policy of a document.

    Raises:
        InvalidArgument: naming the place of what is wrong, such as `routing.rules[0].match.regex`.
    """
    if not isinstance(document, Mapping):
        raise refuse("policy", f"must be an object, not {shown(document)}.")
    found = mapping("", document, _KEYS, ("version", "recipe", "components", "routing"))
    _check_version(found["version"])
    if found["recipe"] != RECIPE:
        raise refuse("recipe", f"must be `{RECIPE}`, not {shown(found['recipe'])}.")
    components = distinct("components", found["components"])
    routing = mapping(
        "routing",
        found["routing"],
        ("candidates", "default_model", "router", "classifiers", "rules"),
        ("candidates", "default_model"),
    )
    candidates = distinct("routing.candidates", routing["candidates"])
    for number, name in enumerate(candidates):
        _check_component(f"routing.candidates[{number}]", name, components)
    default = _candidate("routing.default_model", routing["default_model"], candidates)
    if "router" in routing:
        routing = _written_out(routing, candidates)
    elif "rules" not in routing:
        raise refuse("routing.rules", "is missing; a policy has `rules`, or a `router`.")
    known = _classifiers(routing.get("classifiers", []), components)
    rules = _rules(routing["rules"], known, candidates)
    return Policy(
        components=components,
        candidates=candidates,
        default_model=default,
        classifiers=tuple(known.values()),
        rules=rules,
        document={**found, "routing": routing},
        lookup=Lookup(rule.match for rule in rules),
    )


def read(model: Model) -> Policy:
    """The policy of a router model.

    Raises:
        InvalidArgument: it cannot be followed, as when its definition was edited by hand.
    """
    return parse(
        {
            "version": model.extras.get("version"),
            "recipe": model.recipe,
            # The catalog writes out where a component comes from; a policy need not.
            "components": [*dict.fromkeys((*model.components, *map(bare, model.components)))],
            "routing": model.extras.get("routing"),
        }
    )


def define(definition: Mapping[str, Any], find: Callable[[str], Model | None]) -> Policy:
    """The policy of a definition that is to be registered; its models are looked at, too.

    Args:
        definition: may have further keys, which are none of the policy's business.
        find: the model of a name, or None.

    Raises:
        InvalidArgument: naming the place of what is wrong.
    """
    policy = parse({key: definition[key] for key in _KEYS if key in definition})
    for number, name in enumerate(policy.candidates):
        model = find(name)
        if model is not None and model.mode != "chat":
            raise refuse(f"routing.candidates[{number}]", f"is '{name}', which is no LLM.")
    for number, classifier in enumerate(policy.classifiers):
        model = find(classifier.model)
        if model is not None:
            place = "routing.router" if classifier.id == ROUTER else f"routing.classifiers[{number}]"
            classifiers.check_model(place, classifier, model)
    return policy


def bare(name: str) -> str:
    """A model's name without the origin before it."""
    for origin in _ORIGINS:
        if name.startswith(origin):
            return name.removeprefix(origin)
    return name


def component(name: str, components: tuple[str, ...]) -> str | None:
    """The component that a name in a policy means: the very name, else the same one from wherever; None for none."""
    if name in components:
        return name
    return next((one for one in components if bare(one) == bare(name)), None)


def _check_version(value: Any) -> None:
    if not isinstance(value, str) or value.partition(".")[0] != VERSION:
        raise refuse("version", f'must be "{VERSION}", not {shown(value)}.')


def _check_component(place: str, name: str, components: tuple[str, ...]) -> None:
    if component(name, components) is None:
        raise refuse(place, f"is {shown(name)}, which is none of the 'components': {', '.join(components)}.")


def _candidate(place: str, value: Any, candidates: tuple[str, ...]) -> str:
    name = text(place, value)
    if name not in candidates:
        raise refuse(place, f"must be one of the candidates ({', '.join(candidates)}), not {shown(name)}.")
    return name


def _written_out(routing: Mapping[str, Any], candidates: tuple[str, ...]) -> dict[str, Any]:
    """`router` as the classifier and the rules that it is short for."""
    for key in ("classifiers", "rules"):
        if key in routing:
            raise refuse(
                f"routing.{key}", "cannot stand beside a `router`, which is short for one classifier and its rules."
            )
    router = mapping("routing.router", routing["router"], ("type", "model", "prompt"), ("type", "model"))
    if router["type"] != "llm":
        raise refuse("routing.router.type", f"must be `llm`, not {shown(router['type'])}.")
    asked = {
        "id": ROUTER,
        "type": "llm",
        "model": text("routing.router.model", router["model"]),
        "prompt": text("routing.router.prompt", router.get("prompt", ROUTER_PROMPT)),
        "labels": list(candidates),
    }
    rules = [
        {
            "id": f"{ROUTE}{number}",
            "match": {"classifier": ROUTER, "label": name, "min_score": 1.0},
            "route_to": name,
        }
        for number, name in enumerate(candidates)
    ]
    kept = {key: value for key, value in routing.items() if key != "router"}
    return {**kept, "classifiers": [asked], "rules": rules}


def _classifiers(value: Any, components: tuple[str, ...]) -> dict[str, Classifier]:
    known: dict[str, Classifier] = {}
    for number, item in enumerate(items("routing.classifiers", value)):
        place = f"routing.classifiers[{number}]"
        one = classifiers.parse(place, item)
        if one.id in known:
            raise refuse(within(place, "id"), f"repeats {shown(one.id)}.")
        at = "routing.router.model" if one.id == ROUTER else within(place, "model")
        _check_component(at, one.model, components)
        known[one.id] = one
    return known


def _rules(value: Any, known: Mapping[str, Classifier], candidates: tuple[str, ...]) -> tuple[Rule, ...]:
    rules: list[Rule] = []
    seen: set[str] = set()
    for number, item in enumerate(items("routing.rules", value)):
        place = f"routing.rules[{number}]"
        found = mapping(place, item, ("id", "match", "route_to", "outputs"), ("id", "match", "route_to"))
        name = text(within(place, "id"), found["id"])
        if not _ID.fullmatch(name):
            raise refuse(within(place, "id"), f"may have letters, digits, '.', '_' and '-' only, not {shown(name)}.")
        if name in seen:
            raise refuse(within(place, "id"), f"repeats {shown(name)}.")
        seen.add(name)
        outputs = found.get("outputs", {})
        if not isinstance(outputs, dict):
            raise refuse(within(place, "outputs"), f"must be an object, not {shown(outputs)}.")
        rules.append(
            Rule(
                id=name,
                match=match.parse(within(place, "match"), found["match"], known),
                route_to=_candidate(within(place, "route_to"), found["route_to"], candidates),
                outputs=outputs,
            )
        )
    return tuple(rules)
