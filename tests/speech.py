"""Audio for tests: tones where somebody speaks and silence where nobody does, and a client that sends it."""

from __future__ import annotations

import asyncio
import base64
import importlib.util
import math
import struct
import wave
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.daemon import Daemon

RATE = 16000


def voice(milliseconds: int, *, rate: int = RATE, level: float = 0.3) -> bytes:
    """A tone with a root mean square of `level` times 0.7."""
    count = milliseconds * rate // 1000
    return struct.pack(
        f"<{count}h", *(round(32767 * level * math.sin(2 * math.pi * 220 * n / rate)) for n in range(count))
    )


def silence(milliseconds: int, *, rate: int = RATE) -> bytes:
    return bytes(milliseconds * rate // 1000 * 2)


def pieces(audio: bytes, milliseconds: int, *, rate: int = RATE) -> Iterator[bytes]:
    size = milliseconds * rate // 1000 * 2
    for at in range(0, len(audio), size):
        yield audio[at : at + size]


def recording(name: str = "beckett", *, rate: int = RATE) -> bytes:
    """A recording in the public domain that comes with moonshine-voice. `beckett` are three sentences in 10 s."""
    import numpy as np

    found = importlib.util.find_spec("moonshine_voice")
    assert found is not None
    assert found.submodule_search_locations is not None
    with wave.open(f"{found.submodule_search_locations[0]}/assets/{name}.wav") as file:
        given = file.getframerate()
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(float)
    places = np.arange(len(samples) * rate // given) * given / rate
    return np.interp(places, np.arange(len(samples)), samples).astype("<i2").tobytes()


class Client:
    """One realtime connection. `seen` are all events that came."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket
        self.seen: list[dict[str, Any]] = []

    async def send(self, kind: str, **fields: Any) -> None:
        await self.socket.send_json({"type": kind, **fields})

    async def update(self, **session: Any) -> dict[str, Any]:
        await self.send("session.update", session=session)
        return await self.event("session.updated", "error")

    async def append(self, audio: bytes, milliseconds: int = 100, *, rate: int = RATE) -> None:
        for piece in pieces(audio, milliseconds, rate=rate):
            await self.send("input_audio_buffer.append", audio=base64.b64encode(piece).decode())

    async def next(self, seconds: float = 20) -> dict[str, Any]:
        message = await self.socket.receive(seconds)
        assert message.type is aiohttp.WSMsgType.TEXT, message
        event: dict[str, Any] = message.json()
        self.seen.append(event)
        return event

    async def event(self, *kinds: str, seconds: float = 20) -> dict[str, Any]:
        """The next event of one of these kinds, or kinds that end so."""
        async with asyncio.timeout(seconds):
            while True:
                event = await self.next(seconds)
                if event["type"].endswith(kinds):
                    return event

    async def nothing(self, seconds: float = 0.2) -> None:
        """Nothing comes for a while."""
        try:
            event = await self.next(seconds)
        except TimeoutError:
            return
        raise AssertionError(event)

    @property
    def kinds(self) -> list[str]:
        return [event["type"].rpartition(".")[2] for event in self.seen]


@asynccontextmanager
async def connected(
    daemon: Daemon, query: str = "", *, path: str = "/v1/realtime", **more: Any
) -> AsyncIterator[Client]:
    """A client that was greeted."""
    address = daemon.url + path + (f"?{query}" if query else "")
    async with aiohttp.ClientSession() as session, session.ws_connect(address, max_msg_size=0, **more) as socket:
        client = Client(socket)
        assert (await client.next())["type"] == "session.created"
        yield client


def add_listener(daemon: Daemon, name: str = "ear") -> str:
    """A model for realtime sessions that the fake engine runs. The daemon has to run."""
    daemon.add_model(f"{name}-file")
    definition = {
        "model_name": f"user.{name}",
        "recipe": "llamacpp",
        "labels": ["realtime-transcription"],
        "checkpoint": str(daemon.models / f"{name}-file.gguf"),
    }
    answer = daemon.post("/v1/models/register", definition)
    assert answer.status == 200, answer.body
    return name
