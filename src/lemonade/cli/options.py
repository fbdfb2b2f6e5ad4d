"""`lemonade options`: what is kept for one model, and what a load would use."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade options Qwen3-0.6B-GGUF
lemonade options Qwen3-0.6B-GGUF ctx_size=8192 llamacpp_args="--temp 0.2"
lemonade options Qwen3-0.6B-GGUF ctx_size=null        forget one of them
lemonade options Qwen3-0.6B-GGUF --reset              forget all of them
"""


def options(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="As `lemonade list` names it.", autocompletion=complete_model)
    ],
    pairs: Annotated[
        list[str] | None, typer.Argument(metavar="KEY=VALUE", help="Options to keep; null forgets one.")
    ] = None,
    reset: Annotated[bool, typer.Option("--reset", help="Forget everything that is kept.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would hold, and keep nothing.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Show the options of a model, or keep new ones.

    A model that is loaded keeps its options until it is loaded again.
    """
    from lemonade.client import path_of

    if reset and pairs:
        raise typer.BadParameter("give options or --reset, not both.", param_hint="--reset")
    client, path = target_of(ctx).client(), path_of(model, "options")
    if reset:
        report = client.delete(path)
    elif pairs:
        report = client.post(path, {**_changes(pairs), **({"dry_run": True} if dry_run else {})}, timeout=60)
    else:
        report = client.get(path)
    if as_json:
        print_json(report)
        return
    if dry_run and pairs:
        note("Nothing is kept; this is what would hold.")
    saved, effective, defaults = report["saved"], report["effective"], report["defaults"]
    rows = [
        [key, _shown(value), "kept for this model" if key in saved else "" if value == defaults.get(key) else "new"]
        for key, value in sorted(effective.items())
        if key != "model_name"
    ]
    print_table(["option", "value", "origin"], rows)
    if effective.get("ctx_size") == -1:
        note(f"A load right now would have a context of {report['resolved_ctx_size']} tokens.")


def _changes(pairs: list[str]) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE, such as ctx_size=8192.", param_hint="KEY=VALUE")
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        changes[key.replace("-", "_") if not key.startswith("sd-cpp") else key] = value
    return changes


def _shown(value: Any) -> str:
    if value == "":
        return "(empty)"
    return value if isinstance(value, str) else json.dumps(value)
