"""`lemonade transcribe`: a recording as text."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import duration, harmless, note

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade transcribe talk.m4a                          the text, as it becomes known
lemonade transcribe film.mp4 -o film.srt              subtitles
lemonade transcribe interview.mp3 --language de --model Whisper-Small
lemonade transcribe rede.ogg --translate              into English
"""

#: Taken when nothing that transcribes is here: small, and knows many languages.
MODEL = "Whisper-Tiny"
#: Endings of files to formats.
ENDINGS = {".txt": "text", ".srt": "srt", ".vtt": "vtt", ".json": "verbose_json"}


class Format(StrEnum):
    TEXT = "text"
    JSON = "json"
    VERBOSE_JSON = "verbose_json"
    SRT = "srt"
    VTT = "vtt"


def transcribe(
    ctx: typer.Context,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file with sound in it.")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Where the text goes; its ending says the format."),
    ] = None,
    written: Annotated[
        Format | None, typer.Option("--format", help="How it is written; text if nothing says it.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", "-m", metavar="MODEL", autocompletion=complete_model, help="A model that transcribes."),
    ] = None,
    language: Annotated[
        str | None, typer.Option("--language", "-l", metavar="CODE", help="What is spoken, such as en; else found out.")
    ] = None,
    prompt: Annotated[
        str | None, typer.Option("--prompt", metavar="TEXT", help="Names and words that may come up.")
    ] = None,
    words: Annotated[bool, typer.Option("--words", help="With the times of the words, in verbose_json.")] = False,
    translate: Annotated[bool, typer.Option("--translate", help="Write it in English.")] = False,
) -> None:
    """Write down what is said in a recording.

    Starts a daemon if none runs, and downloads the model if it is not here. Without --model one that is here is taken.
    """
    if not file.is_file():
        raise typer.BadParameter(f"There is no file {file}.", param_hint="FILE")
    if output is not None and str(output) == "-":
        output = None
    if output is not None and not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"There is no folder {output.parent}.", param_hint="-o")
    wanted = written or Format(ENDINGS.get(output.suffix.lower(), "text") if output else "text")
    if words and wanted != Format.VERBOSE_JSON:
        raise typer.BadParameter("It goes with --format verbose_json.", param_hint="--words")

    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_missing

    client = ensure(target_of(ctx))
    model = model or choose(client)
    fetch_missing(client, model)
    fields = {"model": model}
    fields |= {"language": language} if language else {}
    fields |= {"prompt": prompt} if prompt else {}
    fields |= {"timestamp_granularities[]": "word"} if words else {}
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if translate:
        text = _translated(client, fields, file, wanted)
    else:
        text = listen(client, fields, file, wanted, aloud=output is None and wanted == Format.TEXT)
    if output is None:
        sys.stdout.write(harmless(text, sys.stdout))
        return
    part = output.with_name(f".{output.name}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(output)
    finally:
        part.unlink(missing_ok=True)
    note(f"The text is in {output}.")


def choose(client: Client) -> str:
    """A model that transcribes: one that is loaded, else one that is here, else the usual one."""
    for entry in client.get("/v1/health").get("all_models_loaded", ()):
        if entry.get("type") == "transcription":
            return str(entry["model_name"])
    for entry in client.get("/v1/models").get("data", ()):
        if "transcription" in entry.get("labels", ()) and entry.get("downloaded"):
            return str(entry["id"])
    return MODEL


def listen(client: Client, fields: dict[str, str], file: Path, wanted: Format, *, aloud: bool) -> str:
    """Has a recording transcribed and shows on stderr how far it is.

    Args:
        aloud: writes the text to stdout as it becomes known, instead of giving it back.

    Raises:
        RemoteError: the daemon refused. StreamCut: the answer broke off.
    """
    from lemonade.cli.form import form
    from lemonade.client import StreamCut

    asked = {**fields, "response_format": "verbose_json", "stream": "true"}
    came: list[dict[str, Any]] = []
    progress = Progress(quiet=aloud and sys.stdout.isatty())
    with client.stream("/v1/audio/transcriptions", *form(asked, file)) as events, progress:
        for event in events:
            if event.data == "[DONE]":
                break
            one = event.json()
            if one.get("type") == "transcript.text.done":
                if aloud:
                    sys.stdout.write("\n" if came else "")
                    return ""
                return _written(one, came, wanted)
            came.append(one)
            progress.show(one.get("end", 0.0))
            if aloud:
                sys.stdout.write(harmless(one["delta"], sys.stdout))
                sys.stdout.flush()
    raise StreamCut("The daemon closed the connection before the recording was transcribed.")


def _written(done: dict[str, Any], came: list[dict[str, Any]], wanted: Format) -> str:
    if wanted == Format.TEXT:
        return f"{done['text']}\n"
    if wanted in (Format.SRT, Format.VTT):
        from lemonade.inference.subtitles import srt, vtt

        said = [Cue(one["start"], one["end"], one["delta"]) for one in came]
        return srt(said) if wanted == Format.SRT else vtt(said)
    kept = ("text", "usage") if wanted == Format.JSON else [key for key in done if key != "type"]
    return json.dumps({key: done[key] for key in kept}, indent=2, ensure_ascii=False) + "\n"


def _translated(client: Client, fields: dict[str, str], file: Path, wanted: Format) -> str:
    from lemonade.cli.form import form

    asked = {"response_format": wanted.value} | {key: fields[key] for key in ("model", "prompt") if key in fields}
    with client.download("/v1/audio/translations", *form(asked, file)) as pieces:
        return b"".join(pieces).decode("utf-8", "replace")


class Cue:
    """One subtitle; times in seconds."""

    def __init__(self, start: float, end: float, text: str) -> None:
        self.start = start
        self.end = end
        self.text = text


class Progress:
    """On stderr, up to where the recording is transcribed: one line that changes on a terminal, else nothing.

    Args:
        quiet: shows nothing, as the text itself appears on the same terminal.
    """

    def __init__(self, *, quiet: bool) -> None:
        self._shown = not quiet and sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    def show(self, seconds: float) -> None:
        if self._shown:
            sys.stderr.write(f"\r\x1b[KTranscribed {duration(seconds)} of the recording")
            sys.stderr.flush()
