"""The router over a real catalog, without engines."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import ModelNotFound
from lemonade.inference.routing import router as module
from lemonade.inference.routing.facts import Facts
from lemonade.inference.routing.router import Router
from lemonade.system.metrics import Metrics
from tests.catalog.world import World

SMALL, BIG, JUDGE = "Qwen3-0.6B-GGUF", "Qwen3-4B-GGUF", "LFM2-1.2B-GGUF"
BUG = {"id": "bug", "match": {"keywords_any": ["bug"]}, "route_to": BIG}
ASK = {"type": "llm", "model": JUDGE, "prompt": "Which?", "labels": ["a", "b"]}


class Helpers:
    """A residency that only notes which helpers stay."""

    kept: frozenset[str] = frozenset()

    def keep_helpers(self, names: Iterable[str]) -> None:
        self.kept = frozenset(names)


class NoProviders:
    """There is nothing at providers."""

    async def settle(self, name: str) -> None:
        """There is nothing to wait for."""


class Site:
    """A catalog, and a router over it."""

    def __init__(self, folder: Path) -> None:
        self.world = World(folder)
        self.catalog = self.world.catalog
        self.residency = Helpers()
        self.metrics = Metrics()
        self.router = Router(self.catalog, self.residency, NoProviders(), self.metrics)  # type: ignore[arg-type]

    def register(self, name: str, *rules: dict[str, Any], **routing: Any) -> str:
        document = {
            "version": "1",
            "recipe": "collection.router",
            "components": [SMALL, BIG, JUDGE],
            "routing": {"candidates": [SMALL, BIG], "default_model": SMALL, "rules": list(rules), **routing},
        }
        self.catalog.register({"model_name": f"user.{name}", **document})
        return f"user.{name}"

    async def go(self, name: str, text: str, conversation: bytes = b"") -> str:
        facts = Facts(text=text, conversation=conversation)
        return (await self.router.route(self.catalog.find(name), facts)).model.canonical


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


async def test_a_policy_is_followed_anew_when_it_changed(site: Site) -> None:
    name = site.register("r", BUG)
    assert await site.go(name, "a bug") == f"builtin.{BIG}"
    assert await site.go(name, "soup") == f"builtin.{SMALL}"
    site.register("r", {**BUG, "match": {"keywords_any": ["soup"]}})
    assert await site.go(name, "soup") == f"builtin.{BIG}"
    assert site.metrics.routing_decisions == 3


async def test_a_name_in_a_policy_means_the_component(site: Site) -> None:
    """A model of the user's own with the same name does not get in between."""
    name = site.register("r", BUG)
    site.catalog.register({"model_name": f"user.{BIG}", "recipe": "llamacpp", "checkpoint": "o/n:Q4_0"})
    assert await site.go(name, "a bug") == f"builtin.{BIG}"


async def test_switches_within_a_conversation_are_counted(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CONVERSATIONS", 2)
    name = site.register("r", BUG)
    for text, conversation in (("a bug", b"1"), ("soup", b"2"), ("soup", b"2"), ("soup", b"1"), ("a bug", b"")):
        await site.go(name, text, conversation)
    assert (site.metrics.routing_decisions, site.metrics.routing_switches) == (5, 1)
    await site.go(name, "soup", b"3")
    await site.go(name, "a bug", b"2")  # was forgotten
    assert site.metrics.routing_switches == 1


async def test_a_candidate_that_went_away_is_an_error_of_its_own(site: Site) -> None:
    site.catalog.register({"model_name": "user.mine", "recipe": "llamacpp", "checkpoint": "o/n:Q4_0"})
    document = {"version": "1", "recipe": "collection.router", "components": ["user.mine"]}
    routing = {"candidates": ["mine"], "default_model": "mine", "rules": []}
    site.catalog.register({"model_name": "user.r", **document, "routing": routing})
    assert await site.go("user.r", "x") == "user.mine"
    await site.catalog.delete(site.catalog.find("user.mine"))
    with pytest.raises(ModelNotFound, match="mine"):
        await site.go("user.r", "x")


async def test_prices_come_along(site: Site) -> None:
    priced = {
        "recipe": "llamacpp",
        "checkpoints": {"main": "o/n:Q4_0"},
        "cost_tier": "high",
        "cost_input_per_million": 3,
    }
    site.world.write("user_models.json", {"priced": priced})
    document = {"version": "1", "recipe": "collection.router", "components": ["user.priced"]}
    rule = {"id": "all", "match": {"min_chars": 0}, "route_to": "priced", "outputs": {"reason": "why"}}
    routing = {"candidates": ["priced"], "default_model": "priced", "rules": [rule]}
    site.catalog.register({"model_name": "user.r", **document, "routing": routing})
    for _ in range(2):
        decision = (await site.router.route(site.catalog.find("user.r"), Facts())).decision
        assert decision.outputs == {
            "reason": "why",
            "estimated_cost": {"cost_tier": "high", "cost_input_per_million": 3},
        }


async def test_helpers_stay_as_long_as_a_policy_needs_them(site: Site) -> None:
    asks = {"id": "r", "match": {"classifier": "c", "label": "a"}, "route_to": BIG}
    name = site.register("r", asks, classifiers=[{"id": "c", **ASK}])
    site.router.refresh()
    assert site.residency.kept == {f"builtin.{JUDGE}"}
    await site.catalog.delete(site.catalog.find(name))
    site.router.refresh()
    assert site.residency.kept == frozenset()
