"""Every endpoint of the daemon."""

from __future__ import annotations

from lemonade.api.endpoint import Endpoint
from lemonade.api.lemonade.configuration import CONFIG, CONFIG_DEFAULTS, SET, SHUTDOWN
from lemonade.api.lemonade.health import HEALTH
from lemonade.api.lemonade.live import LIVE
from lemonade.api.lemonade.pull import DELETE, PULL
from lemonade.api.lemonade.residency import LOAD, PIN, UNLOAD
from lemonade.api.meta import DOCS, OPENAPI
from lemonade.api.openai.chat import CHAT_COMPLETIONS
from lemonade.api.openai.models import MODEL, MODELS

ENDPOINTS: tuple[Endpoint, ...] = (
    CHAT_COMPLETIONS,
    MODELS,
    MODEL,
    LIVE,
    HEALTH,
    LOAD,
    UNLOAD,
    PULL,
    DELETE,
    PIN,
    SET,
    CONFIG,
    CONFIG_DEFAULTS,
    SHUTDOWN,
    OPENAPI,
    DOCS,
)
