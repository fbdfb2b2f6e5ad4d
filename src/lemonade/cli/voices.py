"""`lemonade voices`: with which voices a model speaks."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from lemonade.cli.speak import MODEL
from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade voices
lemonade voices --language fr
lemonade speak "Bonjour." --voice ff_siwis -o bonjour.mp3
"""


def voices(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model that speaks.", autocompletion=complete_model)
    ] = MODEL,
    language: Annotated[
        str | None, typer.Option("--language", "-l", metavar="CODE", help="Only those for it: en, en-GB, fr, ja, …")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what the daemon says.")] = False,
) -> None:
    """List the voices of a model."""
    from lemonade.cli.daemon import ensure

    answer = ensure(target_of(ctx)).get(f"/v1/audio/voices?model={quote(model, safe='', errors='replace')}")
    found = answer["voices"]
    if language is not None:
        wanted = language.lower()
        found = [one for one in found if one["language"].lower().startswith(wanted)]
    if as_json:
        print_json({**answer, "voices": found})
        return
    if not found:
        what = f" for {language}" if language else "; `--voice` of `lemonade speak` describes one in free words"
        note(f"{model} has no voices{what}.")
        return
    rows = [(one["id"], one["language"], one["gender"], one.get("stands_for", "")) for one in found]
    print_table(("voice", "language", "gender", "is"), rows)
