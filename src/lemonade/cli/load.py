"""`lemonade load`: bring a model into memory before somebody asks it."""

from __future__ import annotations

from typing import Annotated

import typer

from lemonade.cli import recipe
from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json

#: What is said, by recipe, where a load succeeds and leaves nothing in memory.
_NOTHING_LOADED = {
    "collection.router": "{} is a router, which loads the models that it needs when it needs them.",
    "cloud": "{} runs at its provider, so there is nothing to load.",
}

EXAMPLES = """
lemonade load Qwen3-0.6B-GGUF
lemonade load Qwen3-0.6B-GGUF --ctx-size 8192 --save-options
lemonade load Qwen3-0.6B-GGUF --llamacpp-args "--temp 0.2" --pinned
"""


def load(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="As `lemonade list` names it.", autocompletion=complete_model)
    ],
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
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Load a model into memory.

    Its files are downloaded first if they are not here, and a daemon is started if none runs.
    """
    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch_missing

    client = ensure(target_of(ctx))
    fetch_missing(client, model)
    body = recipe.load_body(
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
    answer = client.post("/v1/load", body)
    if as_json:
        print_json(answer)
    else:
        note(_NOTHING_LOADED.get(answer.get("recipe"), "{} is loaded.").format(model))
