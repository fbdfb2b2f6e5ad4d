"""`lemonade route`: where a policy sends a request, and how it came to that."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import complete_model, target_of
from lemonade.cli.terminal import bold, dim, harmless, print_json

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade route policy.json "Why does this function crash?"
lemonade route user.MyRouter "Sum up this contract" --metadata team=legal
lemonade route policy.json "Hi" --tools --json
"""

#: What a policy consists of; a model object has more.
KEYS = ("version", "recipe", "components", "routing")

#: A piece of a tree: what is said, and what is below it.
Branch = tuple[str, list[Any]]


def route(
    ctx: typer.Context,
    policy: Annotated[
        str,
        typer.Argument(metavar="POLICY", help="A policy's file, or a router model.", autocompletion=complete_model),
    ],
    prompt: Annotated[str, typer.Argument(metavar="PROMPT", help="What is asked.")],
    tools: Annotated[bool, typer.Option("--tools", help="As if the request offered tools.")] = False,
    images: Annotated[bool, typer.Option("--images", help="As if pictures were in the request.")] = False,
    metadata: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="Of the request's metadata. May be repeated.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the decision as JSON.")] = False,
) -> None:
    """Show which model a policy chooses, and each condition that it looked at.

    No candidate is asked. Models of classifiers are, and are loaded for it.
    """
    from lemonade.cli.daemon import ensure

    said = dict(_pair(text) for text in metadata or [])
    document = read_policy(policy) if is_file(policy) else None
    client = ensure(target_of(ctx))
    body = {"policy": document or _registered(client, policy), "prompt": prompt, "has_tools": tools}
    answer = client.post("/v1/routing/validate", {**body, "has_images": images, "metadata": said}, timeout=600)
    if as_json:
        print_json(answer)
        return
    for line in lines(answer["decision"], answer["normalized_policy"]["routing"]):
        print(_printable(harmless(line, sys.stdout)))


def _printable(line: str) -> str:
    """The line as the output can show it: not every one knows the signs that trees are drawn with."""
    encoding = sys.stdout.encoding or "ascii"
    try:
        line.encode(encoding)
    except UnicodeEncodeError:
        line = line.translate(str.maketrans("├└│─→", "|`|->"))
        return line.encode(encoding, "replace").decode(encoding)
    return line


def is_file(policy: str) -> bool:
    """Whether a file is meant rather than a model."""
    path = Path(policy)
    return policy.endswith(".json") or policy.startswith(("./", "../")) or path.is_absolute() or path.is_file()


def read_policy(file: str) -> dict[str, Any]:
    """The policy in a file; one that `lemonade export` wrote holds one, too. What goes without saying may be left out:
    the version, the recipe, and the components, which are the models that it names.

    Raises:
        InvalidArgument: it holds none.
    """
    from lemonade.errors import InvalidArgument

    try:
        with open(file, encoding="utf-8") as opened:
            found = json.load(opened)
    except ValueError as error:
        raise InvalidArgument(f"{file} is no JSON: {error}") from error
    if not isinstance(found, dict) or "routing" not in found:
        raise InvalidArgument(f"{file} holds no policy: an object with `routing`.")
    # What only an export has is no mistake; any other key may be one, which the daemon tells.
    is_export = "labels" in found or "models" in found
    said = {key: found[key] for key in KEYS if key in found} if is_export else found
    return {"version": "1", "recipe": "collection.router", "components": _named(found["routing"]), **said}


def _named(routing: Any) -> list[str]:
    """The models that a policy names."""
    if not isinstance(routing, dict):
        return []
    # What is no array is the daemon's to tell.
    classifiers, candidates = (
        each if isinstance(each, list) else [] for each in (routing.get("classifiers"), routing.get("candidates"))
    )
    asked = [routing.get("router"), *classifiers]
    models = [*candidates, *(one.get("model") for one in asked if isinstance(one, dict))]
    return list(dict.fromkeys(name for name in models if isinstance(name, str)))


def _registered(client: Client, name: str) -> dict[str, Any]:
    from lemonade.client import path_of
    from lemonade.errors import InvalidArgument

    shown = client.get(path_of(name))
    if "routing" not in shown:
        raise InvalidArgument(f"{name} is no router, but a model of the recipe {shown.get('recipe')}.")
    return {key: shown[key] for key in KEYS if key in shown}


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise typer.BadParameter(f"{text!r} is not KEY=VALUE.", param_hint="--metadata")
    return key, value


def lines(decision: Mapping[str, Any], routing: Mapping[str, Any]) -> Iterator[str]:
    """The decision and, as a tree, the rules with the conditions that were looked at."""
    why = f"rule {decision['matched_rule']}" if decision["matched_rule"] else "no rule holds: the default"
    yield f"{bold(decision['route_to'], sys.stdout)}  ({why})"
    if outputs := decision.get("outputs"):
        yield f"outputs {json.dumps(outputs, ensure_ascii=False)}"
    steps = iter(decision.get("trace") or [])
    branches: list[Branch] = []
    found = False
    for rule in routing.get("rules", []):
        head = f"{rule['id']} → {rule['route_to']}"
        if found:
            branches.append((dim(f"{head}: not looked at", sys.stdout), []))
            continue
        result, branch = _follow(rule["match"], steps)
        found = result is True
        branches.append((f"{head}: {_answer(result)}", [branch]))
    yield from _draw(branches)


def _follow(match: Mapping[str, Any], steps: Iterator[Mapping[str, Any]]) -> tuple[bool | None, Branch]:
    """Goes through an expression as the daemon did, with its results; None where there is none."""
    if "not" in match:
        result, below = _follow(match["not"], steps)
        result = None if result is None else not result
        return result, (f"not: {_answer(result)}", [below])
    if "any" in match or "all" in match:
        key = "any" if "any" in match else "all"
        return _several(key, match[key], steps)
    from lemonade.catalog.policy.match import ORDER

    leaves = [key for key in ORDER if key in match]
    if len(leaves) == 1:
        return _leaf(leaves[0], match, steps)
    return _several(
        "all", [{"classifier": match} if key == "classifier" else {key: match[key]} for key in leaves], steps
    )


def _several(
    key: str, matches: Sequence[Mapping[str, Any]], steps: Iterator[Mapping[str, Any]]
) -> tuple[bool | None, Branch]:
    result: bool | None = key == "all"
    below: list[Branch] = []
    for one in matches:
        is_over = result is (key == "any") or result is None
        found, branch = _follow(one, iter(())) if is_over else _follow(one, steps)
        below.append(branch)
        result = result if is_over else found
    return result, (f"{key}: {_answer(result)}", below)


def _leaf(key: str, match: Mapping[str, Any], steps: Iterator[Mapping[str, Any]]) -> tuple[bool | None, Branch]:
    step = next(steps, None)
    what = _band(match) if key == "classifier" else f"{key} {json.dumps(match[key], ensure_ascii=False)}"
    if step is None:
        return None, (dim(f"{what}: not looked at", sys.stdout), [])
    said = [_answer(step["result"])]
    if "score" in step:
        said.append(f"{step['score']:.2f}")
    if step.get("rationale"):
        said.append(str(step["rationale"]))
    return bool(step["result"]), (f"{what}: {', '.join(said)}", [])


def _band(match: Mapping[str, Any]) -> str:
    inner = match["classifier"]
    if isinstance(inner, Mapping):  # taken out of an object with further conditions
        match = inner
    label = f" {match['label']}" if "label" in match else ""
    low = match.get("min_score", 0 if "max_score" in match else 0.5)
    return f"classifier {match['classifier']}{label}, {low} to {match.get('max_score', 1)}"


def _answer(result: bool | None) -> str:
    return "not looked at" if result is None else "yes" if result else "no"


def _draw(branches: Sequence[Branch], before: str = "") -> Iterator[str]:
    for number, (text, below) in enumerate(branches):
        is_last = number == len(branches) - 1
        yield f"{before}{'└── ' if is_last else '├── '}{text}"
        yield from _draw(below, before + ("    " if is_last else "│   "))
