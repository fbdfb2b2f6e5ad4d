"""`lemonade check-updates`: whether the registries have newer files of what is here."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json

EXAMPLES = """
lemonade check-updates
lemonade check-updates --json | jq -r '.models[]' | xargs -n1 lemonade pull
"""


def check_updates(
    ctx: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Ask the registries for newer files of the models that are here. Nothing is downloaded."""
    answer = target_of(ctx).client().post("/v1/models/check-updates", {})
    if as_json:
        print_json(answer)
        return
    for name in answer["models"]:
        print(name)
    for row in answer.get("unknown") or []:
        note(f"{row['model']} could not be checked: {row['message']}")
    if answer["models"]:
        note(f"Get the newer files: lemonade pull {answer['models'][0]}")
    elif not answer.get("unknown"):
        note("Every model is up to date.")
