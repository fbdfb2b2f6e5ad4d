"""A model of a provider on loopback: through the daemon against straight to the provider.

python -m bench cloud
"""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.client import Client
from tests.daemon import FAKE_ENGINE, Daemon, free_port

ROUNDS = 5
REQUESTS = 100
STREAMS = 8
CHUNKS = 200


@contextmanager
def running(**switches: object) -> Iterator[tuple[Daemon, str]]:
    """A daemon whose provider `far` is a fake engine, and the address of that."""
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, str(FAKE_ENGINE), "-m", "bench", "--alias", "bench", "--port", str(port)]
    env = {**os.environ, "FAKE_ENGINE": json.dumps(switches)}
    with tempfile.TemporaryDirectory() as folder, subprocess.Popen(command, env=env, stderr=subprocess.DEVNULL) as far:
        try:
            _wait(f"{url}/health")
            with Daemon(Path(folder)) as daemon:
                body = {"backend": "cloud", "provider": "far", "base_url": f"{url}/v1", "allow_insecure_http": True}
                made = daemon.post("/v1/install", body).json()
                assert made["models_discovered"] == 1, made
                yield daemon, url
        finally:
            far.terminate()


def _wait(url: str) -> None:
    for _ in range(200):
        try:
            urllib.request.urlopen(url).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"{url} did not come up")


async def _alternate(
    daemon: Daemon, direct: str, measure: Callable[[Client], Awaitable[float | list[float]]]
) -> tuple[float, float]:
    """The medians of both ways, measured in turn."""
    results: tuple[list[float], list[float]] = ([], [])
    async with Client(daemon.url, "far.bench") as one, Client(direct, "bench") as other:
        for client in (one, other):
            await client.latencies(30)
        for _ in range(ROUNDS):
            for client, found in zip((one, other), results, strict=True):
                figures = await measure(client)
                found.extend(figures if isinstance(figures, list) else [figures])
    return statistics.median(results[0]), statistics.median(results[1])


def figures() -> Iterator[tuple[str, str, str]]:
    with running() as (daemon, url):
        through, direct = asyncio.run(_alternate(daemon, url, lambda client: client.latencies(REQUESTS)))
        yield "cloud: whole answer direct, p50", f"{direct * 1e3:.2f} ms", ""
        yield "cloud: whole answer, added", f"{(through - direct) * 1e3:.2f} ms", "want < 5 ms"
        yield "cloud: whole answer through / direct", f"{through / direct:.2f}", ""
    with running(tokens=2) as (daemon, url):
        through, direct = asyncio.run(_alternate(daemon, url, lambda client: client.first_chunks(REQUESTS)))
        yield "cloud: first chunk, added", f"{(through - direct) * 1e3:.2f} ms", "want < 5 ms"
        yield "cloud: first chunk through / direct", f"{through / direct:.2f}", ""
    for interval, pace in ((0.0, "as fast as they come"), (0.005, "5 ms apart")):
        with running(tokens=CHUNKS, interval=interval) as (daemon, url):
            through, direct = asyncio.run(_alternate(daemon, url, lambda client: client.chunk_rate(STREAMS, CHUNKS)))
            want = "want >= 0.85" if interval else ""
            yield f"cloud: {STREAMS} streams {pace}, chunks/s through / direct", f"{through / direct:.2f}", want
