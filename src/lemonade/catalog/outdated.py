"""Models for which a registry is known to have newer files."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemonade.catalog.stores import ObjectFile

log = logging.getLogger("lemonade.catalog")


class Outdated:
    """What the last look found. It is kept in a file, so that the next daemon need not ask again to know it.

    Attributes:
        names: canonical names.
        checked: Unix seconds of the last look; 0 when there was none.
        version: grows with every change of `names`.
    """

    def __init__(self, file: Path) -> None:
        self._file = ObjectFile(file, set_aside=True)
        kept = self._file.values()
        models, checked = kept.get("models"), kept.get("checked")
        models = models if isinstance(models, list) else []
        self.names = frozenset(name for name in models if isinstance(name, str))
        # A number of hundreds of digits is no time, and none that a float holds.
        self.checked = float(checked) if isinstance(checked, int | float) and 0 <= checked <= time.time() else 0.0
        self.version = 0

    def note(self, found: Mapping[str, bool]) -> None:
        """Keeps what a look found: canonical name to whether there are newer files. Others stay as they were."""
        self.checked = time.time()
        self._keep(self.names - found.keys() | {name for name, outdated in found.items() if outdated})

    def settle(self, canonical: str) -> None:
        """Says that a model has the newest files."""
        if canonical in self.names:
            self._keep(self.names - {canonical})

    def _keep(self, names: frozenset[str]) -> None:
        if names != self.names:
            self.names = names
            self.version += 1

        def write(values: dict[str, Any]) -> None:
            values.update(checked=int(self.checked), models=sorted(names))

        try:
            self._file.change(write)
        except OSError as error:
            log.warning("Which models have newer files is forgotten at the end: %s", error)
