"""Mixed load for minutes: what leaks, and what gets lost.

python -m bench soak [minutes]      10 if nothing is said

One daemon, fake engines and a real one. The load is steady and light: it is to show what stays behind, not how fast
anything is.
"""

from __future__ import annotations

import asyncio
import collections
import json
import random
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import aiohttp
import psutil

from tests.daemon import Daemon
from tests.weights import smollm2

#: Seconds from the start of the load until memory is looked at for the first time: by then all code has run once.
WARM_UP = 20.0
MESSAGES = [{"role": "user", "content": "Say something short."}]
Row = tuple[str, str, str]


class Soak:
    """The load; `lost` counts what did not end as it should, by kind and reason."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self._dice = random.Random(1)
        self.done: collections.Counter[str] = collections.Counter()
        self.lost: collections.Counter[str] = collections.Counter()

    async def run(self, seconds: float) -> None:
        jobs: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._chat, 0.02),
            (self._stream, 0.02),
            (self._embeddings, 0.03),
            (self._cancel, 0.05),
            (self._cancel_before_the_answer, 0.1),
            (self._list, 0.1),
            (self._mistake, 0.1),
            (self._unload_and_load, 0.5),
            (self._real, 0.3),
            (self._real_cancel, 0.5),
        ]
        await asyncio.gather(*(self._again(job, pause, time.monotonic() + seconds) for job, pause in jobs))

    async def _again(self, job: Callable[[], Awaitable[None]], pause: float, end: float) -> None:
        name = job.__name__.strip("_")
        while time.monotonic() < end:
            try:
                async with asyncio.timeout(120):
                    await job()
                self.done[name] += 1
            except (AssertionError, aiohttp.ClientError, TimeoutError) as error:
                self.lost[f"{name}: {error!r:.120}"] += 1
            await asyncio.sleep(pause * self._dice.uniform(0.5, 1.5))

    async def _ask(self, path: str, body: dict[str, object], status: int = 200) -> bytes:
        async with self._session.post(f"{self._url}/v1/{path}", json=body) as answer:
            data = await answer.read()
            assert answer.status == status, data
            return data

    async def _chat(self) -> None:
        data = json.loads(await self._ask("chat/completions", {"model": "a", "messages": MESSAGES}))
        assert data["choices"][0]["message"]["content"]

    async def _stream(self) -> None:
        data = await self._ask("chat/completions", {"model": "a", "messages": MESSAGES, "stream": True})
        assert data.endswith(b"data: [DONE]\n\n"), data[-200:]

    async def _embeddings(self) -> None:
        await self._ask("embeddings", {"model": "numbers", "input": ["one", "two"]})

    async def _cancel(self) -> None:
        await self._leave({"model": "a", "fake": {"tokens": 500, "interval": 0.01}})

    async def _real_cancel(self) -> None:
        await self._leave({"model": "smol", "max_tokens": 200, "ignore_eos": True})

    async def _leave(self, body: dict[str, object]) -> None:
        body = {**body, "messages": MESSAGES, "stream": True}
        async with self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer:
            assert answer.status == 200
            await answer.content.readany()

    async def _cancel_before_the_answer(self) -> None:
        body = {"model": "a", "messages": MESSAGES, "fake": {"stall": "headers"}}
        asking = asyncio.ensure_future(self._ask("chat/completions", body))
        await asyncio.sleep(0.05)
        asking.cancel()
        await asyncio.wait([asking])

    async def _list(self) -> None:
        for path in ("models?show_all=true", "health", "stats", "downloads"):
            async with self._session.get(f"{self._url}/v1/{path}") as answer:
                assert answer.status == 200, await answer.read()
                await answer.read()

    async def _mistake(self) -> None:
        await self._ask("chat/completions", {"model": "none", "messages": MESSAGES}, 404)
        await self._ask("chat/completions", {"model": "a", "messages": 1}, 400)

    async def _unload_and_load(self) -> None:
        await self._ask("load", {"model_name": "b"})
        await asyncio.gather(
            self._ask("unload", {"model_name": "b"}),
            *(self._ask("chat/completions", {"model": "b", "messages": MESSAGES}) for _ in range(3)),
        )

    async def _real(self) -> None:
        await self._ask("chat/completions", {"model": "smol", "messages": MESSAGES, "max_tokens": 8})


def soak(minutes: float = 10) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), config={"max_loaded_models": 4})
        (daemon.models / "smol.gguf").symlink_to(smollm2())
        for name in ("a", "b", "vectors-file"):
            daemon.add_model(name)
        with daemon:
            daemon.post("/v1/models/smol/options", {"llamacpp_backend": "cpu"})
            file = str(daemon.models / "vectors-file.gguf")
            definition = {"model_name": "user.numbers", "checkpoint": file, "recipe": "llamacpp"}
            daemon.post("/v1/models/register", {**definition, "labels": ["embeddings"]})
            yield from asyncio.run(_load(daemon, minutes * 60))
            daemon.post("/v1/unload")
            assert daemon.process is not None
            left = [child.cmdline() for child in psutil.Process(daemon.process.pid).children(recursive=True)]
            # The guard, which ends engines that the daemon cannot end any more, lives as long as the daemon.
            left = [words for words in left if not any("guard" in word for word in words)]
            yield "soak: engines left after the unload", str(len(left)), "want 0"


async def _load(daemon: Daemon, seconds: float) -> list[Row]:
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    rows: list[Row] = []

    def look(when: str) -> None:
        children = process.children(recursive=True)
        memory, files = process.memory_info().rss / 1e6, process.num_fds()
        figures = f"{memory:.1f} MB, {files} files, {process.num_threads()} threads, {len(children)} children"
        rows.append((f"soak, {when}: the daemon", figures, ""))

    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        load = Soak(daemon.url, session)
        running = asyncio.ensure_future(load.run(seconds))
        await asyncio.sleep(min(WARM_UP, seconds / 4))
        look("start")
        await asyncio.sleep(seconds / 2)
        look("middle")
        await running
        look("end")
    await asyncio.sleep(1)
    look("a second later")
    rows.append(("soak: requests done", ", ".join(f"{count} {name}" for name, count in load.done.most_common()), ""))
    rows.append(("soak: requests lost", str(sum(load.lost.values())), "want 0"))
    rows += [("soak: lost", f"{count} x {reason}", "") for reason, count in load.lost.most_common(10)]
    return rows
