"""Collections that bring the definitions of their models along, as an exported one does."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lemonade.catalog.registration import PERSISTED
from lemonade.errors import InvalidArgument
from lemonade.model import Model

#: What is read of a component's definition; an exported model object has more.
_READ = (*PERSISTED, "labels", "embedding", "reranking", "reasoning", "vision")


def unbundle(definition: Mapping[str, Any], find: Callable[[str], Model | None]) -> list[dict[str, Any]]:
    """The definitions to register for a collection, its own the last.

    A component that is here already stays as it is, whatever the bundle says of it.

    Args:
        definition: `components`, and in `models` the objects of those that may not be here.
        find: the model of a name, or None.

    Raises:
        InvalidArgument: a component is neither here nor usable as it is described.
    """
    components, models = definition.get("components"), definition.get("models")
    if not isinstance(components, list) or not all(isinstance(name, str) and name for name in components):
        raise InvalidArgument("'components' must be an array of non-empty strings.", param="components")
    if not isinstance(models, list) or not all(isinstance(each, dict) for each in models):
        raise InvalidArgument("'models' must be an array of model objects.", param="models")
    described = {_name(each): each for each in models}
    found: list[dict[str, Any]] = []
    names = []
    for component in components:
        if find(component) is not None:
            names.append(component)
            continue
        bare = component.removeprefix("user.")
        if bare not in described:
            raise InvalidArgument(
                f"The component '{component}' is not here, and 'models' does not describe it.", param="models"
            )
        found.append(_definition(bare, described[bare], definition))
        names.append(f"user.{bare}")
    own = {key: value for key, value in definition.items() if key != "models"}
    return [*found, {**own, "components": names}]


def _name(description: Mapping[str, Any]) -> str:
    name = description.get("model_name") or description.get("id")
    if not isinstance(name, str) or not name:
        raise InvalidArgument("Each of 'models' needs a string `model_name` or `id`.", param="models")
    return name.removeprefix("user.")


def _definition(bare: str, description: Mapping[str, Any], collection: Mapping[str, Any]) -> dict[str, Any]:
    known = {key: description[key] for key in _READ if description.get(key) is not None}
    main = known.get("checkpoint") or (known.get("checkpoints") or {}).get("main")
    if not known.get("recipe") or not main:
        raise InvalidArgument(f"'models' describes '{bare}' without a recipe or a checkpoint.", param="models")
    if str(known["recipe"]).startswith("collection."):
        raise InvalidArgument(f"'{bare}' is a collection; a collection holds models.", param="models")
    if not known.get("source") and not known.get("registry_source") and collection.get("source"):
        known["source"] = collection["source"]
    known.pop("components", None)
    return {**known, "model_name": f"user.{bare}"}
