"""Every setting: its key, default, what it may hold, and what it means.

Keys and defaults are those of the original's configuration; `docs/` prints this table.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Check = Callable[[Any], str | None]
"""Answers None for an acceptable value, else what would be right ("must be …")."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One key.

    Attributes:
        default: the value when no layer says otherwise; None means unset.
        check: refuses a value with the reason.
        about: one sentence for people.
        settable: False for what only a dedicated route may change.
    """

    default: Any
    check: Check
    about: str
    settable: bool = True


def whole(low: int, high: int | None = None, *, also: tuple[Any, ...] = ()) -> Check:
    def check(value: Any) -> str | None:
        if value in also and not isinstance(value, bool):
            return None
        if isinstance(value, bool) or not isinstance(value, int) or value < low or (high is not None and value > high):
            limits = f"from {low} to {high}" if high is not None else f"of at least {low}"
            others = "".join(f" or {other!r}" for other in also)
            return f"must be a whole number {limits}{others}"
        return None

    return check


def number(low: float, high: float | None = None, *, above: bool = False) -> Check:
    def check(value: Any) -> str | None:
        good = isinstance(value, int | float) and not isinstance(value, bool)
        good = good and (value > low if above else value >= low) and (high is None or value <= high)
        limits = f"{'above' if above else 'of at least'} {low}" + (f" and at most {high}" if high is not None else "")
        return None if good else f"must be a number {limits}"

    return check


def flag(value: Any) -> str | None:
    return None if isinstance(value, bool) else "must be true or false"


def optional_flag(value: Any) -> str | None:
    return None if value is None or isinstance(value, bool) else "must be true, false or null"


def text(value: Any) -> str | None:
    return None if isinstance(value, str) else "must be a string"


def texts(value: Any) -> str | None:
    good = isinstance(value, list) and all(isinstance(item, str) for item in value)
    return None if good else "must be an array of strings"


def mapping(value: Any) -> str | None:
    return None if isinstance(value, dict) else "must be an object"


def providers(value: Any) -> str | None:
    """Cloud providers; what is in them is checked where they are used, but a key must not even be shown."""
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        return "must be an array of objects"
    for entry in value:
        for key in entry:
            if re.search(r"(?i)^(?!auth_header)\w*(key|token|secret|password)", str(key)):
                return f"must not hold a key ('{key}'): give it by the environment, or with `lemonade cloud auth`"
    return None


def choice(*allowed: str) -> Check:
    def check(value: Any) -> str | None:
        return None if value in allowed else "must be one of " + ", ".join(allowed)

    return check


def directory(value: Any) -> str | None:
    """Empty, or a directory that can be listed if it exists; one that does not exist yet is fine."""
    if not isinstance(value, str):
        return "must be a string"
    try:
        path = Path(value).expanduser()
        if value and path.exists():
            next(path.iterdir(), None)
    except (OSError, RuntimeError):  # RuntimeError: the home of somebody who is not there
        return "must be a directory that can be read"
    return None


def models_directory(value: Any) -> str | None:
    return None if value == "auto" else directory(value)


def build(value: Any) -> str | None:
    """Which build of a program is wanted: `builtin`, `latest`, a release tag, `TAG@sha256:HEX`, or a folder."""
    good = isinstance(value, str) and (
        value in ("", "builtin", "latest") or Path(value).is_absolute() or BUILD_TAG.match(value)
    )
    return None if good else "must be `builtin`, `latest`, a release tag, TAG@sha256:HEX, or an absolute folder"


#: A tag becomes a part of addresses and of file names.
BUILD_TAG = re.compile(
    r"^(?!.*\.\.)(?P<tag>[A-Za-z0-9][\w.+-]{0,63})(?:@sha256:(?P<sha256>[0-9a-fA-F]{64}))?\Z", re.ASCII
)

LOG_LEVELS = ("trace", "debug", "info", "warning", "error", "fatal", "none")

SETTINGS: dict[str, Setting] = {
    "port": Setting(13305, whole(1, 65535), "TCP port of the API."),
    "host": Setting("localhost", text, "Address to listen on; `localhost` means IPv4 and IPv6 loopback."),
    "websocket_port": Setting(
        "auto", whole(0, 65535, also=("auto",)), "Second port for WebSockets; `auto` and 0 take one that is free."
    ),
    "log_level": Setting("info", choice(*LOG_LEVELS), "How much is logged."),
    "global_timeout": Setting(600, whole(1), "Seconds an engine may take to become ready."),
    "max_loaded_models": Setting(1, whole(1, also=(-1,)), "Models per type kept in memory; -1 is no limit."),
    "max_queued_requests": Setting(256, whole(0), "Requests per model that may wait for it; more get 429."),
    "ctx_size": Setting(-1, whole(-1, 2**31 - 1), "Context size in tokens; -1 sizes it to the model and the memory."),
    "broadcast": Setting(False, flag, "Announce the daemon on the local network."),
    "models_dir": Setting("auto", models_directory, "Model cache; `auto` is the Hugging Face cache."),
    "extra_models_dir": Setting("", directory, "Folder whose GGUF files are offered as `extra.` models."),
    "default_model_source": Setting(
        "huggingface", choice("huggingface", "modelscope"), "Where a checkpoint comes from."
    ),
    "offline": Setting(False, flag, "Make no network call at all."),
    "auto_check_model_updates": Setting(False, flag, "Look for newer files of downloaded models, once a day."),
    "no_fetch_executables": Setting(False, flag, "Never download an engine."),
    "disable_model_filtering": Setting(False, flag, "Also offer models that this machine cannot run."),
    "enable_dgpu_gtt": Setting(False, flag, "Count shared memory of discrete GPUs."),
    "inhibit_suspend": Setting(True, flag, "Keep the machine awake while a model answers."),
    "allowed_origins": Setting("", text, "Web origins that may call the API, comma separated; `*` is all."),
    "allowed_hosts": Setting("", text, "Host names under which the API may be addressed, comma separated."),
    "allow_remote_images": Setting(False, flag, "Fetch http(s) pictures named in chat messages."),
    "rocm_channel": Setting("stable", choice("stable", "nightly"), "Which ROCm builds to use."),
    "rocm_install_method": Setting("auto", choice("auto", "wheel", "tarball"), "How ROCm is installed."),
    "auto_evict": Setting(None, optional_flag, "Unload idle models, and models under memory pressure."),
    "auto_evict_threshold_pct": Setting(0.90, number(0, 1, above=True), "Share of memory in use that is pressure."),
    "config_version": Setting(2, whole(1), "Version of this file.", settable=False),
    "cloud_providers": Setting(
        [], providers, "Cloud providers, as `lemonade cloud install` keeps them; never with their keys.", settable=False
    ),
    "telemetry.enabled": Setting(False, flag, "Record spans."),
    "telemetry.hide_inputs": Setting(False, flag, "Leave prompts out of spans."),
    "telemetry.hide_outputs": Setting(False, flag, "Leave answers out of spans."),
    "telemetry.hide_thinking": Setting(False, flag, "Leave reasoning out of spans."),
    "telemetry.trust_incoming_trace_context": Setting(False, flag, "Continue a caller's trace."),
    "telemetry.max_queue_capacity": Setting(1000, whole(1), "Spans kept until they are sent."),
    "telemetry.max_attribute_length": Setting(4096, whole(1), "Longest attribute of a span, in characters."),
    "telemetry.otlp.endpoint": Setting("http://localhost:4318/v1/traces", text, "Where spans go."),
    "telemetry.otlp.protocol": Setting("http/protobuf", choice("http/protobuf", "http/json"), "Encoding of spans."),
    "telemetry.otlp.semantics": Setting(["openinference", "otel_genai"], texts, "Names of attributes."),
    "telemetry.otlp.headers": Setting({}, mapping, "Headers sent with spans."),
    "telemetry.otlp.max_retries": Setting(0, whole(0), "Repeats of a failed send."),
    "telemetry.otlp.retry_backoff_base_s": Setting(5.0, number(0), "Seconds before the first repeat."),
    "telemetry.otlp.send_batch_size": Setting(100, whole(1), "Spans per send."),
    "telemetry.otlp.batch_timeout_s": Setting(1.0, number(0), "Longest wait for a full batch, in seconds."),
    "telemetry.session.headers.id": Setting([], texts, "Request headers that carry a session id."),
    "telemetry.session.headers.client": Setting([], texts, "Request headers that carry a client id."),
}


#: Engines whose programs are the user's own.
_UNFETCHED = ("openmoss", "sdcpp")


def _engine(section: str, backend: bool, args: tuple[str, ...], programs: tuple[str, ...], **more: Setting) -> None:
    if backend:
        SETTINGS[f"{section}.backend"] = Setting("auto", text, f"Backend of {section}; `auto` takes the best one here.")
    for name in args:
        SETTINGS[f"{section}.{name}"] = Setting("", text, "Arguments for the engine's command line.")
    about = "`builtin`, `latest`, a release tag (also `TAG@sha256:HEX`), or a folder with the program."
    if section in _UNFETCHED:
        about = "A folder with the program; no builds are fetched, so that `latest` and release tags are as `builtin`."
    for name in programs:
        SETTINGS[f"{section}.{name}"] = Setting("builtin", build, about)
    for name, setting in more.items():
        SETTINGS[f"{section}.{name}"] = setting


_engine(
    "llamacpp",
    True,
    ("args", "cpu_args", "system_args", "vulkan_args", "rocm_args", "cuda_args", "metal_args"),
    ("cpu_bin", "vulkan_bin", "rocm_bin", "cuda_bin", "metal_bin"),
    prefer_system=Setting(False, flag, "Prefer a `llama-server` from PATH to the bundled engine."),
    device=Setting("", text, "Device for llama.cpp, as its `--device` takes it."),
)
_engine("whispercpp", True, ("args", "cpu_args", "npu_args"), ("cpu_bin", "npu_bin"))
_engine(
    "sdcpp",
    True,
    ("args", "cpu_args", "rocm_args", "vulkan_args", "cuda_args"),
    ("cpu_bin", "rocm_bin", "vulkan_bin", "cuda_bin"),
    steps=Setting(20, whole(1), "Steps per picture."),
    cfg_scale=Setting(7.0, number(0), "Guidance scale."),
    width=Setting(512, whole(1), "Width of a picture in pixels."),
    height=Setting(512, whole(1), "Height of a picture in pixels."),
)
_engine("flm", False, ("args",), (), prefer_system=Setting(False, flag, "Prefer an `flm` from PATH."))
_engine("ryzenai", False, (), ("server_bin",))
_engine("kokoro", False, (), ("cpu_bin",))
_engine("moonshine", False, ("args", "cpu_args"), ("cpu_bin",))
_engine("fasterwhisper", False, ("args", "cpu_args"), ())
_engine("onnxruntime", False, ("args", "cpu_args"), ("cpu_bin",))
_engine("vllm", True, ("args",), ())
for _section in ("acestep", "thinksound", "openmoss"):
    _engine(_section, True, (), ("vulkan_bin", "rocm_bin", "cuda_bin"))
_engine("trellis", True, ("args",), ("vulkan_bin", "rocm_bin", "cuda_bin"))
_engine(
    "thenoise",
    True,
    (),
    (),
    lora_dir=Setting("", directory, "Folder with LoRA files."),
    upscaler_dir=Setting("", directory, "Folder with upscalers."),
)

#: First parts of dotted keys; a flat key such as `llamacpp_backend` is read as `llamacpp.backend`.
SECTIONS = frozenset(key.split(".")[0] for key in SETTINGS if "." in key)
