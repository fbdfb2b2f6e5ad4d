"""All engines: one line per recipe."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from lemonade.engines.engine import Backend, Build, Checked, Engine, Fetched, Wheels
from lemonade.engines.fasterwhisper.engine import FasterWhisper
from lemonade.engines.kokoro.engine import Kokoro
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.engines.moonshine.engine import Moonshine
from lemonade.engines.onnxruntime.engine import OnnxRuntime
from lemonade.engines.openmoss.engine import OpenMoss
from lemonade.engines.programs import Programs
from lemonade.engines.sdcpp.engine import SdCpp
from lemonade.engines.whispercpp.engine import WhisperCpp
from lemonade.errors import InvalidArgument, ModelLoadError, ModelNotSupported
from lemonade.settings import Settings
from lemonade.system.hardware import Hardware

_LATER = "This version of Lemonade for Python does not have the engine `{recipe}` ({what}) yet."

#: Recipes of the original whose engines are not here, and what each is for.
_MISSING = {
    "vllm": "text on AMD GPUs",
    "flm": "text on AMD NPUs",
    "ryzenai-llm": "text on AMD NPUs under Windows",
    "thenoise": "pictures on AMD GPUs",
    "acestep": "music on GPUs",
    "thinksound": "sound effects on GPUs",
    "trellis": "3D meshes on GPUs",
}

#: Recipes that start no process of their own.
_VIRTUAL = ("cloud",)


class Engines:
    """The engines of this daemon.

    Args:
        programs: the programs that were fetched; none when not given.
        hardware: the machine; one that says nothing of itself when not given.
    """

    def __init__(self, settings: Settings, programs: Programs | None = None, hardware: Hardware | None = None) -> None:
        engines: list[Engine] = [
            LlamaCpp(settings, programs, hardware),
            WhisperCpp(settings),
            Moonshine(),
            FasterWhisper(settings, programs),
            SdCpp(settings),
            OnnxRuntime(settings),
            Kokoro(),
            OpenMoss(settings),
        ]
        self._engines = {engine.recipe: engine for engine in engines}

    def all(self) -> list[Engine]:
        return list(self._engines.values())

    def get(self, recipe: str) -> Engine:
        """The engine of a recipe.

        Raises:
            ModelNotSupported: there is none.
        """
        if recipe not in self._engines:
            raise ModelNotSupported(self.unsupported(recipe) or f"The recipe `{recipe}` runs no engine.")
        return self._engines[recipe]

    def build(self, recipe: str, backend: str, arch: str = "") -> Build | Wheels | None:
        """What would be fetched for a backend; None when there is nothing to fetch for it.

        Raises:
            InvalidArgument: there is no such recipe or backend.
            UnsupportedOperation: nobody builds it for this system.
        """
        engine = self.known(recipe, backend)
        return engine.build(backend, arch) if isinstance(engine, Fetched) else None

    def backend(self, recipe: str, backend: str) -> Backend:
        """One backend and its state. Raises InvalidArgument as `known` does."""
        return next(one for one in self.known(recipe, backend).backends() if one.name == backend)

    def known(self, recipe: str, backend: str) -> Engine:
        """The engine that has a backend.

        Raises:
            InvalidArgument: there is no such recipe or backend.
        """
        engine = self._engines.get(recipe)
        if engine is None:
            message = self.unsupported(recipe) or f"The recipe `{recipe}` runs no engine."
            raise InvalidArgument(f"{message} There is: {', '.join(self._engines)}.", param="recipe")
        names = [one.name for one in engine.backends()]
        if backend not in names:
            raise InvalidArgument(
                f"'backend' must be one of {recipe}'s: {', '.join(names)}, not {backend[:100]!r}.", param="backend"
            )
        return engine

    def preferred(self, recipe: str) -> str:
        """The backend that `auto` means for the recipe on this machine; `""` when there is none."""
        engine = self._engines.get(recipe)
        backends = engine.backends() if engine is not None else []
        return next((backend.name for backend in backends if backend.can_run), "")

    def refusal(self, recipe: str, backend: str) -> str | None:
        """Why the setting `backend` of a recipe cannot be `backend`, or None when it can."""
        known = ["auto", *(one.name for one in self.get(recipe).backends())]
        return None if backend in known else f"must be one of: {', '.join(known)}"

    def check(self, recipe: str, options: Mapping[str, Any]) -> None:
        """Looks at the arguments, and at the backend that they are for, before they are kept.

        Raises:
            InvalidArgument: no model of the recipe could be started with them.
        """
        engine = self._engines.get(recipe)
        if isinstance(engine, Checked):
            with contextlib.suppress(ModelLoadError):
                engine.check(options)

    def unsupported(self, recipe: str) -> str | None:
        """Why this machine cannot run models of the recipe, or None when it can."""
        if recipe.startswith("collection.") or recipe in _VIRTUAL:
            return None
        engine = self._engines.get(recipe)
        if engine is None:
            if recipe in _MISSING:
                return _LATER.format(recipe=recipe, what=_MISSING[recipe])
            return f"There is no recipe `{recipe}`."
        backends = engine.backends()
        if any(backend.can_run for backend in backends):
            return None
        ways = [backend for backend in backends if backend.state == "installable"] or backends
        reasons = [f"{one.message} Install it: {one.action}" if one.action else one.message for one in ways]
        return " ".join(dict.fromkeys(reason for reason in reasons if reason))
