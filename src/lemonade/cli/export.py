"""`lemonade export`: a model's definition as a file that another machine can import."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json

EXAMPLES = """
lemonade export Qwen3-0.6B-GGUF > qwen.json
lemonade export user.MyKit --output kit.json
"""

#: What a definition consists of; the rest of a model object describes this machine.
KEYS = (
    *("checkpoint", "checkpoints", "components", "model_name", "models", "image_defaults", "labels", "recipe"),
    *("recipe_options", "routing", "source", "registry_source", "size", "system_prompt", "version", "hashes"),
)


def export(
    ctx: typer.Context,
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="As `lemonade list` names it.", autocompletion=complete_model)
    ],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; else it is printed.")
    ] = None,
) -> None:
    """Write down what makes a model: where its files are, how it runs, its options.

    `lemonade import` reads it again, on this machine or another one. The files themselves are not in it.
    """
    from lemonade.client import path_of

    definition = definition_of(target_of(ctx).client().get(path_of(model)))
    if output is None:
        print_json(definition)
        return
    output.write_text(json.dumps(definition, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    note(f"{model} is described in {output}. Elsewhere: lemonade import {output}")


def definition_of(shown: Mapping[str, Any]) -> dict[str, Any]:
    """The definition in a model object: a body of `POST /v1/pull`."""
    found = {key: shown[key] for key in KEYS if shown.get(key) not in (None, "", [], {})}
    if options := {key: value for key, value in found.get("recipe_options", {}).items() if key != "pinned"}:
        found["recipe_options"] = options
    else:
        found.pop("recipe_options", None)
    if models := found.get("models"):
        found["models"] = [definition_of(each) for each in models]
    name = str(shown.get("model_name") or shown["id"])
    for prefix in ("user.", "extra.", "builtin."):
        name = name.removeprefix(prefix)
    return {"model_name": f"user.{name}", **found}
