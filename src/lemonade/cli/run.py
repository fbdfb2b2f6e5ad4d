"""`lemonade run`: ask a model, from the first download to the last word."""

from __future__ import annotations

import os
import select
import stat
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli import recipe
from lemonade.cli.target import complete_model, target_of

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade run Qwen3-0.6B-GGUF                          a conversation: /help, Ctrl-C, Ctrl-D
lemonade run Qwen3-0.6B-GGUF "Why is the sky blue?"   one answer, on stdout
lemonade run Qwen3-0.6B-GGUF "Sum up:" - < notes.txt  the prompt, then the text
lemonade run kokoro-v1 "Good morning."                spoken, in speech.mp3 (see lemonade speak)
lemonade run Whisper-Tiny talk.m4a                    what is said in it (see lemonade transcribe)
lemonade run SD-Turbo-GGUF "A fox in the snow."       in picture.png (see lemonade imagine)
git diff | lemonade run Qwen3-0.6B-GGUF --system "Write a commit message."
"""


def run(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="As `lemonade list` names it.", autocompletion=complete_model)
    ],
    prompt: Annotated[
        list[str] | None,
        typer.Argument(metavar="PROMPT", help="The question; `-` at the end adds what stdin holds."),
    ] = None,
    system: Annotated[
        str | None, typer.Option("--system", "-s", metavar="TEXT", help="What the model is told first.")
    ] = None,
    max_tokens: Annotated[
        int | None, typer.Option("--max-tokens", metavar="N", min=1, help="Longest answer, in tokens.")
    ] = None,
    temperature: Annotated[
        float | None, typer.Option("--temperature", metavar="T", min=0, help="0 is the likeliest word each time.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the whole answer object.")] = False,
    ctx_size: recipe.CtxSize = None,
    llamacpp: recipe.Llamacpp = None,
    llamacpp_device: recipe.LlamacppDevice = None,
    llamacpp_args: recipe.LlamacppArgs = None,
    whispercpp: recipe.Whispercpp = None,
    whispercpp_args: recipe.WhispercppArgs = None,
    moonshine_args: recipe.MoonshineArgs = None,
    fasterwhisper_args: recipe.FasterwhisperArgs = None,
    merge_args: recipe.MergeArgs = None,
    pinned: recipe.Pinned = None,
    save_options: recipe.SaveOptions = False,
) -> None:
    """Ask a model; without a prompt, talk to it.

    Starts a daemon if none runs, downloads the model if it is not here, and prints the answer as it comes. Nothing but
    the answer goes to stdout.
    """
    question = _question(prompt or [])
    if question is not None and not question.strip():
        raise typer.BadParameter("The prompt is empty.", param_hint="PROMPT")
    if question is None and as_json:
        raise typer.BadParameter("--json needs a prompt.", param_hint="--json")

    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch
    from lemonade.client import path_of

    client = ensure(target_of(ctx))
    found = client.get(path_of(model))
    labels = found.get("labels", ())
    _check(model, labels, question)
    if found.get("downloaded") is False:
        fetch(client, {"model_name": model})
    load = recipe.load_body(
        model,
        ctx_size=ctx_size,
        llamacpp=llamacpp,
        llamacpp_device=llamacpp_device,
        llamacpp_args=llamacpp_args,
        whispercpp=whispercpp,
        whispercpp_args=whispercpp_args,
        moonshine_args=moonshine_args,
        fasterwhisper_args=fasterwhisper_args,
        merge_args=merge_args,
        pinned=pinned,
        save_options=save_options,
    )
    if len(load) > 1:
        client.post("/v1/load", load)
    said = {"max_tokens": max_tokens, "temperature": temperature}
    limits = {key: value for key, value in said.items() if value is not None}
    sys.stdout.reconfigure(errors="replace")  # type: ignore[union-attr]
    if question is not None and (act := next((act for label, act in OTHERS.items() if label in labels), None)):
        act(client, model, question)
        return
    if question is None:
        from lemonade.cli.chat import Chat

        Chat(client, model, system=_clean(system), limits=limits).talk()
        return
    messages: list[dict[str, Any]] = [{"role": "user", "content": question}]
    if system:
        messages.insert(0, {"role": "system", "content": _clean(system)})
    request = {"model": model, "messages": messages, **limits}
    if as_json:
        from lemonade.cli.terminal import print_json

        print_json(client.post("/v1/chat/completions", request))
        return
    from lemonade.cli.answer import Answer, show

    show(Answer(client, request), model)


def _check(model: str, labels: Sequence[str], prompt: str | None) -> None:
    """Raises typer.BadParameter for a prompt that such a model can do nothing with, before it is downloaded."""
    if "upscaling" in labels:
        raise typer.BadParameter(
            f"{model} makes pictures larger: lemonade upscale in.png --model {model} -o out.png", param_hint="MODEL"
        )
    if "tts" in labels and prompt is None:
        raise typer.BadParameter(f"{model} speaks: give it a text, or see lemonade speak --help.", param_hint="PROMPT")
    if "image" in labels and prompt is None:
        raise typer.BadParameter(
            f"{model} makes pictures: say what to show, or see lemonade imagine --help.", param_hint="PROMPT"
        )
    if "transcription" in labels and (prompt is None or not Path(prompt).is_file()):
        there = f"There is no file {prompt!r}. " if prompt else ""
        raise typer.BadParameter(
            f"{there}{model} writes down what is said in recordings: lemonade run {model} FILE, or see "
            "lemonade transcribe --help.",
            param_hint="PROMPT",
        )


def _speak(client: Client, model: str, text: str) -> None:
    """The prompt, spoken: a sound file in this folder, or on stdout if it is no terminal."""
    from lemonade.cli.media import free_name
    from lemonade.cli.speak import save

    request = {"model": model, "input": text, "response_format": "mp3"}
    save(client, request, free_name("speech", ".mp3") if sys.stdout.isatty() else None)


def _listen(client: Client, model: str, file: str) -> None:
    """What is said in the recording that the prompt names."""
    from lemonade.cli.transcribe import Format, listen

    listen(client, {"model": model}, Path(file), Format.TEXT, aloud=True)


def _draw(client: Client, model: str, text: str) -> None:
    """The picture of the prompt: a file in this folder, or on stdout if it is no terminal."""
    from lemonade.cli.media import free_name
    from lemonade.cli.picture import follow, save

    request = {"model": model, "prompt": text, "seed": -1}
    made = follow(client, "/v1/images/generations", request, f"{model}: step")
    save(made, free_name("picture", ".png") if sys.stdout.isatty() else None, show=True)


#: What models do with a prompt that are not made to answer it, by label.
OTHERS: dict[str, Callable[[Client, str, str], None]] = {"tts": _speak, "transcription": _listen, "image": _draw}


def _question(words: list[str]) -> str | None:
    """The prompt of the arguments, of stdin, or of both; None when a person is to be asked."""
    if words and words[-1] == "-":
        return "\n\n".join(filter(None, [" ".join(map(_text, words[:-1])), _piped()]))
    if words:
        if sys.stdin is not None and _is_waiting(sys.stdin.fileno()):
            from lemonade.cli.terminal import note

            note("Note: what stdin holds is not read, because there is a prompt. End the prompt with - to add it.")
        return " ".join(map(_text, words))
    if sys.stdin is not None and sys.stdin.isatty():
        return None
    return _piped()


def _piped() -> str:
    if sys.stdin is None:  # closed by whoever started us
        return ""
    return sys.stdin.buffer.read().decode("utf-8", "replace").strip()


def _is_waiting(stdin: int) -> bool:
    """Whether somebody piped something in. A look, not a read: a pipe that nobody writes to must not stop us."""
    if os.name != "posix" or not stat.S_ISFIFO(os.fstat(stdin).st_mode):
        return False
    readable, _, _ = select.select([stdin], [], [], 0)
    if not readable:
        return False
    # An end of file is readable, too.
    import array
    import fcntl
    import termios

    count = array.array("i", [0])
    fcntl.ioctl(stdin, termios.FIONREAD, count)
    return count[0] > 0


def _text(argument: str) -> str:
    """An argument as Unicode; bytes that are no UTF-8 become replacement characters."""
    return os.fsencode(argument).decode("utf-8", "replace")


def _clean(argument: str | None) -> str:
    return _text(argument) if argument else ""
