"""What labels a model has, and which sets of labels describe a model that cannot exist."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from lemonade.catalog.recipes import RECIPES
from lemonade.errors import InvalidArgument
from lemonade.model import MODE_SYNONYMS, Model, deployment_mode

#: A capability of classifiers.
ZERO_SHOT = "zero-shot"

#: Fields of a registration that are labels in older clients. `embedding` and `reranking` claim a mode.
LEGACY_FLAGS = {
    "embedding": "embeddings",
    "reranking": "reranking",
    "reasoning": "reasoning",
    "vision": "vision",
}


UPSCALING, ON_DEMAND = "upscaling", "on-demand"


def refuse(name: str, recipe: str, labels: Iterable[str]) -> None:
    """Refuses labels that name a mode which the recipe does not serve, two different modes, or what only another does.

    Args:
        name: the model's name as the client wrote it, for the message.

    Raises:
        InvalidArgument: on `labels`.
    """
    labels = tuple(labels)
    first = ""
    for label in labels:
        mode = deployment_mode(label)
        if mode is None:
            continue
        if recipe in RECIPES and mode not in served(recipe, labels):
            modes = served(recipe, labels)
            offered = ", ".join(f"'{each}'" for each in modes)
            raise InvalidArgument(
                f"Model '{name}': recipe '{recipe}' cannot serve '{label}'. It serves {offered}. "
                f"Omit the label to deploy as '{modes[0]}'.",
                param="labels",
            )
        if first and MODE_SYNONYMS.get(first, first) != mode:
            raise InvalidArgument(
                f"Model '{name}': a model deploys in exactly one mode, but these labels name two: "
                f"'{first}' and '{label}'. Register one model per mode.",
                param="labels",
            )
        first = first or label
    mode = deployment_mode(first) if first else RECIPES[recipe].modes[0] if recipe in RECIPES else "classification"
    if ZERO_SHOT in labels and mode != "classification":
        raise InvalidArgument(
            f"Model '{name}': '{ZERO_SHOT}' is said of classifiers that take their labels from each request, but this "
            f"model deploys as '{mode}'. Leave the label out, or register it with recipe 'onnxruntime'.",
            param="labels",
        )


def served(recipe: str, labels: Iterable[str] = ()) -> tuple[str, ...]:
    """The deployment modes of a recipe. llama.cpp classifies only with a model that is made for it (`systemone`)."""
    modes = RECIPES[recipe].modes
    return (*modes, "classification") if recipe == "llamacpp" and "systemone" in labels else modes


def complete(recipe: str, labels: Iterable[str]) -> tuple[str, ...]:
    """The labels with the recipe's own ones added, and its default mode where none is named; without repeats."""
    result = list(dict.fromkeys(labels))
    if not any(deployment_mode(label) for label in result):
        result.append(RECIPES[recipe].modes[0] if recipe in RECIPES else "chat")
    if recipe in RECIPES:
        result += [label for label in RECIPES[recipe].labels if label not in result]
    if UPSCALING in result and ON_DEMAND not in result:
        # No server of theirs stays in memory, so that there is nothing to load.
        result.append(ON_DEMAND)
    return tuple(result)


def is_zero_shot(model: Model) -> bool:
    """Whether a classification model takes its labels from each request."""
    return "zero-shot" in model.labels or "systemone" in model.labels


def requested(definition: Mapping[str, Any]) -> list[str]:
    """The labels of a registration: the older flags first, then the list.

    Raises:
        InvalidArgument: a flag that is no boolean, or labels that are no array of strings.
    """
    result = []
    for flag, label in LEGACY_FLAGS.items():
        value = definition.get(flag)
        if value is not None and not isinstance(value, bool):
            raise InvalidArgument(f"'{flag}' must be true or false.", param=flag)
        if value:
            result.append(label)
    labels = definition.get("labels")
    if labels is None:
        return result
    if not isinstance(labels, list) or not all(isinstance(label, str) and label for label in labels):
        raise InvalidArgument("'labels' must be an array of non-empty strings.", param="labels")
    return list(dict.fromkeys(result + labels))
