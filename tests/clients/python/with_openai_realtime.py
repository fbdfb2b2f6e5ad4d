"""Transcribes with OpenAI's realtime client, against the daemon at argv[1] with the model argv[2] and the key argv[3];
prints what came as JSON.

argv[4] is raw audio, 24000 samples a second. It is sent argv[5] times as fast as it was spoken, then once more, as a
turn of its own, without detection, ten times as fast.
"""

import asyncio
import base64
import json
import sys
import time
from pathlib import Path

from openai import AsyncOpenAI

URL, MODEL, KEY, FILE, PACE = sys.argv[1:]
RATE = 24000
PIECE = 0.085
DELTA = "conversation.item.input_audio_transcription.delta"
COMPLETED = "conversation.item.input_audio_transcription.completed"


def check(event):
    """The library builds its objects without checking them."""
    type(event).model_validate(event.model_dump(), strict=True)
    assert event.event_id


async def send(connection, audio, pace):
    size = round(RATE * PIECE) * 2
    begun = time.monotonic()
    for number, at in enumerate(range(0, len(audio), size)):
        await asyncio.sleep(begun + number * PIECE / pace - time.monotonic())
        await connection.input_audio_buffer.append(audio=base64.b64encode(audio[at : at + size]).decode())


async def read(connection, seen, until):
    async for event in connection:
        check(event)
        seen.append(event)
        if event.type == "error":
            raise SystemExit(event.error.message)
        if until(event):
            return


def session(**input_fields):
    return {
        "type": "transcription",
        "audio": {
            "input": {
                "format": {"type": "audio/pcm", "rate": RATE},
                "transcription": {"model": MODEL, "language": "en"},
                **input_fields,
            }
        },
    }


async def main():
    audio = Path(FILE).read_bytes()
    client = AsyncOpenAI(base_url=URL, api_key=KEY)
    async with client.realtime.connect(model=MODEL) as connection:
        seen = []
        turns = {"type": "server_vad", "threshold": 0.5, "silence_duration_ms": 800}
        await connection.session.update(session=session(turn_detection=turns))
        await read(connection, seen, lambda event: event.type == "session.updated")
        reading = asyncio.create_task(read(connection, seen, lambda event: event.type == "input_audio_buffer.cleared"))
        await send(connection, audio + bytes(RATE * 2 * 2), float(PACE))
        stopped = sum(event.type == "input_audio_buffer.speech_stopped" for event in seen)
        while sum(event.type == COMPLETED for event in seen) < stopped:
            await asyncio.sleep(0.01)
        await connection.input_audio_buffer.commit()
        await reading
        answer = {
            "order": [event.item_id for event in seen if event.type == "input_audio_buffer.speech_started"],
            "texts": [[event.item_id, event.transcript] for event in seen if event.type == COMPLETED],
            "deltas": [[event.item_id, event.delta] for event in seen if event.type == DELTA],
        }
        await connection.session.update(session=session(turn_detection=None))
        await send(connection, audio, float(PACE) * 10)
        seen = []
        sent = time.monotonic()
        await connection.input_audio_buffer.commit()
        await read(connection, seen, lambda event: event.type == COMPLETED)
        answer["whole"] = seen[-1].transcript
        answer["seconds"] = time.monotonic() - sent
        answer["kinds"] = [event.type for event in seen]
        print(json.dumps(answer))


asyncio.run(main())
