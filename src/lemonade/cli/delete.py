"""`lemonade delete`: give a model's disk space back."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Annotated

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json

if TYPE_CHECKING:
    from lemonade.client import Client

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
    client = target_of(ctx).client()
    if meant := _meant(client, model):
        raise typer.BadParameter(
            f"{model} is a second name of {meant}. Delete the model by its own name, or take this name away: "
            f"lemonade alias remove {model}",
            param_hint="MODEL",
        )
    answer = client.post("/v1/delete", {"model_name": model})
    if as_json:
        print_json(answer)
    else:
        note(f"{model} is deleted.")


def _meant(client: Client, name: str) -> str | None:
    """The model that an alias means. Who wants to be rid of a second name must not lose the files for it."""
    from lemonade.client import RemoteError

    with contextlib.suppress(RemoteError):  # without the key of the administrator there is no telling
        for row in client.get("/internal/aliases")["aliases"]:
            if row["alias"] == name:
                return str(row["target"])
    return None
