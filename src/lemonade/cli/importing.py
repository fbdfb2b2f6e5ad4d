"""`lemonade import`: a model from the file that `lemonade export` wrote."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any

import typer

from lemonade.cli.export import definition_of
from lemonade.cli.target import target_of
from lemonade.cli.terminal import note

EXAMPLES = """
lemonade import qwen.json
lemonade export Qwen3-0.6B-GGUF | lemonade import - --host other-machine
"""


def import_model(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `lemonade export` wrote; - reads stdin.")],
) -> None:
    """Define a model as a file describes it, and download what is not here."""
    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch

    definition = read_definition(file)
    fetch(ensure(target_of(ctx)), {**definition, "do_not_upgrade": True})
    name = definition["model_name"]
    note(f"{name} is here. Try: lemonade run {name}")


def read_definition(file: str) -> dict[str, Any]:
    """The definition in a file, or in the standard input for `-`.

    Raises:
        InvalidArgument: it holds none.
    """
    from lemonade.errors import InvalidArgument

    source = "The standard input" if file == "-" else file
    try:
        if file == "-":
            text = sys.stdin.read()
        else:
            with open(file, encoding="utf-8") as opened:
                text = opened.read()
        found = json.loads(text)
    except ValueError as error:
        raise InvalidArgument(f"{source} is no JSON: {error}") from error
    if not isinstance(found, dict) or not (found.get("model_name") or found.get("id")) or not found.get("recipe"):
        raise InvalidArgument(f"{source} describes no model; `lemonade export MODEL` writes such files.")
    return definition_of(found)
