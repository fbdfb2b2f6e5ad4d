"""`lemonade system`: the machine that the daemon runs on."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lemonade.cli.target import target_of
from lemonade.cli.terminal import harmless, print_json, size

EXAMPLES = """
lemonade system
lemonade system --json | jq .devices
"""


def system(
    ctx: typer.Context,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what the daemon knows of the machine as JSON.")
    ] = False,
) -> None:
    """Show the machine, how busy it is, and on what engines run there."""
    import sys

    client = target_of(ctx).client()
    info, load = client.get("/v1/system-info"), client.get("/v1/system-stats")
    if as_json:
        print_json({**info, "load": load})
        return
    lines = [
        ("System", info["OS Version"]),
        ("Processor", f"{info['Processor']}, {_cores(info['devices']['cpu'])}{_busy(load['cpu_percent'])}"),
        ("Memory", f"{info['Physical Memory']}, {load['memory_gb']:.1f} GB in use"),
        *(("GPU", gpu) for gpu in _gpus(info["devices"])),
        ("Models", _storage(info["model_storage"])),
        *(
            ("Engine", f"{recipe} on {row['default_backend']}")
            for recipe, row in info["recipes"].items()
            if row.get("default_backend")
        ),
    ]
    for name, text in lines:
        print(f"{name:<10} {harmless(str(text), sys.stdout)}")


def _cores(cpu: dict[str, Any]) -> str:
    return f"{cpu['cores']} cores, {cpu['threads']} threads"


def _busy(percent: float | None) -> str:
    return "" if percent is None else f", {percent:.0f}% busy"


def _gpus(devices: dict[str, Any]) -> list[str]:
    found = []
    for kind in ("nvidia_gpu", "amd_gpu", "intel_gpu"):
        for gpu in devices.get(kind) or []:
            if gpu.get("available"):
                found.append(gpu["name"] + (f", {gpu['vram_gb']} GB" if gpu.get("vram_gb") else ""))
    if devices.get("metal"):
        found.append(devices["metal"]["name"])
    return found


def _storage(storage: dict[str, Any]) -> str:
    free = storage.get("free_bytes")
    return f"{storage['path']}, " + (f"{size(free)} free" if free is not None else str(storage.get("error")))
