"""`lemonade backends`: the engines' backends, and installing and removing them."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemonade.cli.target import complete_backend, target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade backends                              what there is for this machine
lemonade backends install llamacpp:vulkan
lemonade backends --json | jq .llamacpp
"""
INSTALL_EXAMPLES = """
lemonade backends install llamacpp:vulkan
lemonade backends install llamacpp:vulkan --cancel     stop a download that goes on in the daemon
"""
UNINSTALL_EXAMPLES = """
lemonade backends uninstall llamacpp:vulkan
"""

Spec = Annotated[
    str,
    typer.Argument(metavar="RECIPE:BACKEND", help="Such as llamacpp:vulkan.", autocompletion=complete_backend),
]


def backends(
    ctx: typer.Context,
    show_all: Annotated[
        bool, typer.Option("--all", help="Also what this machine cannot run, with the reason.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the backends by recipe as JSON.")] = False,
) -> None:
    """List the backends that engines can run on here; the first one that is installed is used."""
    if ctx.invoked_subcommand is not None:
        return
    recipes = target_of(ctx).client().get("/v1/system-info")["recipes"]
    shown = {recipe: _shown(row, show_all) for recipe, row in recipes.items()}
    if as_json:
        print_json({recipe: found for recipe, found in shown.items() if found})
        return
    rows = []
    for recipe, found in shown.items():
        for name, backend in found.items():
            mark = " (used)" if name == recipes[recipe].get("default_backend") else ""
            rows.append([f"{recipe}:{name}{mark}", backend["state"], backend.get("version") or "-", _remark(backend)])
        if show_all and not found:
            rows.append([recipe, "unsupported", "-", recipes[recipe].get("message") or ""])
    print_table(["backend", "state", "version", ""], rows)


def _shown(row: dict[str, Any], show_all: bool) -> dict[str, Any]:
    found: dict[str, Any] = row.get("backends") or {}
    return {name: one for name, one in found.items() if show_all or one["state"] != "unsupported"}


def _remark(backend: dict[str, Any]) -> str:
    action = backend.get("action") or ""
    message = backend.get("message") or ""
    return f"{message} {action}".strip()


def install(
    ctx: typer.Context,
    spec: Spec,
    force: Annotated[
        bool, typer.Option("--force", help="Also what would not run here, and again what is installed.")
    ] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop the running download of this backend.")] = False,
) -> None:
    """Install a backend. The daemon downloads; Ctrl-C ends the command and leaves the download to go on."""
    from lemonade.catalog.recipes import RECIPES
    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_backend

    recipe, backend = _parts(spec)
    client = ensure(target_of(ctx))
    if cancel:
        client.post("/v1/downloads/control", {"id": f"backend:{spec}", "action": "cancel"}, timeout=30)
        note(f"The download of {spec} is cancelled.")
        return
    fetch_backend(client, recipe, backend, force=force)
    chosen = recipe in RECIPES and f"{recipe}_backend" in RECIPES[recipe].options
    section = RECIPES[recipe].section if chosen else recipe
    always = f" Use it always: lemonade config set {section}.backend={backend}" if chosen else ""
    note(f"{spec} is installed.{always}")


def uninstall(ctx: typer.Context, spec: Spec) -> None:
    """Remove a backend that was installed. Models that run on it are unloaded."""
    from lemonade.cli.daemon import ensure

    recipe, backend = _parts(spec)
    ensure(target_of(ctx)).post("/v1/uninstall", {"recipe": recipe, "backend": backend}, timeout=120)
    note(f"{spec} is removed.")


def _parts(spec: str) -> tuple[str, str]:
    recipe, colon, backend = spec.partition(":")
    if not (recipe and colon and backend):
        raise typer.BadParameter(f"{spec!r} is not RECIPE:BACKEND, such as llamacpp:vulkan.", param_hint="BACKEND")
    return recipe, backend
