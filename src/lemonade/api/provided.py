"""Models of cloud providers at the endpoints for text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lemonade.api.endpoint import ErrorRow
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_request import CloudRequest

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange
    from lemonade.api.services import Services
    from lemonade.inference.relay import Check, Sink
    from lemonade.model import Model

PROVIDER_ERRORS = (
    ErrorRow(400, "unsupported_operation", "Cloud models: the provider has no such API."),
    ErrorRow(502, "provider_unreachable", "Cloud models: the provider cannot be reached; 503 while it is left alone."),
)


async def find(services: Services, name: str) -> Model:
    """The model of a name, as of the catalog. Right after a start, the list of its provider is waited for.

    Raises:
        ModelNotFound, ModelNotSupported: as `Catalog.find`.
    """
    await services.providers.settle(services.catalog.aliases.target(name) or name)
    return services.catalog.find(name)


async def at_provider(
    exchange: Exchange, model: Model, name: str, sink: Sink, path: str, *, stream: bool, check: Check
) -> bool:
    """Whether a provider runs the model; if so, it has answered now.

    Args:
        name: the model in the answer.
        path: of the provider's API, such as `chat/completions`.
        check: as of an `EngineRequest`.
    """
    if model.recipe != "cloud":
        return False
    services = exchange.services
    request = CloudRequest(path=path, body=exchange.raw, asked=name, stream=stream, check=check)
    await forward_cloud(services.providers, model, request, sink, services.metrics, tell=exchange.add_header)
    return True
