"""`GET /metrics`: everything that is counted, for Prometheus (text format 0.0.4)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from lemonade import __version__
from lemonade.api.endpoint import ROOT, Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade.health import COUNTED_TYPES
from lemonade.errors import EngineError

if TYPE_CHECKING:
    from lemonade.api.services import Services
    from lemonade.residency.resident import Resident
    from lemonade.system.metrics import Metrics, ModelMetrics
    from lemonade.system.usage import Load

#: Seconds that an engine has for its own metrics.
SCRAPE_TIMEOUT = 1.0
#: Most bytes of an engine's metrics that are read.
MAX_SCRAPE = 256 * 1024

Number = int | float
Labels = Mapping[str, str]

#: Name, type, help, and the figure of one model that was asked something.
MODEL_FIGURES: tuple[tuple[str, str, str, Callable[[ModelMetrics], Number | None]], ...] = (
    ("input_tokens", "gauge", "Prompt tokens that the last request computed.", lambda m: m.last.input_tokens),
    ("output_tokens", "gauge", "Tokens that the last request generated.", lambda m: m.last.output_tokens),
    ("prompt_tokens", "gauge", "Tokens in the last prompt.", lambda m: m.last.prompt_tokens),
    ("cache_tokens", "gauge", "Tokens of the last prompt that were remembered.", lambda m: m.last.cache_tokens),
    (
        "time_to_first_token_seconds",
        "gauge",
        "Seconds that the last prompt took.",
        lambda m: m.last.time_to_first_token,
    ),
    ("tokens_per_second", "gauge", "Speed of the last answer.", lambda m: m.last.tokens_per_second),
    ("requests_total", "counter", "Requests to the model.", lambda m: m.totals.requests),
    ("failed_requests_total", "counter", "Requests that its engine failed.", lambda m: m.totals.failures),
    ("input_tokens_total", "counter", "Prompt tokens computed.", lambda m: m.totals.input_tokens),
    ("output_tokens_total", "counter", "Tokens generated.", lambda m: m.totals.output_tokens),
    ("prompt_tokens_total", "counter", "Tokens in prompts.", lambda m: m.totals.prompt_tokens),
    ("cache_tokens_total", "counter", "Tokens of prompts that were remembered.", lambda m: m.totals.cache_tokens),
)
#: The same for the whole daemon.
FIGURES: tuple[tuple[str, str, Callable[[Metrics], Number]], ...] = (
    ("requests_total", "Requests to all models.", lambda m: m.totals.requests),
    ("failed_requests_total", "Requests that an engine failed.", lambda m: m.totals.failures),
    ("input_tokens_total", "Prompt tokens computed.", lambda m: m.totals.input_tokens),
    ("output_tokens_total", "Tokens generated.", lambda m: m.totals.output_tokens),
    ("prompt_tokens_total", "Tokens in prompts.", lambda m: m.totals.prompt_tokens),
    ("cache_tokens_total", "Tokens of prompts that were remembered.", lambda m: m.totals.cache_tokens),
    ("routing_decisions_total", "Decisions of routers.", lambda m: m.routing_decisions),
    ("routing_switches_total", "Decisions that changed a conversation's model.", lambda m: m.routing_switches),
)

_SAMPLE = re.compile(r"^llamacpp:(?P<name>[a-zA-Z0-9_]+)(?:\{[^}]*\})?\s+(?P<value>\S+)")
_COMMENT = re.compile(r"^# (?P<kind>HELP|TYPE) llamacpp:(?P<name>[a-zA-Z0-9_]+) (?P<text>.*)$")


class Page:
    """Samples grouped by metric, each with its help and type before it."""

    def __init__(self) -> None:
        self._families: dict[str, tuple[str, str, list[str]]] = {}

    def add(self, name: str, kind: str, about: str, samples: Iterable[tuple[Labels, Number | str | None]]) -> None:
        """Adds to a metric, which begins with the first call; a sample without a value is left out."""
        lines = self._families.setdefault(name, (kind, about, []))[2]
        for labels, value in samples:
            if value is not None:
                told = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels.items()))
                lines.append(f"{name}{{{told}}} {value}" if told else f"{name} {value}")

    def text(self) -> str:
        lines = []
        for name, (kind, about, samples) in self._families.items():
            lines += [f"# HELP {name} {about}", f"# TYPE {name} {kind}", *samples]
        return "\n".join(lines) + "\n"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")


async def metrics(exchange: Exchange, body: None) -> None:
    page = Page()
    services = exchange.services
    residents = services.residency.residents()
    _daemon(page, services, residents)
    _models(page, services, residents)
    _machine(page, services.usage.now())
    scraped = await asyncio.gather(*(_scrape(one) for one in residents if one.model.recipe == "llamacpp"))
    for resident, text in zip((one for one in residents if one.model.recipe == "llamacpp"), scraped, strict=True):
        _relabel(page, text, _labels(services, resident.model.name, resident))
    media_type = b"text/plain; version=0.0.4; charset=utf-8"
    await exchange.reply(page.text().encode(), media_type=media_type)


def _daemon(page: Page, services: Services, residents: list[Resident]) -> None:
    page.add("lemonade_server_up", "gauge", "Whether the daemon runs.", [({}, 1)])
    page.add("lemonade_server_info", "gauge", "The daemon's version.", [({"version": __version__}, 1)])
    page.add("lemonade_loaded_models", "gauge", "Models in memory.", [({}, len(residents))])
    limit = services.settings["max_loaded_models"]
    limits = [({"type": kind}, limit) for kind in sorted(COUNTED_TYPES)]
    page.add("lemonade_max_loaded_models", "gauge", "Models of a type that are kept; -1 is no limit.", limits)
    for name, about, figure in FIGURES:
        page.add(f"lemonade_{name}", "counter", about, [({}, figure(services.metrics))])


def _models(page: Page, services: Services, residents: list[Resident]) -> None:
    loaded = {one.key: one for one in residents}
    asked = {one.model.canonical: one for one in services.metrics.models()}
    known = [(key, (asked.get(key) or loaded[key]).model) for key in sorted({*asked, *loaded})]
    labels = {key: _labels(services, model.name, loaded.get(key) or asked[key]) for key, model in known}
    about = "A model that was asked or is in memory."
    page.add("lemonade_model_info", "gauge", about, [(labels[key], 1) for key, _ in known])
    about = "Whether the model is in memory."
    page.add("lemonade_model_loaded", "gauge", about, [(labels[key], int(key in loaded)) for key, _ in known])
    for name, kind, about, figure in MODEL_FIGURES:
        samples = [(labels[key], figure(one)) for key, one in asked.items()]
        page.add(f"lemonade_model_{name}", kind, about, samples)


def _labels(services: Services, name: str, one: Resident | ModelMetrics) -> Labels:
    model = one.model
    return {
        "model_name": services.catalog.public_id(model) if services.catalog.lookup(model.canonical) else name,
        "checkpoint": model.checkpoint,
        "type": model.type,
        "device": one.device,
        "recipe": model.recipe,
    }


def _machine(page: Page, load: Load) -> None:
    for name, about, figure in (
        ("cpu_usage_percent", "Use of all processors.", load.cpu_percent),
        ("memory_used_gb", "Memory in use, in GiB.", load.memory_gb),
        ("gpu_usage_percent", "Use of the busiest GPU.", load.gpu_percent),
        ("vram_used_gb", "GPU memory in use, in GiB.", load.vram_gb),
        ("npu_usage_percent", "Use of the NPU.", load.npu_percent),
    ):
        if figure is not None:
            page.add(f"lemonade_{name}", "gauge", about, [({}, figure)])


async def _scrape(resident: Resident) -> str:
    """What an engine tells of itself; nothing when it does not answer in time."""
    try:
        async with asyncio.timeout(SCRAPE_TIMEOUT):
            reply = await resident.connection.request("GET", "/metrics")
            try:
                return (await reply.read(MAX_SCRAPE)).decode(errors="replace") if reply.status == 200 else ""
            finally:
                reply.close()
    except (EngineError, TimeoutError):
        return ""


def _relabel(page: Page, text: str, labels: Labels) -> None:
    """llama.cpp's samples under our prefix, with the model they belong to."""
    about: dict[str, str] = {}
    kinds: dict[str, str] = {}
    for line in text.splitlines():
        if comment := _COMMENT.match(line):
            (about if comment["kind"] == "HELP" else kinds)[comment["name"]] = comment["text"]
        elif sample := _SAMPLE.match(line):
            name = sample["name"]
            samples = [(labels, sample["value"])]
            page.add(f"lemonade_llamacpp_{name}", kinds.get(name, "untyped"), about.get(name, ""), samples)


METRICS = Endpoint(
    id="lemonade.metrics",
    method="GET",
    path="/metrics",
    prefixes=ROOT,
    summary="Read all counters, for Prometheus",
    description=(
        "Counters of the daemon and of each model, and as `lemonade_llamacpp_*` what each llama.cpp process counts."
    ),
    media_type="text/plain",
    handler=metrics,
)
