"""What the handlers work with; the composition root fills it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lemonade.api.openai.models import Listing
from lemonade.inference.realtime.transcriber import Transcriber
from lemonade.inference.routing.router import Router
from lemonade.inference.upscaling import Upscaling
from lemonade.system.logs import Ring
from lemonade.system.metrics import Metrics
from lemonade.system.usage import Usage

if TYPE_CHECKING:
    from lemonade.api.endpoint import Endpoint
    from lemonade.api.websocket import WebSocketEndpoint
    from lemonade.catalog.catalog import Catalog
    from lemonade.catalog.options import Options
    from lemonade.catalog.updates import Updates
    from lemonade.engines.cloud.providers import Providers
    from lemonade.engines.installer import Installer
    from lemonade.engines.table import Engines
    from lemonade.hub.downloads import Downloads
    from lemonade.hub.store import Store
    from lemonade.paths import Paths
    from lemonade.residency.manager import Residency
    from lemonade.settings import Settings
    from lemonade.system.hardware import Hardware


@dataclass(kw_only=True)
class Services:
    """The open services of one daemon, in the order in which they were opened."""

    paths: Paths
    settings: Settings
    store: Store
    catalog: Catalog
    options: Options
    downloads: Downloads
    updates: Updates
    engines: Engines
    installer: Installer
    hardware: Hardware
    residency: Residency
    providers: Providers
    #: Asks the daemon to stop, after the answer that is being given.
    stop: Callable[[], None]
    endpoints: tuple[Endpoint, ...] = ()
    sockets: tuple[WebSocketEndpoint, ...] = ()
    #: The port that answers beside the main one, or None.
    websocket_port: Callable[[], int | None] = lambda: None
    log: Ring = field(default_factory=Ring)
    metrics: Metrics = field(default_factory=Metrics)
    usage: Usage = field(default_factory=Usage)
    model_listing: Listing = field(default_factory=Listing)
    router: Router = field(init=False)
    upscaling: Upscaling = field(init=False)
    transcriber: Transcriber = field(init=False)

    def __post_init__(self) -> None:
        self.transcriber = Transcriber(self.residency, self.metrics)
        self.upscaling = Upscaling(self.engines, self.settings)
        self.router = Router(self.catalog, self.residency, self.providers, self.metrics)
