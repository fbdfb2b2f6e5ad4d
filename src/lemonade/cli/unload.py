"""`lemonade unload`: give a model's memory back."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json

EXAMPLES = """
lemonade unload Qwen3-0.6B-GGUF
lemonade unload                   all of them
"""


def unload(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        typer.Argument(metavar="MODEL", help="The model; without it, all.", autocompletion=complete_model),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Unload a model, or all of them. Its files stay."""
    answer = target_of(ctx).client().post("/v1/unload", {"model_name": model} if model else {})
    if as_json:
        print_json(answer)
    else:
        note(f"{model} is unloaded." if model else "All models are unloaded.")
