"""Listings of many models: a person's own definitions, and models whose files are here."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.client import Client
from tests.daemon import Daemon, gguf

#: Definitions of a person's own, without files.
USERS = (0, 100, 1000, 5000)
#: Models of the person's own whose files are here, as the hub's own tools left them.
DOWNLOADED = 100
REQUESTS = 200
#: Seconds after which the daemon looks at the disk again; see `catalog.RECHECK_SECONDS`.
RECHECK = 1.05
#: Seconds after which the daemon trusts the time of a change; see `snapshots._SETTLED`.
SETTLED = 3.5


def figures() -> Iterator[tuple[str, str, str]]:
    """Names, figures and wishes. Every model of the catalog is listed, also what cannot run here."""
    for users in USERS:
        for here in (0, DOWNLOADED):
            yield from _measure(users, here)


def _measure(users: int, here: int) -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), config={"disable_model_filtering": True})
        rows = {
            f"M{number}": {"checkpoints": {"main": f"owner/m{number}:m.gguf"}, "recipe": "llamacpp", "labels": ["chat"]}
            for number in range(users + here)
        }
        (daemon.folder / "config" / "user_models.json").write_text(json.dumps(rows))
        for number in range(here):
            _download(daemon.folder / "hub", f"owner/m{number}")
        time.sleep(SETTLED)
        with daemon:
            listed = len(daemon.get("/v1/models?show_all=true").json()["data"])
        with daemon:
            first, warm, looked, changed = asyncio.run(_ask(daemon))
    count = f"listing of {listed} models, {here} of them here"
    # The wishes are for the daemon's own part; 5000 models are 3 MB of JSON that a client has to read.
    usual = users == 0
    yield f"{count}: the first", f"{first * 1e3:.1f} ms", ""
    yield f"{count}: p50 after it", f"{warm * 1e3:.2f} ms", "want < 5 ms" if users <= 1000 else ""
    yield f"{count}: with a look at the disk", f"{looked * 1e3:.1f} ms", "want < 5 ms" if usual else ""
    yield f"{count}: after a change", f"{changed * 1e3:.1f} ms", ""


async def _ask(daemon: Daemon) -> tuple[float, float, float, float]:
    path = "/v1/models?show_all=true"
    async with Client(daemon.url, "bench") as client:
        await client.get_latencies("/live", 5)
        (first,) = await client.get_latencies(path, 1)
        warm = statistics.median(await client.get_latencies(path, REQUESTS))
        looked, changed = [], []
        for number in range(3):
            time.sleep(RECHECK)
            looked += await client.get_latencies(path, 1)
            daemon.post("/internal/aliases", {"alias": f"alias-{number}", "target": "SmolLM2-135M-Instruct-GGUF"})
            changed += await client.get_latencies(path, 1)
    return first, warm, statistics.median(looked), statistics.median(changed)


def _download(hub: Path, repository: str) -> None:
    """A repository in the cache, as the hub's own tools leave it."""
    content = gguf({"general.architecture": "llama", "general.name": repository})
    folder = hub / f"models--{repository.replace('/', '--')}"
    sha256 = hashlib.sha256(content).hexdigest()
    for part in ("blobs", "refs", "snapshots/c0ffee"):
        (folder / part).mkdir(parents=True)
    (folder / "blobs" / sha256).write_bytes(content)
    (folder / "refs" / "main").write_text("c0ffee")
    (folder / "snapshots" / "c0ffee" / "m.gguf").symlink_to(f"../../blobs/{sha256}")
    # As if it had come a while ago: what has just changed is read again until it has settled.
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            os.utime(path, (1e9, 1e9))
