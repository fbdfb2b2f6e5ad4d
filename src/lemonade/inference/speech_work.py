"""The way of speech from an engine to the client."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lemonade.engines.audio.encode import media_type, wav_header
from lemonade.engines.openmoss import protocol
from lemonade.errors import EngineReplied, EngineSilent
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import MAX_ERROR

if TYPE_CHECKING:
    from lemonade.engines.reply import Reply
    from lemonade.inference.speech import Speech
    from lemonade.residency.lease import Lease

Headers = list[tuple[bytes, bytes]]

#: Bytes of sound in one event: about two thirds of a second of PCM.
EVENT_SIZE = 32 * 1024
#: Speech is not counted in tokens, and strict clients miss the figures.
_USAGE = {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0}
_EVENT_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
_NOTHING = (
    "Generation failed: the engine made no sound. It may have run out of memory; `lemonade logs` shows what it said."
)


class Sink(Protocol):
    """Where the sound goes; an HTTP exchange is one."""

    async def start(self, headers: Headers) -> None: ...
    async def write(self, data: bytes) -> None: ...
    async def end(self, data: bytes = b"") -> None: ...
    async def reply(self, body: bytes, *, media_type: bytes, headers: Headers | None = None) -> None: ...


class KokoroWork:
    """Speech by our own Kokoro process, as `relay.Work`."""

    path = "/speak"

    def __init__(self, speech: Speech, sink: Sink) -> None:
        self._speech = speech
        self._sink = sink
        self.passed_on = False
        #: Speech is not counted in tokens.
        self.measurement = None

    async def run(self, lease: Lease) -> None:
        await self._ask(lease, msgspec.json.encode(self._speech.body))

    async def _ask(self, lease: Lease, body: bytes) -> None:
        reply = await request(lease, self.path, body)
        try:
            if self._speech.stream:
                await self._stream(lease, reply)
            else:
                await self._whole(await reply.read(), reply)
        finally:
            reply.close()

    async def _whole(self, body: bytes, reply: Reply) -> None:
        if not body:
            raise EngineSilent(_NOTHING)
        self.passed_on = True
        kind = reply.headers.get("content-type", "application/octet-stream")
        await self._sink.reply(body, media_type=kind.encode("latin-1"), headers=self._headers(reply))

    async def _stream(self, lease: Lease, reply: Reply) -> None:
        """Waits with the status line for the first sound, so that a failure before it is a proper error."""
        first = await reply.chunk()
        if not first:
            raise EngineSilent(_NOTHING)
        self.passed_on = True
        kind = reply.headers.get("content-type", "application/octet-stream").encode("latin-1")
        if self._speech.events:
            await self._sink.start(_EVENT_STREAM)
        else:
            head = [(b"content-type", kind), (b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no")]
            await self._sink.start([*head, *self._headers(reply)])
        async for piece in _pieces(first, reply):
            lease.touch()
            await self._sink.write(_deltas(piece) if self._speech.events else piece)
        await self._sink.end(_event("speech.audio.done", usage=_USAGE) if self._speech.events else b"")

    def _headers(self, reply: Reply) -> Headers:
        """What the client is told beside the type of the sound."""
        return []


class OpenMossWork(KokoroWork):
    """Speech by a moss-tts-server, which wants a recording for each voice that is not its own."""

    path = protocol.PATH

    async def run(self, lease: Lease) -> None:
        speech = self._speech
        # What is not streamed comes as WAV: only its header tells both the rate and the channels.
        body = {**speech.body, "response_format": "pcm" if speech.stream else "wav", "stream": speech.stream}
        if speech.design:
            body["reference_wav_b64"] = await self._designed(lease, speech.design)
        await self._ask(lease, msgspec.json.encode(body))

    async def _designed(self, lease: Lease, description: str) -> str:
        """A short recording, in base64, of a voice that is like the description."""
        body = {"input": protocol.SAMPLE, "voice": description, "response_format": "wav", "stream": False}
        reply = await request(lease, self.path, msgspec.json.encode(body))
        try:
            sample = await reply.read()
        finally:
            reply.close()
        lease.touch()
        if not sample:
            raise EngineSilent(_NOTHING)
        return base64.b64encode(sample).decode()

    async def _whole(self, body: bytes, reply: Reply) -> None:
        if not body:
            raise EngineSilent(_NOTHING)
        try:
            sound = protocol.read_wav(body)
        except ValueError as error:
            raise EngineReplied(
                f"{protocol.PROGRAM} answered something else than a WAV file: {error}", status=502
            ) from None
        self.passed_on = True
        if self._speech.format == "pcm":
            headers = protocol.headers(sound.rate, sound.channels)
            await self._sink.reply(sound.data, media_type=protocol.PCM.encode(), headers=headers)
            return
        whole = wav_header(sound.rate, sound.channels, len(sound.data)) + sound.data
        await self._sink.reply(whole, media_type=media_type("wav", sound.rate).encode(), headers=[])

    def _headers(self, reply: Reply) -> Headers:
        return [
            (name.encode("latin-1"), value.encode("latin-1"))
            for name, value in reply.headers.items()
            if name.startswith("x-moss-")
        ]


async def request(lease: Lease, path: str, body: bytes) -> Reply:
    """The engine's answer, whose body is on its way.

    Raises:
        LemonadeError: it is an error.
    """
    reply = await lease.connection.request("POST", path, body)
    if reply.status != 200:
        try:
            raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
        finally:
            reply.close()
    return reply


async def _pieces(first: bytes, reply: Reply) -> AsyncIterator[bytes]:
    yield first
    while piece := await reply.chunk():
        yield piece


def _deltas(piece: bytes) -> bytes:
    parts = (piece[at : at + EVENT_SIZE] for at in range(0, len(piece), EVENT_SIZE))
    return b"".join(_event("speech.audio.delta", audio=base64.b64encode(part).decode()) for part in parts)


def _event(kind: str, **more: Any) -> bytes:
    return b"data: " + msgspec.json.encode({"type": kind, **more}) + b"\n\n"
