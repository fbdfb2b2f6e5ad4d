"""`lemonade pull`: download a model, or define one of your own and download that."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlencode

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, size

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade pull Qwen3-0.6B-GGUF
lemonade pull unsloth/Qwen3-0.6B-GGUF:Q4_K_M
lemonade pull https://huggingface.co/unsloth/Qwen3-0.6B-GGUF
lemonade pull user.Tiny --recipe llamacpp --checkpoint unsloth/Qwen3-0.6B-GGUF:Q4_0
lemonade pull Qwen3-0.6B-GGUF --cancel                stop a download that goes on in the daemon
"""

#: Taken from a repository when nobody can be asked: the usual balance of size and quality.
USUAL = "Q4_K_M"


def pull(
    ctx: typer.Context,
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A name of `lemonade list`, `owner/repository[:variant]`, or `user.NAME` for one of your own.",
            autocompletion=complete_model,
        ),
    ],
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            "--checkpoint",
            metavar="[ROLE=]REPOSITORY[:VARIANT]",
            help="Where the files of your model are; the role is `main` unless said (`mmproj=…`). May be repeated.",
        ),
    ] = None,
    recipe: Annotated[
        str | None, typer.Option(metavar="RECIPE", help="What runs your model, such as llamacpp.")
    ] = None,
    label: Annotated[
        list[str] | None, typer.Option(metavar="LABEL", help="What it can do, such as vision. May be repeated.")
    ] = None,
    source: Annotated[str | None, typer.Option(metavar="REGISTRY", help="Where from: huggingface, modelscope.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Stop the running download of this model.")] = False,
) -> None:
    """Download a model.

    The daemon downloads; this command shows the progress. Ctrl-C ends the command and leaves the download to go on.
    """
    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch

    client = ensure(target_of(ctx))
    if cancel:
        client.post("/v1/downloads/control", {"id": f"model:{model}", "action": "cancel"}, timeout=30)
        note(f"The download of {model} is cancelled.")
        return
    if checkpoint or recipe:
        body = _own(model, checkpoint or [], recipe)
    elif "/" in model:
        body = _from_repository(client, model, source)
    else:
        body = {"model_name": model}
    if label:
        body["labels"] = label
    if source:
        body["source"] = source
    fetch(client, body)
    note(f"{body['model_name']} is here. Try: lemonade run {body['model_name']}")


def _own(name: str, given: list[str], recipe: str | None) -> dict[str, Any]:
    """The definition of the user's own model. Its name lives under `user.`, which need not be typed."""
    if not given or not recipe:
        raise typer.BadParameter("a model of your own needs both --checkpoint and --recipe.", param_hint="MODEL")
    checkpoints: dict[str, str] = {}
    for text in given:
        role, equals, where = text.partition("=")
        if not equals:
            role, where = "main", text
        if role in checkpoints:
            raise typer.BadParameter(f"the role {role!r} is given twice.", param_hint="--checkpoint")
        checkpoints[role] = where
    if "main" not in checkpoints:
        raise typer.BadParameter("one checkpoint must have the role main.", param_hint="--checkpoint")
    name = name if name.startswith("user.") else f"user.{name}"
    return {"model_name": name, "recipe": recipe, "checkpoints": checkpoints}


def _from_repository(client: Client, text: str, source: str | None) -> dict[str, Any]:
    """The definition that a repository suggests for itself."""
    from lemonade.hub import address

    if read := address.read(text):
        checkpoint, variant, source = read.repository, read.variant, read.registry
    else:
        checkpoint, _, variant = text.rpartition(":") if ":" in text.rsplit("/", 1)[-1] else (text, "", "")
    query = {"checkpoint": checkpoint, **({"source": source} if source else {})}
    found = client.get(f"/v1/pull/variants?{urlencode(query, errors='replace')}", timeout=120)
    repository = found["checkpoint"]
    name = found["suggested_name"]
    variants = found.get("variants") or []
    if not variants:
        return {"model_name": f"user.{name}", "recipe": found["recipe"], "checkpoint": repository}
    if not variant:
        variant = _choose(variants)
    checkpoints = {"main": f"{repository}:{variant}"}
    for role, key in (("mmproj", "mmproj_files"), ("draft", "draft_files")):
        files = found.get(key) or []
        # Of several projectors the first is as good as any; of several drafts none is the obvious one.
        if files and (role == "mmproj" or len(files) == 1):
            checkpoints[role] = f"{repository}:{files[0]}"
    # A file's own name says what it is; a quantisation's does not.
    file = variant.rpartition("/")[2]
    named = file.rpartition(".")[0] if file.lower().endswith(".gguf") else f"{name}-{variant}"
    body = {"model_name": f"user.{named}", "recipe": found["recipe"], "checkpoints": checkpoints}
    if labels := found.get("suggested_labels"):
        body["labels"] = labels
    return body


def _choose(variants: list[dict[str, Any]]) -> str:
    names = [str(variant["name"]) for variant in variants]
    usual = next((name for name in names if name.upper() == USUAL), names[0])
    if len(names) == 1 or not (sys.stdin.isatty() and sys.stderr.isatty()):
        note(f"Taking the variant {usual}" + (f" of {', '.join(names)}." if len(names) > 1 else "."))
        return usual
    for variant in variants:
        note(f"  {variant['name']:<14} {size(variant.get('size_bytes') or 0):>10}")
    chosen: str = typer.prompt("Which variant?", default=usual, err=True)
    return next((name for name in names if name.lower() == chosen.lower()), chosen)
