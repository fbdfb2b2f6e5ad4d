"""What residency asks of the floors below it; the composition root gives the real thing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from lemonade.engines.engine import Launch
from lemonade.model import Model


class Loader(Protocol):
    async def fetch(self, model: Model, options: Mapping[str, Any]) -> None:
        """Returns when the model's files are here, and the program that its options name; at once if they are.

        Raises:
            HubError: they cannot be had.
        """
        ...

    def options(self, model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        """All of the model's options, resolved over `request`; `ctx_size` may be -1 for automatic.

        Raises:
            InvalidArgument: one of them cannot hold.
        """
        ...

    def check(self, model: Model, options: Mapping[str, Any]) -> None:
        """Looks at options before anything is stopped for them; what can be told of a model depends on its files.

        Raises:
            InvalidArgument: this machine could not start it however empty it was.
        """
        ...

    def device(self, model: Model, options: Mapping[str, Any]) -> str:
        """The kind of device (`cpu`, `gpu`, `npu`) that a process would compute on, before anything is started."""
        ...

    def sized(self, model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
        """`options` with a number for an automatic `ctx_size`. Asked last, so that memory freed for the load counts."""
        ...

    def launch(self, model: Model, options: Mapping[str, Any], port: int) -> Launch:
        """The process to start.

        Raises:
            ModelLoadRefused, ModelLoadError, InvalidArgument: there can be none.
        """
        ...
