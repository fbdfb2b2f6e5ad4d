"""`lemonade scan`: models that other programs have downloaded already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json, print_table, size

if TYPE_CHECKING:
    from lemonade.hub.neighbours import Found

EXAMPLES = """
lemonade scan                 what Ollama, LM Studio and the Hugging Face cache have
lemonade scan --add           use all of it, where it lies
lemonade scan llama --add     only what has "llama" in its name
"""


def scan(
    ctx: typer.Context,
    name: Annotated[str | None, typer.Argument(metavar="FILTER", help="A part of the name.")] = None,
    add: Annotated[bool, typer.Option("--add", help="Define a model of your own for each; nothing is copied.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print what is found as JSON.")] = False,
) -> None:
    """Find GGUF models that other programs on this machine have downloaded."""
    from lemonade.hub.neighbours import find

    found = [each for each in find() if not name or name.lower() in each.name.lower()]
    if add:
        _add(ctx, found)
    elif as_json:
        print_json([{"tool": each.tool, "name": each.name, **_definition(each), "size": each.size} for each in found])
    elif found:
        rows = [[each.name, each.tool, size(each.size).rjust(9), each.checkpoints["main"]] for each in found]
        print_table(["model", "found in", "size", "where"], rows)
        note("Use them here: lemonade scan --add")
    elif name:
        note(f"Nothing with '{name}' in its name was found. All that there is: lemonade scan")
    else:
        note("Nothing was found in the folders of Ollama, LM Studio and the Hugging Face cache.")


def _add(ctx: typer.Context, found: list[Found]) -> None:
    from lemonade.cli.daemon import ensure
    from lemonade.errors import InvalidArgument

    target = target_of(ctx)
    if not target.address().is_local:
        raise InvalidArgument(
            f"The daemon at {target.address()} is on another machine and cannot use files of this one."
        )
    client = ensure(target)
    listed = client.get("/v1/models?show_all=true")["data"]
    known = {str(row.get("checkpoint")) for row in listed}
    names = {row["id"].removeprefix("user.") for row in listed}
    new = [each for each in found if each.checkpoints["main"] not in known]
    for each in new:
        name = _free_name(each, names)
        client.post("/v1/models/register", {"model_name": f"user.{name}", **_definition(each)}, timeout=60)
        names.add(name)
        note(f"{name} can be used. Try: lemonade run {name}")
    if not new:
        note("There is nothing new.")


def _free_name(found: Found, taken: set[str]) -> str:
    """A name that no other model has: registering would replace that one."""
    name, number = found.name, 1
    while name in taken:
        name = f"{found.name}-{found.tool}" + (f"-{number}" if number > 1 else "")
        number += 1
    return name


def _definition(found: Found) -> dict[str, Any]:
    source = "huggingface" if found.tool == "huggingface" else "local_path"
    labels = ["chat", "vision"] if "mmproj" in found.checkpoints else []
    return {"recipe": "llamacpp", "checkpoints": found.checkpoints, "labels": labels, "source": source}
