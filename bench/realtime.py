"""Speech while it is spoken: how soon the first words are seen, how soon a turn's text is there after its last sample,
and what sessions cost the daemon.

python -m bench realtime
"""

from __future__ import annotations

import asyncio
import io
import math
import statistics
import tempfile
import time
import wave
from collections.abc import Iterator
from pathlib import Path

import aiohttp
import psutil

from lemonade.inference.realtime.buffer import AudioBuffer
from lemonade.inference.realtime.voice import HOP_MS, VoiceSettings
from tests.daemon import Daemon
from tests.speech import RATE, Client, add_listener, connected, pieces, recording, silence, voice
from tests.whisper import tiny_en

ROUNDS = 5
#: Milliseconds per message, as microphones have it.
PIECE = 85
SPEAKING = 4
IDLE = 50
SECONDS = 10


def figures() -> Iterator[tuple[str, str, str]]:
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder), fake_engine=False) as daemon:
        definition = {"model_name": "user.tiny", "recipe": "whispercpp", "checkpoint": str(tiny_en())}
        assert daemon.post("/v1/models/register", definition).status == 200
        assert daemon.post("/v1/load", {"model_name": "tiny"}).status == 200
        audio = recording()
        firsts = [asyncio.run(_first_delta(daemon, audio)) for _ in range(ROUNDS)]
        yield "realtime, tiny.en: first words after speech begins", f"{statistics.median(firsts):.2f} s", "want < 1.5 s"
        ratios, live = [], []
        for _ in range(ROUNDS):
            live.append(asyncio.run(_after_the_last_sample(daemon, audio)))
            ratios.append(live[-1] / asyncio.run(_over_http(daemon, audio)))
        yield "realtime, tiny.en: text after the last sample of 10 s", f"{statistics.median(live):.2f} s", ""
        yield "… / POST /v1/audio/transcriptions", f"{statistics.median(ratios):.2f}", "want <= 1.10"
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder)) as daemon:
        add_listener(daemon)
        share, memory = asyncio.run(_cost(daemon))
        yield f"realtime, {IDLE} idle + {SPEAKING} speaking: the daemon's CPU", f"{share * 100:.1f} %", "want < 10 %"
        yield f"realtime, {IDLE + SPEAKING} connections: memory each", f"{memory / 1e3:.0f} kB", ""


async def _speak(client: Client, audio: bytes) -> None:
    """At the pace of speech."""
    begun = time.perf_counter()
    for number, piece in enumerate(pieces(audio, PIECE), 1):
        # A piece can be sent when it is spoken to its end.
        await asyncio.sleep(begun + number * PIECE / 1e3 - time.perf_counter())
        await client.append(piece, PIECE)


async def _first_delta(daemon: Daemon, audio: bytes) -> float:
    """Infinite when none comes: a machine that is too busy has time for the texts that count only."""
    async with connected(daemon, "model=tiny") as client:
        begun = time.perf_counter()
        speaking = asyncio.create_task(_speak(client, audio))
        try:
            await client.event("transcription.delta", seconds=len(audio) / RATE / 2)
        except TimeoutError:
            return math.inf
        finally:
            speaking.cancel()
        return time.perf_counter() - begun - _voice_begins(audio)


def _voice_begins(audio: bytes) -> float:
    """Seconds to the first look at which there is voice."""
    settings = VoiceSettings(prefix_padding_ms=2 * HOP_MS)
    buffer = AudioBuffer(RATE, settings)
    buffer.append(audio)
    next(edge for edge in buffer.listen() if edge == "start")
    return (buffer.milliseconds(buffer.heard) - settings.prefix_padding_ms) / 1e3


async def _after_the_last_sample(daemon: Daemon, audio: bytes) -> float:
    async with connected(daemon, "model=tiny") as client:
        await client.update(turn_detection=None)
        await client.append(audio, PIECE)
        begun = time.perf_counter()
        await client.send("input_audio_buffer.commit")
        await client.event("completed")
        return time.perf_counter() - begun


async def _over_http(daemon: Daemon, audio: bytes) -> float:
    made = io.BytesIO()
    with wave.open(made, "wb") as file:
        file.setparams((1, 2, RATE, 0, "NONE", ""))
        file.writeframes(audio)
    form = aiohttp.FormData({"model": "tiny"})
    form.add_field("file", made.getvalue(), filename="speech.wav", content_type="audio/wav")
    async with aiohttp.ClientSession() as session:
        begun = time.perf_counter()
        async with session.post(f"{daemon.url}/v1/audio/transcriptions", data=form) as answer:
            assert answer.status == 200, await answer.text()
            await answer.read()
        return time.perf_counter() - begun


async def _cost(daemon: Daemon) -> tuple[float, float]:
    """The share of one core that the daemon needs, and the bytes of each connection."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    daemon.post("/v1/load", {"model_name": "ear"})
    async with connected(daemon, "model=ear"):
        # What comes with the first connection is not counted.
        before = process.memory_info().rss
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            url = f"{daemon.url}/v1/realtime?model=ear"
            clients = [Client(await session.ws_connect(url)) for _ in range(IDLE + SPEAKING)]
            memory = (process.memory_info().rss - before) / len(clients)
            times = process.cpu_times()
            begun = time.perf_counter()
            talk = (voice(2000) + silence(1000)) * (SECONDS // 3 + 1)
            await asyncio.gather(*(_speak(client, talk[: SECONDS * RATE * 2]) for client in clients[:SPEAKING]))
            seconds = time.perf_counter() - begun
            after = process.cpu_times()
            await asyncio.gather(*(client.socket.close() for client in clients))
    return (after.user + after.system - times.user - times.system) / seconds, memory
