"""`lemonade cloud`: providers of models, and their keys."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import note, print_json, print_table

if TYPE_CHECKING:
    from lemonade.client import Client

EXAMPLES = """
lemonade cloud install openai --base-url https://api.openai.com/v1
lemonade cloud auth openai                    asks for the key, and keeps it until the daemon ends
lemonade list --downloaded openai             its models
lemonade run openai.gpt-5 "Why is the sky blue?"
"""
INSTALL_EXAMPLES = """
lemonade cloud install openai --base-url https://api.openai.com/v1
lemonade cloud install anthropic --base-url https://api.anthropic.com/v1 --wire-format anthropic
lemonade cloud install big --base-url http://192.168.1.20:8000/v1 --allow-insecure-http
"""
UNINSTALL_EXAMPLES = """
lemonade cloud uninstall openai
"""
AUTH_EXAMPLES = """
lemonade cloud auth openai                    asks for the key and does not show it
pass show openai | lemonade cloud auth openai
LEMONADE_OPENAI_API_KEY=… lemonade serve      lasts as long as the environment does
"""
CLEAR_EXAMPLES = """
lemonade cloud clear openai
"""
LIST_EXAMPLES = """
lemonade cloud list
lemonade cloud list --json
"""

Name = Annotated[str, typer.Argument(metavar="PROVIDER", help="Its name: a-z, 0-9, - and _.")]
Key = Annotated[
    str | None,
    typer.Option("--api-key", metavar="KEY", help="Its key. Others can see it in the list of processes: better not."),
]
Insecure = Annotated[
    bool, typer.Option("--allow-insecure-http", help="Consent to plain http, which others can read on the way.")
]


def cloud() -> None:
    """Use models of cloud providers, and of other machines, beside the local ones."""


def install(
    ctx: typer.Context,
    provider: Name,
    base_url: Annotated[
        str | None, typer.Option("--base-url", metavar="URL", help="The address of its API, up to /v1.")
    ] = None,
    api_key: Key = None,
    allow_insecure_http: Insecure = False,
    wire_format: Annotated[
        str | None, typer.Option("--wire-format", metavar="WIRE", help="openai (the default) or anthropic.")
    ] = None,
    auth_header_name: Annotated[
        str | None, typer.Option("--auth-header-name", metavar="NAME", help="The header for the key.")
    ] = None,
    auth_header_prefix: Annotated[
        str | None, typer.Option("--auth-header-prefix", metavar="TEXT", help="What stands in it before the key.")
    ] = None,
) -> None:
    """Add a provider, or change it: what is not said stays as it was."""
    given: dict[str, Any] = {
        "base_url": base_url,
        "api_key": api_key,
        "allow_insecure_http": allow_insecure_http or None,
        "wire_format": wire_format,
        "auth_header_name": auth_header_name,
        "auth_header_prefix": auth_header_prefix,
    }
    body = {
        "backend": "cloud",
        "provider": provider,
        **{key: value for key, value in given.items() if value is not None},
    }
    made = _client(ctx).post("/v1/install", body, timeout=60)
    _report(made)
    if not any(made["auth_state"].values()) and not made["models_discovered"]:
        note(f"Give its key: lemonade cloud auth {provider}")


def uninstall(ctx: typer.Context, provider: Name) -> None:
    """Remove a provider with its key and its models."""
    done = _client(ctx).post("/v1/uninstall", {"backend": "cloud", "provider": provider}, timeout=60)
    note(f"{provider} is removed, and {_models(done['models_evicted'])} with it.")


def auth(ctx: typer.Context, provider: Name, api_key: Key = None, allow_insecure_http: Insecure = False) -> None:
    """Give a provider's key. The daemon keeps it in memory until it ends, and writes it nowhere."""
    key = api_key or _asked(provider)
    body: dict[str, Any] = {"provider": provider, "api_key": key}
    if allow_insecure_http:
        body["allow_insecure_http"] = True
    _report(_client(ctx).post("/v1/cloud/auth", body, timeout=60))
    variable = f"LEMONADE_{provider.upper().replace('-', '_')}_API_KEY"
    note(f"After a restart of the daemon it is asked for anew; {variable} in its environment lasts.")


def clear(ctx: typer.Context, provider: Name) -> None:
    """Forget a provider's key."""
    from urllib.parse import quote

    done = _client(ctx).delete(f"/v1/cloud/auth/{quote(provider, safe='', errors='replace')}")
    said = f"The key of {provider} is forgotten." if done["cleared_runtime_key"] else f"{provider} had no such key."
    note(said + (" The one of the daemon's environment stays." if done["auth_state"]["env_var_set"] else ""))


def list_providers(
    ctx: typer.Context, as_json: Annotated[bool, typer.Option("--json", help="Print the providers as JSON.")] = False
) -> None:
    """List the providers, and whether they have keys."""
    rows = target_of(ctx).client().get("/v1/cloud")["providers"]
    if as_json:
        print_json(rows)
    elif rows:
        cells = [
            [
                row["provider"],
                row["base_url"],
                row["wire_format"],
                str(row["models_discovered"]),
                _key(row["auth_state"]),
            ]
            for row in rows
        ]
        print_table(["provider", "address", "wire", "models", "key"], cells)
    else:
        note("No provider is installed. Add one: lemonade cloud install PROVIDER --base-url URL")


def _client(ctx: typer.Context) -> Client:
    from lemonade.cli.daemon import ensure

    return ensure(target_of(ctx))


def _report(made: dict[str, Any]) -> None:
    for warning in made.get("warnings") or ():
        note(f"Warning: {warning}")
    found = made["models_discovered"]
    name = made["provider"]
    note(f"{name} offers {_models(found)}." + (f" See them: lemonade list --downloaded {name}" if found else ""))


def _asked(provider: str) -> str:
    """The key that a person types unseen, or that stdin holds."""
    if not sys.stdin.isatty():
        return sys.stdin.readline().strip()
    from getpass import getpass

    return getpass(f"Key of {provider}: ", stream=sys.stderr if os.name == "posix" else None).strip()


def _key(state: dict[str, bool]) -> str:
    if state["env_var_set"]:
        return "from the environment"
    return "until the daemon ends" if state["runtime_key_set"] else "none"


def _models(count: int) -> str:
    return "one model" if count == 1 else f"{count or 'no'} models"
