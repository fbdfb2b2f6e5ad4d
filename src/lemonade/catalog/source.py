"""Models that the catalog is told of from elsewhere: those of cloud providers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from lemonade.model import Model


class Source(Protocol):
    """Where such models are known."""

    @property
    def version(self) -> int:
        """Grows with every change of `models`."""
        ...

    def models(self) -> Mapping[str, Model]:
        """The models by name, at once: what has to be asked for is asked for beside."""
        ...

    def hint(self, name: str) -> str:
        """What else is to be said to who asked for a name that means nothing; mostly nothing."""
        ...


class Nowhere:
    """No such models."""

    version = 0

    def models(self) -> Mapping[str, Model]:
        return {}

    def hint(self, name: str) -> str:
        return ""
