"""Options that a person saved for one model, on top of what its row says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lemonade.catalog.option_checks import can_have
from lemonade.catalog.recipes import is_set, options_of
from lemonade.catalog.stores import ObjectFile
from lemonade.model import Model

log = logging.getLogger("lemonade.catalog")


class SavedOptions:
    """`recipe_options.json`: canonical name to options.

    Args:
        file: where they are kept.
        builtin: names of the built-in models; entries of older versions under these names are taken over.
    """

    def __init__(self, file: Path, builtin: Iterable[str] = ()) -> None:
        self._file = ObjectFile(file)
        old = self._file.values().keys() & set(builtin)
        if old:

            def take_over(values: dict[str, Any]) -> None:
                for name in old & values.keys():
                    entry = values.pop(name)
                    values.setdefault(f"builtin.{name}", entry)

            try:
                self._file.change(take_over)
            except OSError as error:
                log.warning("Options that an older version saved cannot be taken over: %s", error)

    @property
    def version(self) -> int:
        """Grows with every change of the file."""
        self._file.values()
        return self._file.version

    def all(self) -> Mapping[str, Any]:
        """What is saved for all models, by canonical name, as the file has it."""
        return self._file.values()

    def of(self, model: Model, among: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """A copy of what is saved for the model; `{}` when nothing is.

        Args:
            among: `all()`, for those who ask for many models at once: the file is looked at once then.
        """
        entry = (self.all() if among is None else among).get(model.canonical)
        return dict(entry) if isinstance(entry, dict) else {}

    def change(self, model: Model, edit: Callable[[dict[str, Any]], None]) -> None:
        """Edits the model's entry; an entry that becomes empty is removed.

        Raises:
            OSError: the file cannot be written.
        """

        def change(values: dict[str, Any]) -> None:
            entry = values.get(model.canonical)
            entry = entry if isinstance(entry, dict) else {}
            edit(entry)
            if entry:
                values[model.canonical] = entry
            else:
                values.pop(model.canonical, None)

        self._file.change(change)


def own_options(model: Model, saved: dict[str, Any]) -> dict[str, Any]:
    """The model's own options: what its row says with the saved ones on top, of those that its recipe knows and that
    are set. What an option cannot have counts as not set; somebody wrote it into the file by hand."""
    known = options_of(model.recipe)
    merged: dict[str, Any] = {}
    for layer in (model.image_defaults, model.recipe_options, saved):
        set_here = ((key, value) for key, value in layer.items() if key in known and is_set(key, value))
        merged.update((key, value) for key, value in set_here if can_have(key, value, known[key]))
    return dict(sorted(merged.items()))
