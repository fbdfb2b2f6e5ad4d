"""Every endpoint of the daemon, and every WebSocket."""

from __future__ import annotations

from lemonade.api.anthropic import COUNT_TOKENS, MESSAGES
from lemonade.api.endpoint import Endpoint
from lemonade.api.lemonade.aliases import ADD_ALIAS, ALIASES, REMOVE_ALIAS
from lemonade.api.lemonade.backends import DRY_RUN, INSTALL, UNINSTALL
from lemonade.api.lemonade.cache import CLEANUP
from lemonade.api.lemonade.classify import CLASSIFY
from lemonade.api.lemonade.cloud import AUTH, CLEAR, PROVIDERS
from lemonade.api.lemonade.configuration import (
    CONFIG,
    CONFIG_DEFAULTS,
    LOG_LEVEL,
    PARAMS,
    SET,
    SET_PARAMS,
    SHUTDOWN,
)
from lemonade.api.lemonade.deletion import DELETE
from lemonade.api.lemonade.downloads import CONTROL, DOWNLOADS
from lemonade.api.lemonade.health import HEALTH
from lemonade.api.lemonade.live import LIVE
from lemonade.api.lemonade.logs_stream import LOGS_STREAM
from lemonade.api.lemonade.memory import SIMULATE_PRESSURE
from lemonade.api.lemonade.metrics import METRICS
from lemonade.api.lemonade.pull import PULL
from lemonade.api.lemonade.registration import REGISTER
from lemonade.api.lemonade.rerank import RERANK, RERANKER, RERANKING
from lemonade.api.lemonade.residency import LOAD, PIN, UNLOAD
from lemonade.api.lemonade.routing import VALIDATE
from lemonade.api.lemonade.search import SEARCH
from lemonade.api.lemonade.slots import SLOT, SLOTS
from lemonade.api.lemonade.stats import STATS
from lemonade.api.lemonade.system import SYSTEM_INFO, SYSTEM_STATS
from lemonade.api.lemonade.tokenize import TOKENIZE
from lemonade.api.lemonade.updates import CHECK_UPDATES
from lemonade.api.lemonade.upscale import UPSCALE
from lemonade.api.lemonade.variants import VARIANTS
from lemonade.api.meta import DOCS, OPENAPI
from lemonade.api.openai.chat import CHAT_COMPLETIONS
from lemonade.api.openai.completions import COMPLETIONS
from lemonade.api.openai.embeddings import EMBEDDINGS
from lemonade.api.openai.files import FILES
from lemonade.api.openai.images import EDITS, GENERATIONS, VARIATIONS
from lemonade.api.openai.models import MODEL, MODELS
from lemonade.api.openai.options import FORGET_OPTIONS, OPTIONS, SAVE_OPTIONS
from lemonade.api.openai.realtime import REALTIME
from lemonade.api.openai.responses import RESPONSES
from lemonade.api.openai.speech import SPEECH, VOICES
from lemonade.api.openai.transcriptions import TRANSCRIPTIONS, TRANSLATIONS
from lemonade.api.websocket import WebSocketEndpoint

ENDPOINTS: tuple[Endpoint, ...] = (
    CHAT_COMPLETIONS,
    COMPLETIONS,
    EMBEDDINGS,
    RESPONSES,
    TRANSCRIPTIONS,
    TRANSLATIONS,
    SPEECH,
    VOICES,
    MESSAGES,
    COUNT_TOKENS,
    GENERATIONS,
    EDITS,
    VARIATIONS,
    UPSCALE,
    MODELS,
    MODEL,
    FILES,
    OPTIONS,
    SAVE_OPTIONS,
    FORGET_OPTIONS,
    RERANK,
    RERANKING,
    RERANKER,
    CLASSIFY,
    VALIDATE,
    TOKENIZE,
    SLOTS,
    SLOT,
    STATS,
    METRICS,
    LIVE,
    HEALTH,
    LOAD,
    UNLOAD,
    PULL,
    VARIANTS,
    SEARCH,
    REGISTER,
    CHECK_UPDATES,
    DOWNLOADS,
    CONTROL,
    DELETE,
    INSTALL,
    UNINSTALL,
    DRY_RUN,
    PROVIDERS,
    AUTH,
    CLEAR,
    SYSTEM_INFO,
    SYSTEM_STATS,
    PARAMS,
    SET_PARAMS,
    LOG_LEVEL,
    PIN,
    ALIASES,
    ADD_ALIAS,
    REMOVE_ALIAS,
    CLEANUP,
    SIMULATE_PRESSURE,
    SET,
    CONFIG,
    CONFIG_DEFAULTS,
    SHUTDOWN,
    OPENAPI,
    DOCS,
)

SOCKETS: tuple[WebSocketEndpoint, ...] = (REALTIME, LOGS_STREAM)
