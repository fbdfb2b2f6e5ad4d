"""`lemonade serve` and `lemond`: the daemon in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lemonade.cli.target import target_of

EXAMPLES = """
lemonade serve
lemonade serve --port 8000
lemonade serve --host 0.0.0.0     reachable from other machines; set LEMONADE_API_KEY first
"""
LEMOND_EXAMPLES = """
lemond
lemond --port 8000
lemond ./lemonade-data            keep everything in one folder
"""

Host = Annotated[str | None, typer.Option("--host", metavar="HOST", help="Address to listen on.")]
Port = Annotated[int | None, typer.Option("--port", metavar="PORT", min=1, max=65535, help="TCP port to listen on.")]
LogLevel = Annotated[
    str | None, typer.Option("--log-level", metavar="LEVEL", help="trace, debug, info, warning, error, fatal or none.")
]


def serve(ctx: typer.Context, host: Host = None, port: Port = None, log_level: LogLevel = None) -> None:
    """Run the daemon in the foreground until Ctrl-C. It logs to stderr."""
    target = target_of(ctx)
    _run(None, None, host=host or target.host, port=port or target.port, log_level=log_level)


def lemond(
    cache_dir: Annotated[
        Path | None, typer.Argument(metavar="CACHE_DIR", help="Folder for logs and partial files.")
    ] = None,
    config_dir: Annotated[
        Path | None,
        typer.Argument(metavar="CONFIG_DIR", help="Folder for settings; CACHE_DIR if only that is given."),
    ] = None,
    host: Host = None,
    port: Port = None,
    log_level: LogLevel = None,
) -> None:
    """Run the daemon of Lemonade in the foreground until Ctrl-C. It logs to stderr."""
    _run(cache_dir, config_dir, host=host, port=port, log_level=log_level)


def _run(
    cache_dir: Path | None, config_dir: Path | None, *, host: str | None, port: int | None, log_level: str | None
) -> None:
    from lemonade.app import run
    from lemonade.paths import Paths
    from lemonade.settings import Settings

    paths = Paths.find(cache=cache_dir, config=config_dir)
    settings = Settings.open(paths.config, flags={"host": host, "port": port, "log_level": log_level})
    raise typer.Exit(run(settings, paths))
