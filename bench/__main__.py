"""What the daemon costs: through it, against straight to the engine, in one run.

    python -m bench            all figures
    python -m bench chat idle  some of them
    python -m bench soak 5     mixed load for five minutes: what leaks, what gets lost

The engine is the fake one of the tests, so that its own time is small and ours shows.
"""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from bench.client import Client
from tests.daemon import Daemon

REQUESTS = 600
CLIENTS = 16
STREAMS = 8
CHUNKS = 200


@contextmanager
def running(**switches: object) -> Iterator[tuple[Daemon, str]]:
    """A daemon with one model loaded, and the address of its engine."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), switches=dict(switches), config={"max_queued_requests": 1000})
        daemon.add_model("bench")
        with daemon:
            assert daemon.chat("bench").status == 200
            yield daemon, daemon.engine()


def row(name: str, figure: str, want: str = "") -> None:
    print(f"{name:<54}{figure:>14}   {want}", flush=True)


def chat() -> None:
    """Whole answers: latency with one client, throughput with sixteen."""
    with running() as (daemon, engine):
        through, direct = asyncio.run(_alternate(daemon.url, engine, lambda client: client.latencies(REQUESTS // 4)))
        p50 = statistics.median(through) / statistics.median(direct)
        row("chat, 1 client: p50 direct", f"{statistics.median(direct) * 1e3:.2f} ms")
        row("chat, 1 client: p50 through / direct", f"{p50:.2f}", "want <= 2.0")
        rates_through, rates_direct = asyncio.run(
            _alternate(daemon.url, engine, lambda client: client.rate(CLIENTS, REQUESTS))
        )
        row(f"chat, {CLIENTS} clients: requests/s direct", f"{statistics.median(rates_direct):.0f}")
        row(f"chat, {CLIENTS} clients: requests/s through", f"{statistics.median(rates_through):.0f}")
        ratio = statistics.median(rates_through) / statistics.median(rates_direct)
        row(f"chat, {CLIENTS} clients: requests/s through / direct", f"{ratio:.2f}", "want >= 0.25")


def stream() -> None:
    """Streams: chunks per second of eight at once, and the delay of the first chunk."""
    with running(tokens=CHUNKS) as (daemon, engine):
        through, direct = asyncio.run(_alternate(daemon.url, engine, lambda client: client.chunk_rate(STREAMS, CHUNKS)))
        row(f"stream, {STREAMS} x {CHUNKS} chunks: chunks/s direct", f"{statistics.median(direct):.0f}")
        ratio = statistics.median(through) / statistics.median(direct)
        row(f"stream, {STREAMS} x {CHUNKS} chunks: chunks/s through / direct", f"{ratio:.2f}", "want >= 0.85")
    with running(tokens=CHUNKS, interval=0.005) as (daemon, engine):
        paced_through, paced_direct = asyncio.run(
            _alternate(daemon.url, engine, lambda client: client.chunk_rate(STREAMS, CHUNKS))
        )
        ratio = statistics.median(paced_through) / statistics.median(paced_direct)
        row("stream, 5 ms apart: chunks/s through / direct", f"{ratio:.2f}", "want >= 0.85")
    with running(tokens=2) as (daemon, engine):
        first_through, first_direct = asyncio.run(
            _alternate(daemon.url, engine, lambda client: client.first_chunks(REQUESTS // 4))
        )
        added = statistics.median(first_through) - statistics.median(first_direct)
        row("stream: first chunk, added", f"{added * 1e3:.2f} ms", "want < 1 ms")


async def _alternate(through: str, direct: str, measure: Callable[[Client], object]) -> tuple[list[float], list[float]]:
    """Measures both ways in turn, so that what else the machine does falls on both."""
    results: tuple[list[float], list[float]] = ([], [])
    async with Client(through, "bench") as one, Client(direct, "bench") as other:
        for client in (one, other):
            await client.latencies(50)
        for _ in range(5):
            for client, found in zip((one, other), results, strict=True):
                figures = await measure(client)  # type: ignore[misc]
                found.extend(figures if isinstance(figures, list) else [figures])
    return results


def start() -> None:
    """From the command to the first answer of /live, and what the daemon then holds."""
    times = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(6):
            daemon = Daemon(Path(folder) / str(number))
            begin = time.perf_counter()
            with daemon:
                times.append(time.perf_counter() - begin)
    # The first start compiles and fills the page cache.
    row("start to /live, median of 5", f"{statistics.median(times[1:]):.2f} s", "want <= 0.8 s")


def idle() -> None:
    """Memory of a daemon that has been asked for its models and has none loaded."""
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder)) as daemon:
        daemon.get("/v1/models?show_all=true")
        daemon.get("/v1/health")
        time.sleep(1)
        assert daemon.process is not None
        process = psutil.Process(daemon.process.pid)
        total = sum(one.memory_info().rss for one in (process, *process.children(recursive=True)))
        row("idle memory (RSS)", f"{total / 1e6:.0f} MB", "want <= 90 MB")


def cli() -> None:
    """`lemonade --help`, whole process."""
    times = []
    for _ in range(11):
        begin = time.perf_counter()
        subprocess.run([Path(sys.executable).with_name("lemonade"), "--help"], check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    row("lemonade --help, median", f"{statistics.median(times[1:]):.2f} s", "want <= 0.25 s")


def models() -> None:
    """The whole catalog."""

    async def measure(url: str) -> list[float]:
        async with Client(url, "bench") as client:
            await client.get_latencies("/v1/models?show_all=true", 20)
            return await client.get_latencies("/v1/models?show_all=true", 300)

    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder)) as daemon:
        p50 = statistics.median(asyncio.run(measure(daemon.url)))
        row("GET /v1/models?show_all=true, p50", f"{p50 * 1e3:.2f} ms", "want <= 4 ms")


def listing() -> None:
    """What a listing costs with many models: the first one, one after a change, and one that looks at the disk."""
    from bench.listing import figures

    for line in figures():
        row(*line)


def routing() -> None:
    """A router's decision by a policy of 200 rules."""
    from bench.routing import figures

    for line in figures():
        row(*line)


def cloud() -> None:
    """A model of a provider on loopback."""
    from bench.cloud import figures

    for line in figures():
        row(*line)


def real() -> None:
    """The bundled engine with real weights."""
    from bench.real import cold_start, first_token, speed

    for figures in (speed, first_token, cold_start):
        for line in figures():
            row(*line)


def realtime() -> None:
    """Speech while it is spoken."""
    from bench.realtime import figures

    for line in figures():
        row(*line)


def pictures() -> None:
    """Pictures by stable-diffusion.cpp: what the daemon costs, memory, and how good enlarged ones are."""
    from bench.pictures import figures

    for line in figures():
        row(*line)


def speech() -> None:
    """Speech by Kokoro: its speed, and how soon it is heard."""
    from bench.speech import figures, threads

    for lines in (figures, threads):
        for line in lines():
            row(*line)


def understood() -> None:
    """Speech by Kokoro, heard back by Whisper."""
    from bench import speech as module

    for line in module.understood():
        row(*line)


def transcription() -> None:
    """Speech to text: its speed."""
    from bench.transcription import speed

    for line in speed():
        row(*line)


def understanding() -> None:
    """Speech to text: how well it is understood, from files of many kinds."""
    from bench import transcription as module

    for line in module.understanding():
        row(*line)


def native() -> None:
    """The bundled engine against a build of one's own."""
    from bench import real as module

    for line in module.native():
        row(*line)


BENCHES = {
    bench.__name__: bench for bench in (chat, stream, start, idle, cli, models, listing, routing, cloud, real, realtime)
}
ON_REQUEST = {bench.__name__: bench for bench in (native, pictures, speech, understood, transcription, understanding)}


def soak(minutes: str = "10") -> None:
    """Mixed load for minutes."""
    from bench import soak as module

    for line in module.soak(float(minutes)):
        row(*line)


def main() -> None:
    if sys.argv[1:2] == ["soak"]:
        soak(*sys.argv[2:3])
        return
    names = sys.argv[1:] or list(BENCHES)
    known = BENCHES | ON_REQUEST
    if unknown := [name for name in names if name not in known]:
        sys.exit(f"There is no bench {', '.join(unknown)}; there are {', '.join([*known, 'soak'])}.")
    for name in names:
        known[name]()


main()
