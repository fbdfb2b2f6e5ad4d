"""`lemonade config`: the settings, where each comes from, and changing them."""

from __future__ import annotations

import json
import os
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
    try:
        live = target.client().get("/internal/config")
        origins = target.client().get("/internal/config?origin=true") if show_origin else {}
    except NoDaemon:
        local = _local(target)
        live = local.snapshot()
        origins = {key: {"origin": local.origin(key)} for key in local}
    values = dict(flatten(live))
    if as_json and show_origin:
        print_json({key: {"value": value, "origin": _origin(origins, key)} for key, value in values.items()})
    elif as_json:
        print_json(live)
    else:
        headings = ["setting", "value", "origin"] if show_origin else ["setting", "value"]
        rows = [[key, _shown(value), _origin(origins, key)] for key, value in sorted(values.items())]
        print_table(headings, [row[: len(headings)] for row in rows])


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
        _local(target).change(changes, persist=True)
        where = "It is kept for the next start of the daemon."
    note("Set " + ", ".join(f"{key} = {_shown(value)}" for key, value in changes.items()) + f". {where}")
    for variable in _overriding(changes):
        note(
            f"But {variable} is set here, and comes before what is kept. Without `unset {variable}`, commands and "
            "daemons that are started from here go by the variable."
        )


def _overriding(changes: dict[str, Any]) -> list[str]:
    """The variables of the environment that give other values to what was changed."""
    from lemonade.settings import ENVIRONMENT, flatten

    new = {key: _shown(value) for key, value in flatten(changes)}
    return [name for name, key in ENVIRONMENT.items() if key in new and os.environ.get(name, "") not in ("", new[key])]


def _origin(origins: dict[str, Any], key: str) -> str:
    """An older daemon answers with values alone."""
    row = origins.get(key)
    return str(row.get("origin", "unknown")) if isinstance(row, dict) else "unknown"


def _local(target: Target) -> Settings:
    """The settings that a daemon of this machine would start with. Raises NoDaemon for another machine's."""
    from lemonade.client import NoDaemon
    from lemonade.settings import Settings

    if not target.address().is_local:
        raise NoDaemon(f"No daemon answers at {target.address()}, whose settings only it can show and change.")
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
