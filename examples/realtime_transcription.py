#!/usr/bin/env python3
"""Speak, and read what you say: streams a microphone, or a WAV file at the pace of speech, to Lemonade.

    python examples/realtime_transcription.py --model Whisper-Tiny              the microphone, until Ctrl-C
    python examples/realtime_transcription.py --model Whisper-Tiny speech.wav   a file

Needs `pip install websockets`, and for the microphone `pip install sounddevice`.
"""

from __future__ import annotations

import argparse
import array
import asyncio
import base64
import contextlib
import itertools
import json
import os
import sys
import wave
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

#: Samples per second that the API takes: 16 bits, mono.
RATE = 16000
#: Seconds of audio per message.
PIECE = 0.1
#: Seconds of silence after a file, in which the last turn comes to its end.
REST = 1.5


class Failure(Exception):
    """It cannot go on; the message says why."""


async def microphone() -> AsyncIterator[bytes]:
    """What the microphone hears, as it hears it."""
    try:
        import sounddevice
    except (ImportError, OSError) as error:
        raise Failure(f"The microphone needs `pip install sounddevice` and PortAudio: {error}") from None

    loop = asyncio.get_running_loop()
    heard: asyncio.Queue[bytes] = asyncio.Queue()

    def take(data: Any, frames: int, time: Any, status: Any) -> None:
        loop.call_soon_threadsafe(heard.put_nowait, bytes(data))

    with sounddevice.RawInputStream(
        samplerate=RATE, channels=1, dtype="int16", blocksize=round(RATE * PIECE), callback=take
    ):
        print("Listening. Ctrl-C ends it.", file=sys.stderr)
        while True:
            yield await heard.get()


async def recording(audio: bytes, pace: float) -> AsyncIterator[bytes]:
    """What was recorded in pieces, `pace` times as fast as it was spoken, and silence after it."""
    audio += bytes(round(RATE * REST) * 2)
    size = round(RATE * PIECE) * 2
    loop = asyncio.get_running_loop()
    begun = loop.time()
    for number, at in enumerate(range(0, len(audio), size)):
        await asyncio.sleep(begun + number * PIECE / pace - loop.time())
        yield audio[at : at + size]


def samples(path: Path) -> array.array[int]:
    """The samples of a 16-bit WAV file: its channels mixed, and brought to 16000 a second by means of neighbours."""
    try:
        with wave.open(str(path)) as file:
            if file.getsampwidth() != 2:
                raise Failure(f"{path} must hold samples of 16 bits.")
            channels, rate = file.getnchannels(), file.getframerate()
            raw = array.array("h", file.readframes(file.getnframes()))
    except (OSError, EOFError, wave.Error) as error:
        raise Failure(f"{path} cannot be read as a WAV file: {error}") from None
    mono = [sum(raw[at : at + channels]) // channels for at in range(0, len(raw), channels)]
    if rate < RATE:
        return array.array("h", (mono[number * rate // RATE] for number in range(len(mono) * RATE // rate)))
    edges = [number * rate // RATE for number in range(len(mono) * RATE // rate + 1)]
    return array.array("h", (sum(mono[at:to]) // (to - at) for at, to in itertools.pairwise(edges)))


async def speak(socket: ClientConnection, audio: AsyncIterator[bytes]) -> None:
    async for piece in audio:
        message = {"type": "input_audio_buffer.append", "audio": base64.b64encode(piece).decode()}
        await socket.send(json.dumps(message))


async def read(socket: ClientConnection) -> None:
    """Prints each turn on a line of its own. On a terminal the line changes while the turn goes on."""
    live = sys.stdout.isatty()
    turns: set[str] = set()
    is_last = False
    async for text in socket:
        event = json.loads(text)
        match event["type"]:
            case "input_audio_buffer.speech_started":
                turns.add(event["item_id"])
            case "conversation.item.input_audio_transcription.delta" if live:
                print(f"\r\033[K{event['delta']}", end="", flush=True)
            case "conversation.item.input_audio_transcription.completed":
                turns.discard(event["item_id"])
                print("\r\033[K" * live + event["transcript"], flush=True)
            case "input_audio_buffer.committed" | "input_audio_buffer.cleared":
                is_last = True
            case "error":
                raise Failure(event["error"]["message"])
        if is_last and not turns:
            return


async def run(arguments: argparse.Namespace) -> None:
    address = f"ws://{arguments.host}:{arguments.port}/v1/realtime?model={arguments.model}"
    key = os.environ.get("LEMONADE_API_KEY")
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    audio = recording(samples(arguments.file).tobytes(), arguments.pace) if arguments.file else microphone()
    async with connect(address, additional_headers=headers, max_size=None) as socket:
        reading = asyncio.create_task(read(socket))
        speaking = asyncio.create_task(speak(socket, audio))
        await asyncio.wait({reading, speaking}, return_when=asyncio.FIRST_COMPLETED)
        if not reading.done():
            try:
                await speaking
            except BaseException:
                reading.cancel()
                raise
            # Ends what was not followed by enough silence.
            await socket.send(json.dumps({"type": "input_audio_buffer.commit"}))
        speaking.cancel()
        await reading


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", nargs="?", type=Path, help="a WAV file of 16 bits; the microphone if there is none")
    parser.add_argument("--model", default="Whisper-Tiny", help="any model with the label realtime-transcription")
    parser.add_argument("--host", default="localhost")
    parser.add_argument("--port", type=int, default=int(os.environ.get("LEMONADE_PORT", "13305")))
    parser.add_argument("--pace", type=float, default=1.0, help="how many times as fast as speech a file is sent")
    with contextlib.suppress(KeyboardInterrupt):
        try:
            asyncio.run(run(parser.parse_args()))
        except Failure as failure:
            sys.exit(f"error: {failure}")
        except InvalidStatus as refusal:
            sys.exit(f"The daemon refused: {refusal.response.body.decode(errors='replace')}")
        except (OSError, ConnectionClosed) as error:
            sys.exit(f"No connection to Lemonade: {error}. Does `lemonade serve` run?")


if __name__ == "__main__":
    main()
