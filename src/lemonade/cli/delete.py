"""`lemonade delete`: give a model's disk space back."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json

EXAMPLES = """
lemonade delete Qwen3-0.6B-GGUF
lemonade delete user.Tiny         one of your own: its definition goes, too
"""


def delete(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="As `lemonade list` names it.", autocompletion=complete_model)
    ],
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Unload a model and delete its files. Files that another model uses stay."""
    answer = target_of(ctx).client().post("/v1/delete", {"model_name": model})
    if as_json:
        print_json(answer)
    else:
        note(f"{model} is deleted.")
