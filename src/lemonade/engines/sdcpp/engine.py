"""The recipe `sd-cpp`: pictures, by stable-diffusion.cpp."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lemonade.engines.backends import installed_version, physical_cores
from lemonade.engines.choice import choose
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.llamacpp.engine import QUIET_DEATH
from lemonade.engines.programs import loader_path
from lemonade.engines.sdcpp import native
from lemonade.engines.sdcpp.arguments import FILES, parse, refuse_reserved, split
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Settings

NAME = "stable-diffusion.cpp"
LIBRARY = "cyllama"

#: The kinds of text encoders by what is found in the names of their files; all others are language models.
_ENCODERS = ("clip_l", "clip_g", "t5xxl")


class SdCpp:
    """stable-diffusion.cpp as a library in a Python child (`cpu`, on Apple's chips `metal`), or an `sd-server`: on PATH
    (`system`), or in the folder that `sdcpp.BACKEND_bin` names (`cuda`, `rocm`, `vulkan`, `cpu`)."""

    recipe = "sd-cpp"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def backends(self) -> list[Backend]:
        own = [native.state(self._settings, name) for name in native.GPUS]
        if native.folder(self._settings, "cpu") is not None:
            own.append(native.state(self._settings, "cpu"))
        name, device = ("metal", "gpu") if _is_apple() else ("cpu", "cpu")
        if name not in [each.name for each in own]:
            version = installed_version(LIBRARY)
            missing = f"The package {LIBRARY} is missing: `pip install {LIBRARY}`."
            bundled = Backend(
                name=name,
                devices=(device,),
                state="installed" if version else "installable",
                message="" if version else missing,
                version=version,
            )
            own.insert(len(native.GPUS), bundled)
        return [*own, native.state(self._settings, native.SYSTEM)]

    def device(self, options: Mapping[str, Any]) -> str:
        return self._backend(options).devices[0]

    def check(self, options: Mapping[str, Any]) -> None:
        """As `engine.Checked` has it."""
        backend = self._backend(options)
        words = _words(options)
        if not self._is_program(backend):
            parse(words)

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        if "on-demand" in model.labels:
            raise ModelLoadRefused(f"'{model.name}' runs on demand and is never loaded.", requested=model.name)
        backend = self._backend(options)
        words = _words(options)
        if "main" not in files:
            raise ModelLoadError("no file of the model is there")
        for role in model.checkpoints:
            if role not in files:
                raise ModelLoadError(f"its {role} file is not there ({model.checkpoints[role]})")
        parts = {_kind(role, path): path for role, path in files.items() if role != "main"}
        if unknown := parts.keys() - FILES.keys():
            raise ModelLoadRefused(
                f"stable-diffusion.cpp has no use for a file with the role '{min(unknown)}'; it knows "
                f"{', '.join(FILES)} and text_encoder.",
                requested=model.name,
            )
        # Alone it is a whole checkpoint; with others it is the part that paints.
        flag, attribute = ("--diffusion-model", "diffusion_model_path") if parts else ("--model", "model_path")
        if self._is_program(backend):
            named = [word for role, path in parts.items() for word in (FILES[role][0], str(path))]
            loud = ["-v"] if self._settings["log_level"] == "debug" else []
            words = [*native.EXTRA.get(backend.name, ()), *words]
            said = ["--listen-port", str(port), flag, str(files["main"]), *named, *loud, *words]
            return self._program(backend, native.SERVER, said, port)
        changes = parse(words)
        context = {attribute: str(files["main"]), "n_threads": physical_cores()}
        context |= {FILES[role][1]: str(path) for role, path in parts.items()}
        config = {
            "context": {**context, **changes.context},
            "picture": changes.picture,
            "sampling": changes.sampling,
            **changes.host,
        }
        return worker_launch(
            name=NAME,
            module="lemonade.engines.sdcpp.host",
            config=config,
            port=port,
            env=QUIET_DEATH,
            backend=backend.name,
            device=backend.devices[0],
        )

    def upscale(self, file: Path, options: Mapping[str, Any], port: int) -> Launch:
        """The process that enlarges pictures with one model, and is ended afterwards. Starts nothing.

        Raises:
            ModelLoadError: no backend can run here.
            InvalidArgument: `sdcpp_args` cannot be understood.
        """
        backend = self._backend(options)
        if self._is_program(backend):
            return self._program(backend, native.CLI, ["-M", "upscale", "--upscale-model", str(file)], port)
        threads = parse(_words(options)).context.get("n_threads", physical_cores())
        return worker_launch(
            name=f"{NAME} upscaler",
            module="lemonade.engines.sdcpp.upscaler",
            config={"model": str(file), "threads": threads},
            port=port,
            env=QUIET_DEATH,
            backend=backend.name,
            device=backend.devices[0],
        )

    def _is_program(self, backend: Backend) -> bool:
        return backend.name == native.SYSTEM or native.folder(self._settings, backend.name) is not None

    def _program(self, backend: Backend, name: str, words: Sequence[str], port: int) -> Launch:
        path = native.program(self._settings, backend.name, name)
        return Launch(
            name=name,
            argv=(str(path), *words),
            port=port,
            env={} if backend.name == native.SYSTEM else loader_path(path.parent),
            health_path="/",
            backend=backend.name,
            device=backend.devices[0],
        )

    def _backend(self, options: Mapping[str, Any]) -> Backend:
        setting = self._settings["sdcpp.backend"]
        return choose(self.backends(), options, recipe="sd-cpp", section="sdcpp", setting=setting)


def _words(options: Mapping[str, Any]) -> list[str]:
    """The arguments, none of which is the daemon's own. Raises InvalidArgument."""
    words = split(str(options.get("sdcpp_args") or ""))
    refuse_reserved(words)
    return words


def _kind(role: str, path: Path) -> str:
    """The role as stable-diffusion.cpp needs it: it tells encoders of text apart."""
    if role != "text_encoder":
        return role
    name = path.name.lower().replace("-", "_")
    return next((kind for kind in _ENCODERS if kind in name or kind.replace("xxl", "_xxl") in name), "llm")


def _is_apple() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"
