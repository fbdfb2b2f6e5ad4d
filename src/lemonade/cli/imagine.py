"""`lemonade imagine`: pictures from a text, from the first download to the file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade imagine "a red apple on a table" -o apple.png
lemonade imagine "a lighthouse at night" -o light.png --model SDXL-Turbo --size 768x512 --steps 4
lemonade imagine "a fox" -n 4 -o fox.png              fox-1.png to fox-4.png, each with another seed
lemonade imagine "a fox" --seed 7 > fox.png
"""

#: What is downloaded when there is no model for pictures yet: the smallest one of the catalog.
FIRST = "SD-Turbo-GGUF"


def imagine(
    ctx: typer.Context,
    prompt: Annotated[list[str], typer.Argument(metavar="PROMPT", help="What the picture shows.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where the picture goes; `-` is stdout.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help="The one that is here by default.", autocompletion=complete_model
        ),
    ] = None,
    size: Annotated[str | None, typer.Option("--size", metavar="WxH", help="In pixels, such as 512x512.")] = None,
    steps: Annotated[int | None, typer.Option("--steps", metavar="N", min=1, help="Steps of sampling.")] = None,
    cfg_scale: Annotated[
        float | None, typer.Option("--cfg-scale", metavar="X", min=0, help="How closely the prompt is followed.")
    ] = None,
    seed: Annotated[
        int | None, typer.Option("--seed", metavar="N", help="The same one gives the same picture.")
    ] = None,
    negative: Annotated[
        str | None, typer.Option("--negative", metavar="TEXT", help="What the picture should not show.")
    ] = None,
    count: Annotated[int, typer.Option("-n", metavar="N", min=1, help="How many pictures.")] = 1,
    show: Annotated[
        bool, typer.Option("--show/--no-show", help="Show it in terminals that can: kitty, iTerm2, sixel.")
    ] = True,
) -> None:
    """Make a picture, and show it.

    Starts a daemon if none runs, and downloads a model if none is here. Without --seed every picture is another one.
    """
    from lemonade.cli.picture import check_output, follow, save

    check_output(output, count)
    if not " ".join(prompt).strip():
        raise typer.BadParameter("The prompt is empty.", param_hint="PROMPT")

    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_missing

    client = ensure(target_of(ctx))
    name = model or chosen(client, FIRST, upscaling=False)
    fetch_missing(client, name)
    said = {"size": size, "steps": steps, "cfg_scale": cfg_scale, "negative_prompt": negative}
    request: dict[str, Any] = {"model": name, "prompt": _text(prompt), "n": count, "seed": -1 if seed is None else seed}
    request |= {key: value for key, value in said.items() if value is not None}
    save(follow(client, "/v1/images/generations", request, f"{name}: step"), output, show=show)


def chosen(client: Client, first: str, *, upscaling: bool) -> str:
    """A model for pictures that is loaded, or else one that is here, or else `first`."""
    loaded = {entry["model_name"] for entry in client.get("/v1/health").get("all_models_loaded", [])}
    here = [entry for entry in client.get("/v1/models")["data"] if entry.get("downloaded", True)]
    fits = [
        entry["id"]
        for entry in here
        if "image" in entry.get("labels", ()) and ("upscaling" in entry["labels"]) is upscaling
    ]
    return next(iter(sorted(fits, key=lambda name: name not in loaded)), first)


def _text(words: list[str]) -> str:
    if words == ["-"] and sys.stdin is not None:
        return sys.stdin.buffer.read().decode("utf-8", "replace")
    return " ".join(words).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
