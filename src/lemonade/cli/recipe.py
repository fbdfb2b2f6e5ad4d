"""The options of a recipe that `load` and `run` take, and the body of `POST /v1/load` that they make."""

from __future__ import annotations

from typing import Annotated, Any

import typer

CtxSize = Annotated[
    int | None, typer.Option("--ctx-size", metavar="TOKENS", help="Context size; -1 fits it to the memory.", min=-1)
]
Llamacpp = Annotated[str | None, typer.Option("--llamacpp", metavar="BACKEND", help="Backend of llama.cpp: cpu, …")]
LlamacppDevice = Annotated[
    str | None, typer.Option("--llamacpp-device", metavar="DEVICE", help="Device for llama.cpp.")
]
LlamacppArgs = Annotated[
    str | None, typer.Option("--llamacpp-args", metavar="ARGS", help='More arguments for llama.cpp, as one "word".')
]
Whispercpp = Annotated[
    str | None, typer.Option("--whispercpp", metavar="BACKEND", help="Backend of whisper.cpp: cpu, metal.")
]
WhispercppArgs = Annotated[
    str | None, typer.Option("--whispercpp-args", metavar="ARGS", help="More arguments for whisper.cpp.")
]
MoonshineArgs = Annotated[
    str | None, typer.Option("--moonshine-args", metavar="ARGS", help="More arguments for Moonshine.")
]
FasterwhisperArgs = Annotated[
    str | None, typer.Option("--fasterwhisper-args", metavar="ARGS", help="More arguments for faster-whisper.")
]
MergeArgs = Annotated[
    bool | None,
    typer.Option("--merge-args/--no-merge-args", help="Add to the arguments that hold already, or replace them."),
]
Pinned = Annotated[bool | None, typer.Option("--pinned/--no-pinned", help="Never unload it to make room.")]
SaveOptions = Annotated[bool, typer.Option("--save-options", help="Keep these options for this model.")]


def load_body(
    model: str,
    *,
    ctx_size: int | None,
    llamacpp: str | None,
    llamacpp_device: str | None,
    llamacpp_args: str | None,
    merge_args: bool | None,
    pinned: bool | None,
    save_options: bool,
    whispercpp: str | None = None,
    whispercpp_args: str | None = None,
    moonshine_args: str | None = None,
    fasterwhisper_args: str | None = None,
) -> dict[str, Any]:
    """The request that loads `model` with what was said; what was not said is left to the daemon."""
    said: dict[str, Any] = {
        "ctx_size": ctx_size,
        "llamacpp_backend": llamacpp,
        "llamacpp_device": llamacpp_device,
        "llamacpp_args": llamacpp_args,
        "whispercpp_backend": whispercpp,
        "whispercpp_args": whispercpp_args,
        "moonshine_args": moonshine_args,
        "fasterwhisper_args": fasterwhisper_args,
        "merge_args": merge_args,
        "pinned": pinned,
        "save_options": save_options or None,
    }
    return {"model_name": model, **{key: value for key, value in said.items() if value is not None}}
