"""Which names mean which models: built once per change, read for every request."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from itertools import islice

from lemonade.catalog.extra_models import Found
from lemonade.model import Model


class Index:
    """All models under all their names.

    A bare name means the person's own model, else one of the extra folder, else the folder that gave several models,
    else the built-in one. Every model also has its canonical name, `user.X`, `extra.X`, `builtin.X` or `cloud.X`.

    Models of cloud providers come last: whatever they are called, they take no name from a model that is here.

    Args:
        reason: why a model cannot run here, or None.

    Attributes:
        models: by canonical name.
        unsupported: canonical name to the reason for which it cannot run here.
        public: canonical name to the id that is shown.
    """

    def __init__(
        self,
        builtin: Mapping[str, Model],
        extra: Found,
        user: Mapping[str, Model],
        reason: Callable[[Model], str | None],
        cloud: Mapping[str, Model] = {},
    ) -> None:
        self.models: dict[str, Model] = {}
        self._names: dict[str, str] = {}
        for models in (cloud, builtin, extra.models, user):
            if models is extra.models:
                for folder, name in extra.folders.items():
                    self._names[folder] = self._names[f"extra.{folder}"] = f"extra.{name}"
            for name, model in models.items():
                canonical = model.canonical
                self.models[canonical] = model
                self._names[name] = self._names[canonical] = canonical
        self.public = {canonical: self._public(model) for canonical, model in self.models.items()}
        self.unsupported: dict[str, str] = {}
        for canonical, model in self.models.items():
            if refusal := reason(model):
                self.unsupported[canonical] = refusal
        self._available: list[str] | None = None

    def canonical(self, name: str) -> str | None:
        """The canonical name of the model that `name` means, aliases apart."""
        return self._names.get(name)

    def component(self, name: str) -> str:
        """The canonical name of a collection's component: a built-in model before a person's own of the same name.

        A name that means nothing stays as it is.
        """
        for each in (name, f"builtin.{name}", f"user.{name}"):
            if each in self.models:
                return each
        return self._names.get(name, name)

    def available(self) -> list[str]:
        """The public ids of all models that can run here, in the order of names."""
        if self._available is None:
            self._available = sorted(self.public[name] for name in self.models if name not in self.unsupported)
        return self._available

    def not_found(self, name: str) -> str:
        """The message for a name that means nothing, with up to three names that do."""
        name = name if len(name) <= 200 else f"{name[:200]}…"
        available = self.available()
        near = difflib.get_close_matches(name, available, n=3, cutoff=0.75) if len(available) <= 2000 else []
        folded = name.casefold()
        near = [each for each in available if each.casefold() == folded] + near
        suggestions = list(dict.fromkeys([*near, *islice(available, 3)]))[:3]
        listed = ", ".join(f"'{each}'" for each in suggestions)
        more = len(available) - len(suggestions)
        message = f"Model '{name}' was not found."
        if listed:
            message += f" Available models include: {listed}" + (f", and {more} more." if more > 0 else ".")
        return f"{message} Use 'lemonade list' or GET /api/v1/models?show_all=true to see all available models."

    def _public(self, model: Model) -> str:
        canonical = model.canonical
        if self._names[model.name] != canonical or (model.is_collection and model.origin != "builtin"):
            return canonical
        return model.name
