"""The recipe `llamacpp`: text, embeddings, reranking and pictures in chats, by llama.cpp's server."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from lemonade.engines.backends import find_program, installed_version, physical_cores
from lemonade.engines.choice import choose, unknown
from lemonade.engines.engine import Backend, Build, Launch
from lemonade.engines.llamacpp import decisions
from lemonade.engines.llamacpp.arguments import mentions, number, parse, refuse_reserved, split
from lemonade.engines.llamacpp.builds import BACKENDS
from lemonade.engines.llamacpp.native import PROGRAM, Native
from lemonade.engines.programs import Programs
from lemonade.engines.words import MAX_INT
from lemonade.errors import InvalidArgument, ModelLoadError
from lemonade.model import Model
from lemonade.settings import Settings
from lemonade.system.hardware import Hardware

LIBRARY = "xllamacpp"
#: Tokens that an embedding model's context has at least. Source: the specification.
EMBEDDING_CONTEXT = 8192
#: Tokens of one text that an embedding or reranking model can take: they are computed in a single batch, for which
#: llama.cpp's default of 512 is too short.
EMBEDDING_BATCH = 2048
#: Tokens of a prompt after which llama.cpp looks whether its client is still there. On a CPU a batch is computed in
#: pieces of 512 anyway, so larger ones only make a request that was given up hold the engine for longer.
CPU_BATCH = 512

#: Slots share one context, of which each may take the whole: else llama.cpp would give each of N an N-th of it.
SHARED = "--kv-unified"
SHARED_VARIABLE = "LLAMA_ARG_KV_UNIFIED"

#: Conversations that left their slot are kept in memory, by llama.cpp's default as much of them as 8 GiB hold. Here it
#: is that share of the machine's memory, for the context was sized to what is free.
KEPT = "--cache-ram"
KEPT_VARIABLE = "LLAMA_ARG_CACHE_RAM"
KEPT_SHARE = 1 / 16
KEPT_LIMIT = 8192

#: How long the bundled engine's threads wait for each other by spinning, in turns of GNU's OpenMP. Its own default is
#: some milliseconds, which are lost again and again where other programs want the processor, too: a tenth of the speed
#: is left. So many turns suffice while the other threads do run. Source: measured, from none to the default.
SPIN = ("GOMP_SPINCOUNT", "1000")
SPIN_VARIABLES = ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY")

#: An assertion that fails in llama.cpp is its last word: else a debugger writes pages behind it, for seconds.
QUIET_DEATH = {"GGML_NO_BACKTRACE": "1"}


class LlamaCpp:
    """llama.cpp as a library in a Python child (`cpu`, on Apple's chips `metal`), a `llama-server` on PATH
    (`system`), or one that was fetched (`cuda`, `rocm`, `vulkan`; the others too, if a setting says so)."""

    recipe = "llamacpp"

    def __init__(self, settings: Settings, programs: Programs | None = None, hardware: Hardware | None = None) -> None:
        self._settings = settings
        self._hardware = hardware or Hardware.detect()
        self._native = Native(settings, programs, self._hardware)

    def backends(self) -> list[Backend]:
        """What was fetched comes first, as somebody wanted it; `system` before it if `llamacpp.prefer_system` is set,
        else after what is bundled."""
        program = find_program(PROGRAM)
        system = Backend(
            name="system",
            devices=("gpu", "cpu"),
            state="installed" if program else "unsupported",
            message="" if program else f"There is no {PROGRAM} on PATH.",
        )
        bundled = [self._bundled(name, device) for name, device in _bundled()]
        names = {backend.name for backend in bundled}
        native = [self._native.backend(name) for name in BACKENDS if name not in names]
        if self._settings["llamacpp.prefer_system"]:
            return [system, *native, *bundled]
        return [*native, *bundled, system]

    def build(self, backend: str, arch: str = "") -> Build | None:
        """As `engine.Fetched` has it."""
        if backend not in [one.name for one in self.backends()]:
            raise unknown(self.backends(), backend, recipe="llamacpp", section="llamacpp")
        if backend == "system" or (not arch and self._native.is_users_own(backend)):
            return None
        if not arch and backend in dict(_bundled()) and not self._native.is_wanted(backend):
            return None
        return self._native.build(backend, arch)

    def _bundled(self, name: str, device: str) -> Backend:
        version = installed_version(LIBRARY)
        bundled = Backend(
            name=name,
            devices=(device,),
            state="installed" if version else "installable",
            message="" if version else f"The package {LIBRARY} is missing: `pip install {LIBRARY}`.",
            version=version,
        )
        if not self._native.is_wanted(name):
            return bundled
        native = self._native.backend(name)
        if native.can_run or not version:
            return native
        # A setting must not leave the machine without an engine until what it names has come.
        message = f"{native.message} Until then the bundled engine serves."
        return replace(bundled, state="update_required", message=message, action=native.action)

    def device(self, options: Mapping[str, Any]) -> str:
        return self._backend(options).devices[0]

    def check(self, options: Mapping[str, Any]) -> None:
        """As `engine.Checked` has it: of a llama-server only the daemon's own arguments are known."""
        self._said(self._backend(options), options)

    def _said(self, backend: Backend, options: Mapping[str, Any]) -> tuple[Path | str | None, list[str], str]:
        """The program, None for the bundled engine, with the arguments and the device that it is told.

        Raises:
            InvalidArgument: it does not take them.
        """
        words = split(_text(options, "llamacpp_args"))
        refuse_reserved(words)
        device = _text(options, "llamacpp_device") or str(self._settings["llamacpp.device"])
        program = find_program(PROGRAM) if backend.name == "system" else self._native.program(backend.name)
        if program is None:
            parse(words)
            if device:
                raise InvalidArgument(
                    f"'llamacpp_device' is for a llama-server; the bundled engine (`{backend.name}`) has no devices "
                    "to choose",
                    param="llamacpp_device",
                )
        return program, words, device

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        backend = self._backend(options)
        program, words, device = self._said(backend, options)
        if "main" not in files:
            raise ModelLoadError("no GGUF file of the model is there")
        if model.mode == "classification":
            decisions.check(model, files["main"], bundled=program is None)
        for role in ("mmproj", "draft"):
            # Without it the model would start, and be blind or slow for no reason that anybody sees.
            if role in model.checkpoints and role not in files:
                raise ModelLoadError(f"its {role} file is not there ({model.checkpoints[role]})")
        made = ["-m", str(files["main"]), "--ctx-size", str(_context(model, options))]
        made += ["--device", device] if device else []
        made += ["--port", str(port), "--jinja", "--metrics", "--alias", alias]
        if "mmproj" in files:
            made += ["--mmproj", str(files["mmproj"])]
            made += ["--no-mmproj-offload"] if backend.name == "cpu" else []
        drafts = _drafts(files, words)
        if drafts:
            made += ["--model-draft", str(files["draft"])]
        made += {"embeddings": ["--embeddings"], "reranking": ["--reranking"]}.get(model.mode, [])
        slots = max(number(words, "--parallel"), 1)
        context = _context_of_a_slot(_context(model, options), slots, words)
        if program is not None:
            return Launch(
                name=PROGRAM,
                argv=(str(program), *made, *words),
                port=port,
                # No videos, as for the bundled engine; older ones do not know the variables.
                env={
                    **QUIET_DEATH,
                    "LLAMA_ARG_VIDEO_FFMPEG_DIR": os.devnull,
                    **({SHARED_VARIABLE: "true"} if _shares(slots, words) else {}),
                    **({} if mentions(words, KEPT) else {KEPT_VARIABLE: str(_kept(self._hardware))}),
                    **self._native.env(backend.name),
                },
                backend=backend.name,
                device=backend.devices[0],
                slots=slots,
                context=context,
            )
        made += _bundled_defaults(model, backend, words)
        made += [] if mentions(words, KEPT) else [KEPT, str(_kept(self._hardware))]
        made += self._sleep(options, words)
        made += [SHARED] if _shares(slots, words) else []
        if drafts and not {"mtp", "dflash"} & set(model.labels) and not mentions(words, "--spec-type"):
            # Else it would load the second model and never ask it.
            made += ["--spec-type", "draft-simple"]
        return Launch(
            name="llama.cpp",
            argv=(sys.executable, "-m", "lemonade.engines.llamacpp.host", *made, *words),
            port=port,
            env={**QUIET_DEATH, **_spin()},
            backend=backend.name,
            device=backend.devices[0],
            slots=slots,
            context=context,
        )

    def _sleep(self, options: Mapping[str, Any], words: list[str]) -> list[str]:
        """The argument by which an idle model gives its memory back; the next request brings it back into memory.

        Nothing else does: the cache of a context has its full size from the start, and erasing slots frees none of it.
        """
        chosen = options.get("auto_evict")
        if mentions(words, "--sleep-idle-seconds") or not (self._settings["auto_evict"] if chosen is None else chosen):
            return []
        # A second before it is looked at, which would count as a use.
        return ["--sleep-idle-seconds", str(max(1, int(options.get("downsize_idle_timeout", 60)) - 1))]

    def _backend(self, options: Mapping[str, Any]) -> Backend:
        setting = self._settings["llamacpp.backend"]
        return choose(self.backends(), options, recipe="llamacpp", section="llamacpp", setting=setting)


def _bundled() -> list[tuple[str, str]]:
    """Names and devices of what the library can compute on; its wheels for Apple's chips hold Metal."""
    apple = sys.platform == "darwin" and platform.machine() == "arm64"
    return [("metal", "gpu"), ("cpu", "cpu")] if apple else [("cpu", "cpu")]


def _bundled_defaults(model: Model, backend: Backend, words: list[str]) -> list[str]:
    made: list[str] = []
    if not mentions(words, "--threads"):
        made += ["--threads", str(physical_cores())]
    if model.mode in ("embeddings", "reranking", "classification"):
        for flag in ("--batch-size", "--ubatch-size"):
            made += [] if mentions(words, flag) else [flag, str(EMBEDDING_BATCH)]
    elif backend.name == "cpu" and not mentions(words, "--batch-size"):
        made += ["--batch-size", str(CPU_BATCH)]
    if backend.name == "cpu" and not mentions(words, "--fit"):
        # The context is sized already and there is no device memory to fit into: the trial load would be for nothing.
        made += ["--fit", "off"]
    if backend.name == "cpu" and sys.platform == "darwin" and not mentions(words, "--n-gpu-layers"):
        made += ["--n-gpu-layers", "0"]
    return made


def _shares(slots: int, words: list[str]) -> bool:
    """Whether the slots have to be told to share the context: nobody said how it is divided."""
    return slots > 1 and not mentions(words, SHARED) and not mentions(words, "--no-kv-unified")


def _kept(hardware: Hardware) -> int:
    """MiB for conversations that left their slot."""
    return min(KEPT_LIMIT, int(hardware.memory * KEPT_SHARE) >> 20) if hardware.memory else KEPT_LIMIT


def _context_of_a_slot(size: int, slots: int, words: list[str]) -> int:
    """Tokens that one request may have of a context of `size`."""
    if mentions(words, "--no-kv-unified"):
        size //= slots
    cap = number(words, "--kv-unified-per-slot")
    return min(size, cap) if cap else size


def _drafts(files: Mapping[str, Path], words: list[str]) -> bool:
    """Whether a draft file is used. One that was made for DFlash serves nothing else."""
    return "draft" in files and (not files["draft"].name.startswith("dflash") or "draft-dflash" in words)


def _context(model: Model, options: Mapping[str, Any]) -> int:
    size = options.get("ctx_size")
    if not isinstance(size, int) or isinstance(size, bool) or not 1 <= size <= MAX_INT:
        raise InvalidArgument(f"'ctx_size' must be a whole number from 1 to {MAX_INT}, not {size!r}", param="ctx_size")
    # llama.cpp rounds up to 256, but ends with a failed assertion when it is asked for 1.
    return max(size, EMBEDDING_CONTEXT if model.mode == "embeddings" else 2)


def _text(options: Mapping[str, Any], key: str) -> str:
    value = options.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidArgument(f"'{key}' must be a string, not {value!r}", param=key)
    return value


def _spin() -> dict[str, str]:
    """What is said of waiting, unless a person has said something already."""
    return {} if any(name in os.environ for name in SPIN_VARIABLES) else dict([SPIN])
