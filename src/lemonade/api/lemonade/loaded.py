"""Which model a request means that need not name one."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemonade.errors import RequestError, UnsupportedOperation

if TYPE_CHECKING:
    from lemonade.api.services import Services
    from lemonade.model import Model


def chosen(services: Services, name: str | None, purpose: str) -> Model:
    """The model of that name, else the LLM in memory that was used last.

    Args:
        purpose: completes "No model loaded for …".

    Raises:
        ModelNotFound, ModelNotSupported: the name.
        RequestError: no name, and no LLM in memory.
        UnsupportedOperation: the model's engine is not llama.cpp.
    """
    if name:
        model = services.catalog.find(name)
    else:
        residents = [one for one in services.residency.residents() if one.model.type == "llm"]
        last = max(residents, key=lambda one: one.used, default=None)
        if last is None:
            raise RequestError(f"No model loaded for {purpose}; load one, or name it in 'model'.", param="model")
        model = last.model
    if model.recipe != "llamacpp":
        raise UnsupportedOperation(f"'{model.name}' runs on {model.recipe}, which cannot do this.", param="model")
    return model
