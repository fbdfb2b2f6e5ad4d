"""`GET /v1/system-info` and `GET /v1/system-stats`: the machine, its engines, and how busy it is."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import Exchange
from lemonade.api.lemonade import cloud
from lemonade.api.services import Services
from lemonade.catalog.recipes import RECIPES, Option, Recipe
from lemonade.engines.engine import Backend, Build, Wheels
from lemonade.errors import RequestError
from lemonade.model import MODEL_TYPES
from lemonade.system.hardware import GIB, GPU, Hardware

#: What people call a recipe, and what it makes, by its first mode.
NAMES = {
    "llamacpp": "llama.cpp",
    "sd-cpp": "stable-diffusion.cpp",
    "whispercpp": "whisper.cpp",
    "fasterwhisper": "faster-whisper",
    "flm": "FastFlowLM",
}
MODALITIES = {
    "chat": "Text generation",
    "transcription": "Speech to text",
    "image": "Image generation",
    "tts": "Text to speech",
    "audio-generation": "Audio generation",
    "classification": "Classification",
    "3d": "3D generation",
}
TYPE_NAMES = {"int": "SIZE", "number": "NUMBER", "string": "TEXT", "bool": "FLAG", "bool?": "FLAG", "pixels": "SIZE"}


class SystemInfo(msgspec.Struct):
    """The machine and what runs on it. Sizes are in bytes unless a name says otherwise."""

    os_version: Annotated[str, Meta(description="The operating system.")] = msgspec.field(name="OS Version")
    processor: Annotated[str, Meta(description="The processor's name.")] = msgspec.field(name="Processor")
    memory: Annotated[str, Meta(description="RAM, such as `32.0 GB`.")] = msgspec.field(name="Physical Memory")
    model_storage: Annotated[
        dict[str, Any],
        Meta(description="The disk of the model cache: `path`, `used_bytes`, `total_bytes`, `free_bytes`."),
    ]
    devices: Annotated[
        dict[str, Any], Meta(description="What can compute: `cpu`, `amd_gpu`, `nvidia_gpu`, `intel_gpu`, `amd_npu`, …")
    ]
    recipes: Annotated[
        dict[str, Any],
        Meta(description="By recipe: its `backends` with state, message and `action`, its `options`, and more."),
    ]
    unavailable_recipes: Annotated[
        list[str], Meta(description="Recipes of which every model is too large for this machine.")
    ]
    no_fetch_executables: Annotated[bool, Meta(description="The setting: whether engines are never downloaded.")]
    cloud: Annotated[
        dict[str, Any], Meta(description="`providers`: as `GET /v1/cloud` lists them, with `env_var` and `warnings`.")
    ]


async def system_info(exchange: Exchange, body: None) -> None:
    services = exchange.services
    # The model cache may lie on a disk of another machine, and take its time.
    storage = await asyncio.to_thread(_storage, services.store.models)
    await exchange.json(describe(services, storage))


def describe(services: Services, storage: dict[str, Any]) -> dict[str, Any]:
    hardware = services.hardware
    return {
        "OS Version": hardware.os_version,
        "Processor": hardware.processor,
        "Physical Memory": f"{hardware.memory / GIB:.1f} GB",
        "model_storage": storage,
        "devices": _devices(hardware),
        "recipes": {name: _recipe(services, recipe) for name, recipe in RECIPES.items() if name != "cloud"},
        "unavailable_recipes": services.catalog.unavailable_recipes(),
        "no_fetch_executables": services.settings["no_fetch_executables"],
        "cloud": {"providers": [cloud.flat(services, provider) for provider in services.providers.all()]},
    }


def _storage(models: Path) -> dict[str, Any]:
    """The disk of a folder that may not exist yet."""
    place = models
    while not place.exists() and place != place.parent:
        place = place.parent
    try:
        usage = shutil.disk_usage(place)
    except OSError as error:
        unknown = dict.fromkeys(("used_bytes", "total_bytes", "free_bytes"))
        return {"path": str(models), **unknown, "error": error.strerror or str(error)}
    sizes = {"used_bytes": usage.used, "total_bytes": usage.total, "free_bytes": usage.free}
    return {"path": str(models), **sizes}


def _devices(hardware: Hardware) -> dict[str, Any]:
    def of(vendor: str) -> list[dict[str, Any]]:
        return [_gpu(gpu) for gpu in hardware.gpus if gpu.vendor == vendor]

    found: dict[str, Any] = {
        "cpu": {
            "name": hardware.processor,
            "cores": hardware.cores,
            "threads": hardware.threads,
            "available": True,
            "family": hardware.arch,
        },
        "amd_gpu": of("amd"),
        "nvidia_gpu": of("nvidia"),
        "intel_gpu": of("intel"),
        "amd_npu": {"name": "", "available": False, "family": "", "error": "NPUs are not looked for."},
    }
    if apple := of("apple"):
        found["metal"] = apple[0]
    return found


def _gpu(gpu: GPU) -> dict[str, Any]:
    shown: dict[str, Any] = {"name": gpu.name, "available": True, "integrated": gpu.integrated, "family": gpu.vendor}
    if gpu.vram:
        shown["vram_gb"] = round(gpu.vram / GIB, 1)
    if gpu.shared:
        shown["virtual_mem_gb"] = round(gpu.shared / GIB, 1)
    return shown


def _recipe(services: Services, recipe: Recipe) -> dict[str, Any]:
    name = recipe.name
    engine = next((one for one in services.engines.all() if one.recipe == name), None)
    backends = engine.backends() if engine is not None else []
    default = services.engines.preferred(name)
    shown: dict[str, Any] = {"default_backend": default} if default else {}
    if engine is None:
        shown["message"] = services.engines.unsupported(name)
    return shown | {
        "backends": {one.name: _backend(services, name, one) for one in backends},
        "order": list(RECIPES).index(name),
        "display_name": NAMES.get(name, name),
        "web_display_name": NAMES.get(name, name),
        "selectable_backend": f"{name}_backend" in recipe.options,
        "uses_ctx_size": recipe.uses_context_size,
        "modality": MODALITIES[recipe.modes[0]],
        "types": [MODEL_TYPES[mode] for mode in recipe.modes],
        "experimental": False,
        "slot_policy": "standard",
        "support": [{"backend": one.name, "devices": list(one.devices)} for one in backends],
        "options": [_option(recipe, key, option) for key, option in recipe.options.items()],
    }


def _backend(services: Services, recipe: str, backend: Backend) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "state": backend.state,
        "message": backend.message,
        "action": backend.action,
        "devices": list(backend.devices) if backend.state != "unsupported" else [],
    }
    if backend.version:
        shown["version"] = backend.version
    if backend.is_fetched:
        shown["can_uninstall"] = True
    try:
        build = services.engines.build(recipe, backend.name)
    except RequestError:
        build = None
    return shown | (_release(build) if build is not None else {})


def _release(build: Build | Wheels) -> dict[str, Any]:
    from lemonade.hub.releases import ENDPOINT, choose

    if isinstance(build, Wheels):
        return {"download_filename": build.packages[0]}
    names = choose(build.files, build.tag, list(build.hashes))
    page = f"{ENDPOINT}/{build.repository}/releases"
    shown = {"release_url": page if build.tag == "latest" else f"{page}/tag/{build.tag}"}
    return shown | ({"download_filename": names[0]} if names else {})


def _option(recipe: Recipe, key: str, option: Option) -> dict[str, Any]:
    flag = key.removesuffix("_backend").replace("_", "-")
    return {
        "name": key,
        "cli_flag": f"--{flag}",
        "default": option.default,
        "type_name": "BACKEND" if key.endswith("_backend") else TYPE_NAMES[option.kind],
        "help": option.about,
        "group": f"{NAMES.get(recipe.name, recipe.name)} options",
    }


async def system_stats(exchange: Exchange, body: None) -> None:
    await exchange.json(exchange.services.usage.now())


class SystemStats(msgspec.Struct):
    """How busy the machine is; `null` for what it does not tell."""

    cpu_percent: Annotated[float | None, Meta(description="Share of all processors, from 0 to 100.")]
    memory_gb: Annotated[float, Meta(description="Memory in use, in units of 2**30 bytes.")]
    gpu_percent: Annotated[float | None, Meta(description="Share of the busiest GPU.")]
    vram_gb: Annotated[float | None, Meta(description="GPU memory in use.")]
    npu_percent: Annotated[float | None, Meta(description="Share of the NPU.")]


SYSTEM_INFO = Endpoint(
    id="lemonade.system_info",
    method="GET",
    path="/system-info",
    summary="Read what this machine is, and which engines it has",
    description=(
        "A backend's `state` is `installed`; `update_required` (it runs, and is not the version that is wanted); "
        "`installable` (after the command in `action`); or `unsupported`, and `message` says why."
    ),
    response=SystemInfo,
    handler=system_info,
)
SYSTEM_STATS = Endpoint(
    id="lemonade.system_stats",
    method="GET",
    path="/system-stats",
    summary="Read how busy the machine is",
    response=SystemStats,
    handler=system_stats,
)
