"""Spoken pieces as text, by the engines; one for all sessions."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec

from lemonade.errors import EngineReplied
from lemonade.inference.failure import engine_failure
from lemonade.inference.realtime.buffer import WIDTH
from lemonade.inference.realtime.lane import Lane
from lemonade.inference.realtime.silero import Silero
from lemonade.inference.relay import on_engine

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease
    from lemonade.residency.manager import Residency
    from lemonade.system.metrics import Measurement, Metrics

#: Milliseconds that an engine is given at least; what is shorter is followed by silence. Whisper refuses to hear less.
LEAST_MS = 500
#: Most bytes of an engine's error that are read.
MAX_ERROR = 64 * 1024


class Speech(msgspec.Struct, frozen=True):
    """Audio that belongs together: mono, little-endian, 16 bits.

    Attributes:
        rate: samples per second.
        language: a code such as `en`; empty for the engine's own choice.
        prompt: what the engine is to have in mind; empty for nothing.
        draft: a better text will replace this one; the engine may be quicker with it.
    """

    audio: bytes
    rate: int
    language: str = ""
    prompt: str = ""
    draft: bool = False

    @property
    def seconds(self) -> float:
        return len(self.audio) / WIDTH / self.rate

    @property
    def padded(self) -> bytes:
        """The audio as engines get it."""
        return self.audio.ljust(LEAST_MS * self.rate // 1000 * WIDTH, b"\0")


class Transcriber:
    """Asks the engines.

    Attributes:
        silero: tells voice from other sounds, for the sessions that want that.
    """

    def __init__(self, residency: Residency, metrics: Metrics) -> None:
        self._residency = residency
        self._metrics = metrics
        self._lanes: dict[str, Lane] = {}
        self.silero = Silero()

    def lane(self, model: Model) -> Lane:
        """The order of those who ask for this model."""
        return self._lanes.setdefault(model.canonical, Lane())

    async def final(self, model: Model, speech: Speech) -> str:
        """The text of a piece that is complete. The model is loaded if it has to be.

        Raises:
            LemonadeError: it could not be loaded, or its engine failed.
        """
        with self.lane(model).final():
            return await self._ask(model, speech, self._metrics)

    async def interim(self, model: Model, speech: Speech) -> str:
        """The text of a piece that goes on. To be begun by the model's lane. Raises as `final` does."""
        return await self._ask(model, msgspec.structs.replace(speech, draft=True), None)

    async def warm(self, model: Model) -> None:
        """Has the model loaded, so that the first words do not wait for it. Raises what kept it from being ready."""
        async with self._residency.lease(model):
            return

    async def _ask(self, model: Model, speech: Speech, metrics: Metrics | None) -> str:
        work = Transcription(speech)
        await on_engine(self._residency, model, work, metrics=metrics)
        self.lane(model).note(work.seconds, len(speech.padded) / WIDTH / speech.rate, draft=speech.draft)
        return work.text


class Heard(msgspec.Struct):
    """What an engine answers."""

    text: str


class Transcription:
    """The work of one piece."""

    measurement: Measurement | None = None

    def __init__(self, speech: Speech) -> None:
        query = {"rate": str(speech.rate)}
        if speech.draft:
            query["draft"] = "1"
        if speech.language:
            query["language"] = speech.language
        if speech.prompt:
            query["prompt"] = speech.prompt
        self._path = f"/pcm?{urlencode(query)}"
        self._audio = speech.padded
        self.passed_on = False
        self.text = ""
        #: How long the engine took.
        self.seconds = 0.0

    async def run(self, lease: Lease) -> None:
        headers = {"content-type": "application/octet-stream"}
        begun = time.monotonic()
        reply = await lease.connection.request("POST", self._path, self._audio, headers)
        try:
            if reply.status != 200:
                raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
            body = await reply.read()
            self.seconds = time.monotonic() - begun
        finally:
            reply.close()
        try:
            self.text = msgspec.json.decode(body, type=Heard).text.strip()
        except msgspec.MsgspecError as error:
            raise EngineReplied(f"The engine's answer lacks what it must have: {error}.", status=502) from None
