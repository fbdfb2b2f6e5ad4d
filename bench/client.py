"""A client that measures."""

from __future__ import annotations

import asyncio
import contextlib
import time
from typing import Any

import aiohttp


class Client:
    """Sends chats to one address; times are in seconds."""

    def __init__(self, url: str, model: str, **body: Any) -> None:
        self._url = url
        messages = [{"role": "user", "content": "Say something short."}]
        self._body: dict[str, Any] = {"model": model, "messages": messages, **body}

    async def __aenter__(self) -> Client:
        self._session = aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def chat(self) -> None:
        async with self._session.post(f"{self._url}/v1/chat/completions", json=self._body) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()

    async def latencies(self, count: int) -> list[float]:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            await self.chat()
            times.append(time.perf_counter() - begin)
        return times

    async def rate(self, clients: int, count: int) -> float:
        """Answers per second with so many clients at once."""

        async def one() -> None:
            for _ in range(count // clients):
                await self.chat()

        begin = time.perf_counter()
        await asyncio.gather(*(one() for _ in range(clients)))
        return count // clients * clients / (time.perf_counter() - begin)

    async def stream(self) -> tuple[float, int]:
        """The time of the first event with content, and the number of events."""
        begin = time.perf_counter()
        first = 0.0
        events = 0
        async with self._session.post(
            f"{self._url}/v1/chat/completions", json={**self._body, "stream": True}
        ) as answer:
            assert answer.status == 200, await answer.text()
            async for chunk in answer.content.iter_any():
                first = first or time.perf_counter() - begin
                events += chunk.count(b"\n\n")
        return first, events

    async def chunk_rate(self, streams: int, chunks: int) -> float:
        begin = time.perf_counter()
        results = await asyncio.gather(*(self.stream() for _ in range(streams)))
        seconds = time.perf_counter() - begin
        # A character of several tokens is one event: an answer may have a few less than tokens.
        assert all(events >= 0.8 * chunks for _, events in results), results
        return sum(events for _, events in results) / seconds

    async def first_chunks(self, count: int) -> list[float]:
        times: list[float] = []
        while len(times) < count:
            # llama.cpp closes a socket after a number of requests, without a word; such a try does not count.
            with contextlib.suppress(aiohttp.ServerDisconnectedError, aiohttp.ClientOSError):
                times.append((await self.stream())[0])
        return times

    async def get_latencies(self, path: str, count: int) -> list[float]:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            async with self._session.get(self._url + path) as answer:
                assert answer.status == 200
                await answer.read()
            times.append(time.perf_counter() - begin)
        return times
