"""`lemonade config`: the settings, where each comes from, and changing them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json, print_table

if TYPE_CHECKING:
    from lemonade.cli.target import Target
    from lemonade.settings import Settings

EXAMPLES = """
lemonade config --show-origin
lemonade config set max_loaded_models=2 llamacpp.args="--threads 4"
lemonade config --json | jq .llamacpp
"""
SET_EXAMPLES = """
lemonade config set ctx_size=8192
lemonade config set llamacpp.backend=cpu max_loaded_models=2
"""


def config(
    ctx: typer.Context,
    show_origin: Annotated[bool, typer.Option("--show-origin", help="Also say where each value comes from.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the settings as JSON.")] = False,
) -> None:
    """Show the settings of the daemon, or with `set` change them.

    When no daemon runs, these are the settings that one would start with.
    """
    if ctx.invoked_subcommand is not None:
        return
    from lemonade.client import NoDaemon
    from lemonade.settings import flatten

    target = target_of(ctx)
    # Files and environment of this machine explain only a daemon of this machine.
    local = _settings(target) if target.address().is_local else None
    try:
        live = target.client().get("/internal/config")
    except NoDaemon:
        if local is None:
            raise
        live = local.snapshot()
    values = dict(flatten(live))
    origins = {key: _origin(local, key, value) for key, value in values.items()}
    if as_json and show_origin:
        print_json({key: {"value": value, "origin": origins[key]} for key, value in values.items()})
    elif as_json:
        print_json(live)
    else:
        headings = ["setting", "value", "origin"] if show_origin else ["setting", "value"]
        rows = [[key, _shown(value), origins[key]][: len(headings)] for key, value in sorted(values.items())]
        print_table(headings, rows)


def set_config(
    ctx: typer.Context,
    pairs: Annotated[
        list[str], typer.Argument(metavar="KEY=VALUE", help="A value is JSON where it can be, else text.")
    ],
) -> None:
    """Change settings and keep them. A running daemon obeys at once."""
    from lemonade.client import NoDaemon

    changes: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise typer.BadParameter(f"{pair!r} is not KEY=VALUE, such as ctx_size=8192.", param_hint="KEY=VALUE")
        changes[key.replace("-", "_")] = _value(text)
    target = target_of(ctx)
    try:
        target.client().post("/internal/set", changes, timeout=60)
        where = "The running daemon obeys, and it is kept."
    except NoDaemon:
        if not target.address().is_local:
            raise
        _settings(target).change(changes, persist=True)
        where = "It is kept for the next start of the daemon."
    note("Set " + ", ".join(f"{key} = {_shown(value)}" for key, value in changes.items()) + f". {where}")


def _origin(local: Settings | None, key: str, value: Any) -> str:
    """Where a value in force comes from. What the layers of this machine do not explain was said to the daemon itself:
    on its command line, in its environment, or while it ran."""
    if local is None or key not in set(local) or local[key] != value:
        return "the running daemon"
    return local.origin(key)


def _settings(target: Target) -> Settings:
    from lemonade.settings import Settings

    settings = Settings.open(target.paths().config)
    for problem in settings.problems:
        note(f"Warning: {problem}")
    return settings


def _value(text: str) -> Any:
    """`8192`, `0.5`, `true`, `null` and JSON arrays, objects and strings are what they look like; the rest is text."""
    if text in ("true", "false", "null") or text[:1] in ("[", "{", '"') or re.fullmatch(r"-?\d+(\.\d+)?", text):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text


def _shown(value: Any) -> str:
    if value == "":
        return "(empty)"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
