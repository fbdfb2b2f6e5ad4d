"""`lemonade status`: whether a daemon runs, and which models it holds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import print_json, print_table

EXAMPLES = """
lemonade status
lemonade status --json | jq .port
lemonade --host box.lan status    the daemon of another machine
"""


def status(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's state as JSON.")] = False,
) -> None:
    """Tell whether the daemon runs and which models are in memory. Fails if no daemon answers."""
    client = target_of(ctx).client()
    health = client.get("/v1/health")
    if as_json:
        print_json({"port": client.address.port, "url": str(client.address), **health})
        return
    print(f"Lemonade {health.get('version', '')} runs at {client.address}".replace("  ", " "))
    models = health.get("all_models_loaded") or []
    print()
    if not models:
        print("No model is loaded.")
        return
    print_table(["model", "type", "recipe", "device", "context", "state", "pid"], [_cells(entry) for entry in models])


def _cells(entry: dict[str, Any]) -> list[str]:
    context = (entry.get("recipe_options") or {}).get("ctx_size")
    state = str(entry.get("status", "")) + (", pinned" if entry.get("pinned") else "")
    return [
        str(entry.get("model_name", "")),
        str(entry.get("type", "")),
        str(entry.get("recipe", "")),
        str(entry.get("device", "")),
        str(context) if context else "-",
        state,
        str(entry.get("pid") or "-"),
    ]
