"""The models that a collection brings along."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from lemonade.catalog.bundles import unbundle
from lemonade.residency.policy import UNLIMITED

if TYPE_CHECKING:
    from lemonade.api.services import Services
    from lemonade.hub.job import Parts
    from lemonade.model import Model


def parts_of(services: Services, collection: Model) -> Parts | None:
    """What a download of `collection` has to bring; None for a model that is none.

    What its manifest describes and is not here is defined, once the manifest is.
    """
    if not collection.is_collection:
        return None

    async def parts() -> list[Model]:
        catalog = services.catalog
        catalog.changed()
        if described := catalog.manifest(collection):
            catalog.register_all(unbundle({**described, "source": collection.registry}, catalog.lookup)[:-1], keep=True)
        return [catalog.find(name) for name in catalog.find(collection.canonical).components]

    return parts


def loaded_together(services: Services, components: Iterable[Model]) -> list[Model]:
    """Those models of a collection that are loaded for it, the first ones of a type that has no room for all.

    Loading more would only push out what was loaded just before, at every request anew.
    """
    limit = services.settings["max_loaded_models"]
    chosen: list[Model] = []
    for model in components:
        if model.recipe == "cloud" or model.is_collection or "on-demand" in model.labels:
            continue
        if limit == UNLIMITED or sum(other.type == model.type for other in chosen) < limit:
            chosen.append(model)
    return chosen
