"""`lemonade collection`: one name for several models that work together, or of which one is chosen."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import note, print_json, print_table

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade collection create Studio Qwen3-4B-GGUF SD-Turbo kokoro-v1     models that work together
lemonade collection create Router --policy policy.json                 one of several is chosen
lemonade collection show user.Router
lemonade collection export user.Router --output router.json
lemonade collection import router.json
"""
CREATE_EXAMPLES = """
lemonade collection create Studio Qwen3-4B-GGUF SD-Turbo kokoro-v1 --system-prompt "You draw and speak."
lemonade collection create Router --policy policy.json
"""
SHOW_EXAMPLES = """
lemonade collection show LMX-Omni-5.5B-Lite
lemonade collection show user.Router --json
"""
EXPORT_EXAMPLES = """
lemonade collection export user.Router --output router.json
"""
IMPORT_EXAMPLES = """
lemonade collection import router.json
lemonade collection import - < router.json
"""

OMNI, ROUTER = "collection.omni", "collection.router"
_KINDS = {OMNI: "omni: the models work together", ROUTER: "router: one of the models is chosen"}


def collection() -> None:
    """Give several models one name: those that work together, or those of which a policy chooses one."""


def create(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The collection's name; `user.` need not be typed.")],
    models: Annotated[
        list[str] | None,
        typer.Argument(metavar="MODEL...", help="The models that work together.", autocompletion=complete_model),
    ] = None,
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Makes a router, which follows the policy in this file.")
    ] = None,
    system_prompt: Annotated[
        str | None, typer.Option(metavar="TEXT", help="What models that work together are told instead of the usual.")
    ] = None,
) -> None:
    """Define a collection, or change one. Nothing is downloaded."""
    from lemonade.cli.daemon import ensure

    if bool(models) == bool(policy):
        raise typer.BadParameter("name either the models that work together, or a --policy.", param_hint="MODEL...")
    if policy is not None:
        if system_prompt:
            raise typer.BadParameter("a router has no prompt of its own.", param_hint="--system-prompt")
        from lemonade.cli.route import read_policy

        definition = {key: value for key, value in read_policy(str(policy)).items() if key != "model_name"}
    else:
        definition = {"recipe": OMNI, "components": models}
        if system_prompt:
            definition["system_prompt"] = system_prompt
    name = name if name.startswith("user.") else f"user.{name}"
    made = ensure(target_of(ctx)).post("/v1/models/register", {**definition, "model_name": name}, timeout=60)
    shown = made["model_name"]
    is_here = (made.get("model") or {}).get("downloaded")
    note(f"{shown} is defined." + ("" if is_here else f" Some of its models are not here yet: lemonade pull {shown}"))
    note(f"Try: lemonade {'route' if policy else 'run'} {shown} PROMPT")


def show(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The collection.", autocompletion=complete_model)],
    as_json: Annotated[bool, typer.Option("--json", help="Print the model object as JSON.")] = False,
) -> None:
    """Show what a collection consists of, and a router's policy."""
    client = target_of(ctx).client()
    shown = _collection(client, name)
    if as_json:
        print_json(shown)
        return
    print(f"{shown['id']}  ({_KINDS.get(shown['recipe'], shown['recipe'])})")
    if prompt := shown.get("system_prompt"):
        print(f"system prompt  {prompt}")
    rows = []
    for component in shown["components"]:
        model = _component(client, component)
        size = f"{model['size']} GB" if model.get("size") else ""
        rows.append([component, model.get("recipe", "?"), size, _state(model)])
    if rows:
        print_table(["model", "recipe", "size", "downloaded"], rows)
    else:
        note(f"Its models are not known before it is downloaded: lemonade pull {shown['id']}")
    if routing := shown.get("routing"):
        _show_policy(routing)


def export(
    ctx: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The collection.", autocompletion=complete_model)],
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Where to write it; else it is printed.")
    ] = None,
) -> None:
    """Write down a collection with the definitions of its models, for `lemonade collection import` elsewhere."""
    from lemonade.cli.export import definition_of

    client = target_of(ctx).client()
    shown = _collection(client, name)
    shown["models"] = [found for each in shown["components"] if (found := _component(client, each))]
    definition = definition_of(shown)
    if output is None:
        print_json(definition)
        return
    output.write_text(json.dumps(definition, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    note(f"{name} is described in {output}. Elsewhere: lemonade collection import {output}")


def import_collection(
    ctx: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="What was exported; - reads stdin.")],
) -> None:
    """Define a collection as a file describes it, and download those of its models that are not here."""
    from lemonade.cli.daemon import ensure
    from lemonade.cli.download import fetch
    from lemonade.cli.importing import read_definition
    from lemonade.errors import InvalidArgument

    definition = read_definition(file)
    if definition["recipe"] not in _KINDS:
        raise InvalidArgument(f"{file} describes a model, not a collection. Use: lemonade import {file}")
    fetch(ensure(target_of(ctx)), {**definition, "do_not_upgrade": True})
    note(f"{definition['model_name']} is here. See it: lemonade collection show {definition['model_name']}")


def _collection(client: Client, name: str) -> dict[str, Any]:
    from lemonade.client import path_of
    from lemonade.errors import InvalidArgument

    shown: dict[str, Any] = client.get(path_of(name))
    if shown.get("recipe") not in _KINDS:
        raise InvalidArgument(f"{name} is no collection, but a model of the recipe {shown.get('recipe')}.")
    return shown


def _component(client: Client, name: str) -> dict[str, Any]:
    """Its model object, `{}` when this machine has no such model, or cannot run it."""
    from lemonade.client import RemoteError, path_of

    try:
        found: dict[str, Any] = client.get(path_of(name))
    except RemoteError as error:
        if error.status != 404:
            raise
        return {}
    return found


def _state(model: dict[str, Any]) -> str:
    return "not usable here" if not model else "yes" if model.get("downloaded") else "no"


def _show_policy(routing: dict[str, Any]) -> None:
    print(f"candidates  {', '.join(routing.get('candidates', []))}")
    print(f"default     {routing.get('default_model', '')}")
    if router := routing.get("router"):
        print(f"router      {router.get('model', '')}: {router.get('prompt', '')}")
    for one in routing.get("classifiers", []):
        print(f"classifier  {one.get('id')}: {one.get('type')} by {one.get('model')}")
    for rule in routing.get("rules", []):
        print(f"rule        {rule.get('id')} → {rule.get('route_to')} if {json.dumps(rule.get('match'))}")
