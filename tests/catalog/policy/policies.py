"""Policies for tests."""

from __future__ import annotations

from typing import Any

SMALL, BIG = "small", "big"


def policy(*rules: dict[str, Any], classifiers: list[dict[str, Any]] | None = None, **routing: Any) -> dict[str, Any]:
    """A document with two candidates and two helpers; the default is the small one."""
    made: dict[str, Any] = {"candidates": [SMALL, BIG], "default_model": SMALL, "rules": list(rules)}
    if classifiers is not None:
        made["classifiers"] = classifiers
    made.update(routing)
    return {
        "version": "1",
        "recipe": "collection.router",
        "components": [SMALL, BIG, "judge", "vectors"],
        "routing": made,
    }


def rule(match: Any, route_to: str = BIG, id: str = "r", **more: Any) -> dict[str, Any]:  # noqa: A002
    return {"id": id, "match": match, "route_to": route_to, **more}


LABELLED = {"id": "c", "type": "classifier", "model": "judge", "labels": ["yes", "no"], "default_label": "yes"}
ZERO_SHOT = {"id": "z", "type": "zero_shot", "model": "judge", "labels": ["yes", "no"]}
SIMILAR = {
    "id": "s",
    "type": "semantic_similarity",
    "model": "vectors",
    "reference_phrases": {"code": ["fix this bug"], "food": ["a good soup", "cake"]},
}
LLM = {"id": "l", "type": "llm", "model": "judge", "prompt": "Is it risky?", "labels": ["SAFE", "RISKY"]}
