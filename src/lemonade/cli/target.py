"""Which daemon a command talks to: the global options, resolved once they are needed."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from lemonade.address import Address
    from lemonade.client import Client
    from lemonade.paths import Paths


@dataclass(frozen=True, slots=True)
class Target:
    """What was said before the command's own arguments; None is unsaid."""

    host: str | None = None
    port: int | None = None
    api_key: str | None = None

    def paths(self) -> Paths:
        from lemonade.paths import Paths

        return Paths.find()

    def address(self) -> Address:
        from lemonade.address import Address

        return Address.find(self.host, self.port, config=self.paths().config)

    def client(self) -> Client:
        from lemonade.client import Client

        key = self.api_key or os.environ.get("LEMONADE_API_KEY")
        return Client(self.address(), key=key, admin_key=os.environ.get("LEMONADE_ADMIN_API_KEY"))

    def serve_flags(self) -> list[str]:
        """The options that make `lemonade serve` listen where this target looks. Unsaid ones are left to the daemon,
        which reads the same configuration."""
        address = self.address()
        flags = ["--port", str(address.port)]
        if host := self.host or os.environ.get("LEMONADE_HOST"):
            flags += ["--host", address.host if "://" in host else host]
        return flags


def target_of(ctx: typer.Context) -> Target:
    """The target of this command line."""
    found = ctx.find_object(Target)
    return found if found is not None else Target()


def complete_model(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of models that begin with what was typed, for the shell; none when no daemon answers."""
    from lemonade.errors import LemonadeError

    try:
        listed = target_of(ctx).client().get("/v1/models?show_all=true", timeout=2)
    except LemonadeError:
        return []
    return [row["id"] for row in listed.get("data", []) if row["id"].startswith(incomplete)]


def complete_backend(ctx: typer.Context, incomplete: str) -> list[str]:
    """`RECIPE:BACKEND` of what can be installed or is, for the shell; none when no daemon answers."""
    from lemonade.errors import LemonadeError

    try:
        recipes = target_of(ctx).client().get("/v1/system-info", timeout=2).get("recipes", {})
    except LemonadeError:
        return []
    names = [
        f"{recipe}:{name}"
        for recipe, row in recipes.items()
        for name, backend in row.get("backends", {}).items()
        if backend.get("action") or backend.get("can_uninstall")
    ]
    return [name for name in names if name.startswith(incomplete)]
