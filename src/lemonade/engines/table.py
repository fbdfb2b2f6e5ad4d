"""All engines: one line per recipe."""

from __future__ import annotations

from lemonade.engines.engine import Engine
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.errors import ModelNotSupported
from lemonade.settings import Settings

_LATER = "This version of Lemonade for Python does not have the engine `{recipe}` ({what}) yet."

#: Recipes of the original whose engines are not here, and what each is for.
_MISSING = {
    "whispercpp": "speech to text",
    "moonshine": "speech to text",
    "kokoro": "text to speech",
    "sd-cpp": "pictures",
    "onnxruntime": "classification",
    "vllm": "text on AMD GPUs",
    "flm": "text on AMD NPUs",
    "ryzenai-llm": "text on AMD NPUs under Windows",
    "thenoise": "pictures on AMD GPUs",
    "acestep": "music on GPUs",
    "thinksound": "sound effects on GPUs",
    "openmoss": "text to speech on GPUs",
    "trellis": "3D meshes on GPUs",
}

#: Recipes that start no process of their own.
_VIRTUAL = ("cloud",)


class Engines:
    """The engines of this daemon."""

    def __init__(self, settings: Settings) -> None:
        engines: list[Engine] = [LlamaCpp(settings)]
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

    def preferred(self, recipe: str) -> str:
        """The backend that `auto` means for the recipe on this machine; `""` when there is none."""
        engine = self._engines.get(recipe)
        backends = engine.backends() if engine is not None else []
        return next((backend.name for backend in backends if backend.state == "installed"), "")

    def refusal(self, recipe: str, backend: str) -> str | None:
        """Why the setting `backend` of a recipe cannot be `backend`, or None when it can."""
        known = ["auto", *(one.name for one in self.get(recipe).backends())]
        return None if backend in known else f"must be one of: {', '.join(known)}"

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
        if any(backend.state == "installed" for backend in backends):
            return None
        return " ".join(dict.fromkeys(backend.message for backend in backends if backend.message))
