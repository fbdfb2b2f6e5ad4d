"""`lemonade alias`: second names for models."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade alias add gpt-4o Qwen3-4B-GGUF     programs that ask for gpt-4o get Qwen3
lemonade alias list
lemonade alias remove gpt-4o
"""
ADD_EXAMPLES = """
lemonade alias add gpt-4o Qwen3-4B-GGUF
"""
REMOVE_EXAMPLES = """
lemonade alias remove gpt-4o
"""
LIST_EXAMPLES = """
lemonade alias list
lemonade alias list --json
"""


def alias() -> None:
    """Give models second names, such as those that a program insists on."""


def add(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="ALIAS", help="The new name.")],
    model: Annotated[str, typer.Argument(metavar="MODEL", help="What it shall mean.", autocompletion=complete_model)],
) -> None:
    """Make ALIAS mean MODEL, also if it meant something else before."""
    client = target_of(ctx).client()
    client.post("/internal/aliases", {"alias": name, "target": model}, timeout=30)
    found = next(row for row in client.get("/internal/aliases")["aliases"] if row["alias"] == name.strip())
    note(f"{name} now means {model}." + ("" if found["downloaded"] else f" It is not here yet: lemonade pull {model}"))


def remove(
    ctx: typer.Context, name: Annotated[str, typer.Argument(metavar="ALIAS", help="The name to take away.")]
) -> None:
    """Take a second name away. The model stays."""
    from urllib.parse import quote

    target_of(ctx).client().delete(f"/internal/aliases/{quote(name, safe='', errors='replace')}")
    note(f"{name} is no name of a model any more.")


def list_aliases(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the aliases as JSON.")] = False,
) -> None:
    """List the second names and what they mean."""
    rows = target_of(ctx).client().get("/internal/aliases")["aliases"]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["alias", "model", "downloaded"],
            [[row["alias"], row["target"], "yes" if row["downloaded"] else "no"] for row in rows],
        )
    else:
        note("There are no aliases. Make one: lemonade alias add ALIAS MODEL")
