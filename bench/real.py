"""The bundled llama.cpp with real weights: through the daemon against straight to it, and against a native build.

python -m bench real                             speed, first token, cold start
LLAMA_SERVER=/path/llama-server python -m bench native    the bundled engine against a build of your own
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.client import Client
from tests.daemon import Daemon, free_port
from tests.weights import smollm2

TOKENS = 96
ROUNDS = 5
PROMPT = "Tell me a long story about a lighthouse keeper who learns to speak with the sea. " * 24


@contextmanager
def running(arguments: str = "") -> Iterator[tuple[Daemon, str]]:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), fake_engine=False, config={"max_queued_requests": 100})
        (daemon.models / "bench.gguf").symlink_to(smollm2())
        with daemon:
            answer = daemon.post("/v1/load", {"model_name": "bench", "ctx_size": 8192, "llamacpp_args": arguments})
            assert answer.status == 200, answer.body
            yield daemon, daemon.engine()


def speed() -> Iterator[tuple[str, str, str]]:
    """Tokens per second of one, two and four streams."""
    with running("--parallel 4") as (daemon, engine):
        for streams in (1, 2, 4):
            through, direct = asyncio.run(_alternate(daemon.url, engine, streams))
            # Of each pair by itself: what else the machine does changes more from minute to minute than that.
            ratio = statistics.median(one / other for one, other in zip(through, direct, strict=True))
            yield f"real, {streams} streams: tokens/s direct", f"{statistics.median(direct):.0f}", ""
            yield f"real, {streams} streams: tokens/s through / direct", f"{ratio:.2f}", "want >= 0.98"


def first_token() -> Iterator[tuple[str, str, str]]:
    """What the daemon adds before the first token. The prompt is in the engine's cache both ways."""

    async def measure(url: str) -> list[float]:
        async with Client(url, "bench", max_tokens=1, temperature=0) as client:
            await client.first_chunks(5)
            return await client.first_chunks(30)

    with running() as (daemon, engine):
        through, direct = [], []
        for _ in range(ROUNDS):
            through += asyncio.run(measure(daemon.url))
            direct += asyncio.run(measure(engine))
        added = statistics.median(through) - statistics.median(direct)
        yield "real: first token direct", f"{statistics.median(direct) * 1e3:.1f} ms", ""
        yield "real: first token, added", f"{added * 1e3:.2f} ms", "want < 3 ms"


def cold_start() -> Iterator[tuple[str, str, str]]:
    """The first answer of an unloaded model, against starting the same program by hand and asking it."""
    with running() as (daemon, _):
        argv = daemon.loaded()[0]["launch_command"]
        through, by_hand = [], []
        for _ in range(ROUNDS):
            daemon.post("/v1/unload")
            begin = time.perf_counter()
            assert daemon.chat("bench", max_tokens=1, ctx_size=8192).status == 200
            through.append(time.perf_counter() - begin)
            daemon.post("/v1/unload")
            by_hand.append(_by_hand(argv))
        ratio = statistics.median(through) / statistics.median(by_hand)
        yield "real: cold start by hand", f"{statistics.median(by_hand):.2f} s", ""
        yield "real: cold start through / by hand", f"{ratio:.2f}", "want <= 1.15"


def native() -> Iterator[tuple[str, str, str]]:
    """Prompt and generation of the bundled engine against `$LLAMA_SERVER`, in turn, for several quantisations."""
    program = os.environ.get("LLAMA_SERVER")
    if not program:
        sys.exit("Set LLAMA_SERVER to the llama-server to compare with.")
    with running() as (daemon, _):
        argv = daemon.loaded()[0]["launch_command"]
    with tempfile.TemporaryDirectory() as folder:
        for model in _quantised(Path(program).with_name("llama-quantize"), Path(folder)):
            own_words = [str(model) if before == "-m" else word for before, word in itertools.pairwise(argv)][2:]
            engines = {"bundled": [*argv[:3], *own_words], "native": [program, *own_words]}
            figures = _in_turn(engines)
            for kind in ("prompt", "generation"):
                # The best, since anything else that runs can only make it worse.
                bundled, other = (max(figures[name][kind]) for name in ("bundled", "native"))
                name = f"{model.stem.rpartition('.')[2]}, {kind}"
                yield f"{name}: tokens/s native", f"{other:.0f}", ""
                yield f"{name}: tokens/s bundled / native", f"{bundled / other:.2f}", "want >= 0.95"


def _quantised(quantise: Path, folder: Path) -> list[Path]:
    """The model as it is (Q4_1), and in other forms where there is a program that makes them: their weights are worth
    nothing, but they take as long. `$LLAMA_MODEL` is measured alone."""
    if chosen := os.environ.get("LLAMA_MODEL"):
        return [Path(chosen)]
    made = [smollm2()]
    for kind in ("Q4_0", "Q8_0") if quantise.exists() else ():
        file = folder / f"{kind}.gguf"
        command = (quantise, "--allow-requantize", smollm2(), file, kind)
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        made.append(file)
    return made


def _in_turn(engines: dict[str, list[str]]) -> dict[str, dict[str, list[float]]]:
    """Tokens per second of each command line, by kind. What else the machine does falls on all of them."""
    figures: dict[str, dict[str, list[float]]] = {name: {"prompt": [], "generation": []} for name in engines}
    for _ in range(ROUNDS):
        for name, words in engines.items():
            with _engine(words) as url:
                for number in range(2):
                    body = {"prompt": f"{number} {PROMPT}", "n_predict": TOKENS, "ignore_eos": True, "temperature": 0}
                    timings = _post(url + "/completion", body)["timings"]
                    figures[name]["prompt"].append(timings["prompt_per_second"])
                    figures[name]["generation"].append(timings["predicted_per_second"])
    return figures


async def _alternate(through: str, direct: str, streams: int) -> tuple[list[float], list[float]]:
    body = {"max_tokens": TOKENS, "temperature": 0, "ignore_eos": True}
    results: tuple[list[float], list[float]] = ([], [])
    async with Client(through, "bench", **body) as one, Client(direct, "bench", **body) as other:
        for client in (one, other):
            await client.chunk_rate(streams, TOKENS)
        for _ in range(4 * ROUNDS):
            for client, found in zip((one, other), results, strict=True):
                found.append(await client.chunk_rate(streams, TOKENS))
    return results


def _by_hand(argv: list[str]) -> float:
    begin = time.perf_counter()
    with _engine(argv) as url:
        body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
        _post(url + "/v1/chat/completions", body)
        return time.perf_counter() - begin


@contextmanager
def _engine(argv: list[str]) -> Iterator[str]:
    port = free_port()
    words = [str(port) if before == "--port" else word for before, word in zip(["", *argv], argv, strict=False)]
    # The bundled host ends with its standard input.
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        url = f"http://127.0.0.1:{port}"
        try:
            while True:
                try:
                    with urllib.request.urlopen(url + "/health", timeout=5):
                        break
                except OSError:
                    assert process.poll() is None, "the engine ended"
                    time.sleep(0.005)
            yield url
        finally:
            process.kill()


def _post(url: str, body: dict[str, Any]) -> Any:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)
