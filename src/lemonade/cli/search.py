"""`lemonade search`: models on the hubs."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import urlencode

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json, print_table

EXAMPLES = """
lemonade search qwen3
lemonade search "phi 4" --source modelscope --limit 5
lemonade search bert --all        also what is no GGUF
"""


def search(
    ctx: typer.Context,
    query: Annotated[str, typer.Argument(metavar="QUERY", help="Part of a name, three letters or more.")],
    source: Annotated[str, typer.Option(metavar="REGISTRY", help="huggingface or modelscope.")] = "huggingface",
    limit: Annotated[int, typer.Option(metavar="COUNT", min=1, max=50, help="How many at most.")] = 12,
    everything: Annotated[bool, typer.Option("--all", help="Also repositories without GGUF files.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the daemon's answer as JSON.")] = False,
) -> None:
    """Look for models on a hub, those that fit best first."""
    asked = {"query": query, "source": source, "limit": limit, **({} if everything else {"format": "gguf"})}
    found = target_of(ctx).client().get(f"/v1/registry/search?{urlencode(asked, errors='replace')}", timeout=120)
    results = found["results"]
    if as_json:
        print_json(results)
    elif results:
        rows = [[each["repository_id"], f"{each['downloads']:>9}", f"{each['likes']:>5}"] for each in results]
        print_table(["repository", "downloads", "likes"], rows)
        note(f"Get one: lemonade pull {results[0]['repository_id']}")
    else:
        note(f"{found['source']} has nothing like {query!r}" + ("." if everything else " with GGUF files; try --all."))
