"""`lemonade speak`: a text as a sound file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade speak "Good morning." -o morning.mp3
lemonade speak -o chapter.opus < chapter.txt
lemonade speak "Buongiorno." --voice if_sara --speed 0.9 -o ciao.wav
lemonade speak "Listen." --format wav | aplay        lemonade voices lists the voices
"""

MODEL = "kokoro-v1"
#: Endings of files to formats.
ENDINGS = {
    ".mp3": "mp3",
    ".wav": "wav",
    ".opus": "opus",
    ".ogg": "opus",
    ".flac": "flac",
    ".aac": "aac",
    ".pcm": "pcm",
    ".raw": "pcm",
    ".l16": "pcm",
}


def speak(
    ctx: typer.Context,
    text: Annotated[
        list[str] | None, typer.Argument(metavar="TEXT", help="What to say; without it, what stdin holds.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the sound goes; its ending says the format."),
    ] = None,
    voice: Annotated[str | None, typer.Option("--voice", help="As `lemonade voices` names it.")] = None,
    speed: Annotated[
        float | None, typer.Option("--speed", min=0.25, max=4.0, help="Rate of speech; 1 is usual.")
    ] = None,
    form: Annotated[
        str | None, typer.Option("--format", metavar="NAME", help="mp3, opus, aac, flac, wav or pcm.")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", metavar="MODEL", autocompletion=complete_model, help="A model that speaks.")
    ] = MODEL,
) -> None:
    """Say a text with a voice of this machine.

    Starts a daemon if none runs, and downloads the model if it is not here. Without -o the sound goes to stdout, if
    that is no terminal.
    """
    said = _text(text or [])
    if not said.strip():
        raise typer.BadParameter("There is no text.", param_hint="TEXT")
    if output is not None and str(output) == "-":
        output = None
    if output is None and sys.stdout.isatty():
        raise typer.BadParameter("Say where the sound goes: -o FILE, or a pipe.", param_hint="-o")
    ending = output.suffix.lower() if output else ""
    if output is not None and form is None and ending not in ENDINGS:
        known = ", ".join(ENDINGS)
        raise typer.BadParameter(f"{output.name} must end in one of {known}, or give --format.", param_hint="-o")
    if output is not None and not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"There is no folder {output.parent}.", param_hint="-o")
    request: dict[str, Any] = {"model": model, "input": said, "response_format": form or ENDINGS.get(ending, "mp3")}
    request |= {key: value for key, value in {"voice": voice, "speed": speed}.items() if value is not None}

    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_missing

    client = ensure(target_of(ctx))
    fetch_missing(client, model)
    save(client, request, output)


def save(client: Client, request: dict[str, Any], output: Path | None) -> None:
    """Has a text spoken, into a file that is there only when it is whole, or else to stdout as it comes.

    Raises:
        RemoteError: the daemon refused. StreamCut: the sound broke off.
    """
    if output is None:
        with client.download("/v1/audio/speech", {**request, "stream": True}) as pieces:
            for piece in pieces:
                sys.stdout.buffer.write(piece)
                sys.stdout.buffer.flush()
        return
    part = output.with_name(f".{output.name}.part")
    try:
        with client.download("/v1/audio/speech", request) as pieces, part.open("wb") as file:
            for piece in pieces:
                file.write(piece)
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    note(f"The sound is in {output}.")


def _text(words: list[str]) -> str:
    if words and words != ["-"]:
        return " ".join(words).encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    if sys.stdin is None or sys.stdin.isatty():
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace")
