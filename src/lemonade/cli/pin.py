"""`lemonade pin` and `lemonade unpin`: whether a loaded model may be unloaded to make room."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note

PIN_EXAMPLES = """
lemonade pin Qwen3-0.6B-GGUF
lemonade load Qwen3-0.6B-GGUF --pinned     load it and pin it at once
"""
UNPIN_EXAMPLES = """
lemonade unpin Qwen3-0.6B-GGUF
"""

Model = Annotated[str, typer.Argument(metavar="MODEL", help="A model that is loaded.", autocompletion=complete_model)]


def pin(ctx: typer.Context, model: Model) -> None:
    """Keep a loaded model in memory.

    Whatever else is loaded, it is not unloaded to make room.
    """
    _set(ctx, model, True)


def unpin(ctx: typer.Context, model: Model) -> None:
    """Let a pinned model be unloaded again.

    It goes when another one needs the room.
    """
    _set(ctx, model, False)


def _set(ctx: typer.Context, model: str, pinned: bool) -> None:
    target_of(ctx).client().post("/internal/pin", {"model_name": model, "pinned": pinned})
    note(f"{model} is {'pinned' if pinned else 'no longer pinned'}.")
