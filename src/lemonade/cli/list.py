"""`lemonade list`: the models that there are."""

from __future__ import annotations

import re
import sys
from typing import Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade list --downloaded        what is here
lemonade list qwen                all that have "qwen" in the name
lemonade list --json | jq -r '.[].id'
"""


def list_models(
    ctx: typer.Context,
    name: Annotated[
        str | None, typer.Argument(metavar="FILTER", help="A part of the name, or a regular expression.")
    ] = None,
    downloaded: Annotated[bool, typer.Option("--downloaded", help="Only models whose files are here.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the model objects as JSON.")] = False,
) -> None:
    """List the models that this machine can run.

    First those that are here, then those that can be pulled. For an `outdated` one the registry has newer files, which
    `lemonade pull` gets.
    """
    listed = target_of(ctx).client().get("/v1/models" if downloaded else "/v1/models?show_all=true")["data"]
    rows = [row for row in listed if _matches(name, row["id"]) and (row.get("downloaded") or not downloaded)]
    rows.sort(key=lambda row: (not row.get("downloaded"), row["id"].lower()))
    if as_json:
        print_json(rows)
    elif rows:
        print_table(["model", "downloaded", "size", "recipe", "labels"], [_cells(row) for row in rows])
    else:
        note("No model matches." if name else "No model is here. See what there is: lemonade list")
    if rows and not as_json and sys.stdout.isatty() and not any(row.get("downloaded") for row in rows):
        note("None of them is here yet. Get one: lemonade pull MODEL")


def _matches(pattern: str | None, name: str) -> bool:
    if not pattern:
        return True
    if pattern.lower() in name.lower():
        return True
    try:
        return re.search(pattern, name, re.IGNORECASE) is not None
    except re.error:
        return False


def _cells(row: dict[str, Any]) -> list[str]:
    size = f"{row['size']:.2f} GB" if row.get("size") else "-"
    return [
        row["id"],
        "outdated" if row.get("update_available") else "yes" if row.get("downloaded") else "no",
        size.rjust(9),
        str(row.get("recipe", "")),
        " ".join(row.get("labels") or []),
    ]
