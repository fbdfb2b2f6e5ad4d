"""Who has to go so that a model can come: pure functions over small values, without processes or clocks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from lemonade.errors import ResidencyConflict, SlotsPinned

#: Why a model is in memory: people and programs use it, or only a router needs it to decide.
ResidencyClass = Literal["standard", "routing_helper"]

#: Recipes that do not compute here. They are not counted and never evicted.
UNMETERED_RECIPES = frozenset({"cloud"})
#: NPU recipes of which models of different types share the device; any other recipe on an NPU needs all of it.
NPU_SHARING_RECIPES = frozenset({"flm"})
#: `max_loaded_models` that means no limit.
UNLIMITED = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Occupant:
    """One model that is in memory, comes in, or wants to.

    Attributes:
        key: the name that no other model has.
        name: the name in messages.
        type: `llm`, `embedding`, …
        device: `cpu`, `gpu` or `npu`.
        busy: it has leases, or is only now being started.
        leaving: it will be gone whatever is decided here.
        used: when it was last used, in seconds of any clock that only grows.
    """

    key: str
    name: str
    type: str
    recipe: str
    residency_class: ResidencyClass = "standard"
    device: str = "cpu"
    pinned: bool = False
    busy: bool = False
    leaving: bool = False
    used: float = 0.0

    @property
    def pool(self) -> str:
        """The pool in which it counts, as `/health` names it."""
        if self.recipe in UNMETERED_RECIPES:
            return "unmetered"
        if self.residency_class == "routing_helper":
            # A pool per model: helpers compete with nobody.
            return f"routing_helper/{self.type}/{self.key}"
        return f"standard/{self.type}"

    @property
    def claims(self) -> frozenset[str]:
        """What it needs a share of. Loads with a claim in common take their turns in order."""
        return frozenset({self.pool, "npu"} if self.device == "npu" else {self.pool})


def admit(wanted: Occupant, others: Sequence[Occupant], limit: int) -> list[str]:
    """The keys that must be gone before `wanted` may start; `[]` when it may start now.

    Args:
        others: everything else that is in memory or is being started.
        limit: models per pool, -1 for no limit.

    Raises:
        SlotsPinned: its pool is full of pinned models.
        ResidencyConflict: it would push a model off the NPU that a router needs, or the router's would push another.
    """
    obstacles = _npu_obstacles(wanted, others)
    pool = wanted.pool
    if pool == "unmetered" or limit == UNLIMITED:
        return obstacles
    rivals = [other for other in others if other.pool == pool]
    surplus = len(rivals) + 1 - limit
    if surplus <= 0:
        return obstacles
    candidates = sorted(
        (rival for rival in rivals if rival.leaving or not rival.pinned or rival.key in obstacles),
        key=lambda rival: (rival.key not in obstacles, not rival.leaving, rival.busy, rival.used),
    )
    if len(candidates) < surplus:
        pinned = ", ".join(f"'{rival.name}'" for rival in rivals if rival.pinned)
        raise SlotsPinned(
            f"No room for '{wanted.name}': every loaded model of type {wanted.type} is pinned ({pinned}). "
            "Unpin or unload one, or raise max_loaded_models.",
            requested=wanted.name,
        )
    return obstacles + [rival.key for rival in candidates[:surplus] if rival.key not in obstacles]


def _npu_obstacles(wanted: Occupant, others: Sequence[Occupant]) -> list[str]:
    if wanted.device != "npu":
        return []
    obstacles = []
    for other in others:
        if other.device != "npu":
            continue
        shares = wanted.recipe in NPU_SHARING_RECIPES and other.recipe in NPU_SHARING_RECIPES
        if shares and other.type != wanted.type:
            continue
        if "routing_helper" in (wanted.residency_class, other.residency_class) and not other.leaving:
            reason = f"the NPU holds one {wanted.type} model" if shares else "one of them needs the whole NPU"
            raise ResidencyConflict(
                f"Routing residency conflict: model '{wanted.name}' cannot coexist with resident model "
                f"'{other.name}' because {reason}.",
                requested=wanted.name,
            )
        obstacles.append(other.key)
    return obstacles


def room(wanted: Occupant, others: Iterable[Occupant]) -> list[str]:
    """Which models to stop after a start that failed for want of memory: all that nobody uses or has pinned."""
    return [
        other.key
        for other in others
        if not (other.busy or other.pinned or other.leaving or other.key == wanted.key or other.pool == "unmetered")
    ]


_MEMORY = re.compile(
    r"out of (device |host |gpu |video )?memory|out ?of ?memory|cannot allocate memory|not enough (device |gpu )?memory"
    r"|insufficient memory|(failed|unable) to (m?alloc|allocate|reserve)|bad_alloc|alloc\w* failed|memoryerror"
    r"|erroroutof(device|host)memory|failed to fit params|was killed by sigkill"
)
_MISSING = re.compile(r"no such file|does not exist|file not found|failed to open gguf")


def wants_memory(said: str) -> bool:
    """Whether a start failed for want of memory, by what the engine wrote and how it ended.

    The kernel ends a process that takes too much memory with SIGKILL, so an engine killed so while it loads counts.
    """
    text = said.lower()
    return _MEMORY.search(text) is not None and _MISSING.search(text) is None


#: Options that say how long a model stays, not how its process runs: a difference is no reason to start it anew.
KEEPING = frozenset({"pinned", "auto_evict", "auto_update", "evict_idle_timeout", "downsize_idle_timeout"}) | {
    "evict_weight_factor"
}


def same_process(asked: Mapping[str, Any], before: Mapping[str, Any], sized: Mapping[str, Any]) -> bool:
    """Whether a process started with `before` serves a load of `asked` as it is.

    Args:
        asked, before: resolved options; `ctx_size` may be -1 for automatic.
        sized: those that the process runs with, `ctx_size` being the real number.
    """
    for key in asked.keys() | before.keys():
        if key in KEEPING or asked.get(key) == before.get(key):
            continue
        if key == "ctx_size" and asked.get(key) == sized.get(key):
            continue
        return False
    return True


# Idle models and memory pressure, for those who switched `auto_evict` on.


@dataclass(frozen=True, slots=True, kw_only=True)
class Idler:
    """What is known of a model that may have to go because nobody uses it.

    Attributes:
        auto_evict: the option; None follows the setting of the same name.
        idle: seconds since its last use.
        full: it still holds its caches (state `ready`).
        evict_after, downsize_after: options `evict_idle_timeout`, `downsize_idle_timeout`, in seconds.
        load_seconds: how long its start took.
        weight: option `evict_weight_factor`; larger keeps longer.
    """

    key: str
    auto_evict: bool | None = None
    pinned: bool = False
    busy: bool = False
    leaving: bool = False
    idle: float = 0.0
    full: bool = True
    evict_after: float = 300
    downsize_after: float = 60
    load_seconds: float = 1.0
    weight: float = 1.0

    def may_go(self, everyone: bool) -> bool:
        allowed = everyone if self.auto_evict is None else self.auto_evict
        return allowed and not (self.pinned or self.busy or self.leaving)

    @property
    def score(self) -> float:
        """Highest goes first: long idle, quick to load again, of little weight."""
        weight = self.weight if self.weight > 0 else 1.0
        return self.idle / ((self.load_seconds if self.load_seconds > 0 else 1.0) * weight)


def idle_step(models: Iterable[Idler], everyone: bool) -> tuple[str | None, list[str]]:
    """One evaluation: the one model to unload, else None, and the models to downsize.

    Args:
        everyone: the setting `auto_evict`.
    """
    evict: Idler | None = None
    downsize = []
    for model in models:
        if not model.may_go(everyone):
            continue
        if model.idle >= model.evict_after:
            if evict is None or model.idle > evict.idle:
                evict = model
        elif model.full and model.idle >= model.downsize_after:
            downsize.append(model.key)
    return (evict.key if evict else None), downsize


def pressure_step(models: Iterable[Idler], usage: float, threshold: float) -> str | None:
    """The model to unload when `usage` (a share, 0 to 1) has reached `threshold`; else, or with no such model, None."""
    if usage < threshold:
        return None
    going = [model for model in models if model.may_go(True)]
    return max(going, key=lambda model: model.score).key if going else None
