"""`lemonade upscale`: a picture made larger."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of

EXAMPLES = """
lemonade upscale photo.jpg -o large.png
lemonade upscale drawing.png -o large.png --model RealESRGAN-x4plus-anime --factor 2
"""

FIRST = "RealESRGAN-x4plus"


def upscale(
    ctx: typer.Context,
    picture: Annotated[Path, typer.Argument(metavar="FILE", help="PNG, JPEG or WebP.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Where the picture goes; `-` is stdout.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            "--model", metavar="MODEL", help="The one that is here by default.", autocompletion=complete_model
        ),
    ] = None,
    factor: Annotated[
        int | None, typer.Option("--factor", metavar="N", min=1, help="How much larger; the model's own by default.")
    ] = None,
    show: Annotated[
        bool, typer.Option("--show/--no-show", help="Show it in terminals that can: kitty, iTerm2, sixel.")
    ] = False,
) -> None:
    """Make a picture larger.

    Starts a daemon if none runs, and downloads a model if none is here.
    """
    from lemonade.cli.picture import check_output, follow, save

    check_output(output, 1)
    image = base64.b64encode(picture.read_bytes()).decode()

    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_missing
    from lemonade.cli.imagine import chosen

    client = ensure(target_of(ctx))
    name = model or chosen(client, FIRST, upscaling=True)
    fetch_missing(client, name)
    request: dict[str, Any] = {"model": name, "image": image}
    if factor is not None:
        request["upscale_factor"] = factor
    save(follow(client, "/v1/images/upscale", request, f"{name}: part"), output, show=show)
