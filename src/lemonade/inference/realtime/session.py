"""One realtime session: what a client says and sends, and what it is told of its speech.

The session holds no engine. It asks for one when a turn has ended, and now and then while one is open.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lemonade.errors import InvalidArgument, LemonadeError, MissingArgument, RequestError
from lemonade.inference.realtime import messages as say
from lemonade.inference.realtime.buffer import WIDTH, AudioBuffer
from lemonade.inference.realtime.configuration import Configuration
from lemonade.inference.realtime.preview import Preview
from lemonade.inference.realtime.transcriber import Speech, Transcriber

if TYPE_CHECKING:
    from lemonade.model import Model

logger = logging.getLogger("lemonade.inference.realtime")

Send = Callable[[say.ServerMessage], Awaitable[None]]
FindModel = Callable[[str], "Model"]

#: What models have that serve realtime sessions.
LABEL = "realtime-transcription"
#: Seconds of audio that a session may have sent ahead of what was transcribed.
MAX_AHEAD = 30 * 60


class BufferFull(RequestError):
    code = "input_audio_buffer_full"


class CommitEmpty(RequestError):
    code = "input_audio_buffer_commit_empty"


@dataclass(frozen=True, slots=True)
class Turn:
    """What is to be transcribed as one."""

    item: str
    model: str
    speech: Speech


class Session:
    """Attributes:
        id: `sess_` and 24 hexadecimal digits.

    Args:
        send: takes each message for the client, in order.
        find: the model of a name; raises `ModelNotFound`, `ModelNotSupported`.
        model: the name in the address, if there was one.
    """

    def __init__(self, send: Send, find: FindModel, transcriber: Transcriber, *, model: str = "") -> None:
        self.id = f"sess_{secrets.token_hex(12)}"
        self._send = send
        self._find = find
        self._transcriber = transcriber
        self._configuration = Configuration(model=model)
        self._buffer = AudioBuffer(self._configuration.rate, self._configuration.turns)
        self._item = ""
        self._previous_item: str | None = None
        self._turns: deque[Turn] = deque()
        self._ahead = 0
        self._worker: asyncio.Task[None] | None = None
        self._warming: asyncio.Task[None] | None = None
        self._preview: Preview | None = None

    async def open(self) -> None:
        """Greets the client, and tells it if the model in the address cannot be had."""
        configuration = self._configuration
        await self._send(say.SessionCreated(_event_id(), configuration.describe(self.id)))
        if configuration.model:
            try:
                self._model(configuration.model)
            except LemonadeError as error:
                await self.fail(error)

    async def close(self) -> None:
        """Gives up what is under way."""
        self._turns.clear()
        tasks = [task for task in (self._worker, self._warming, self._end_preview()) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        await self._transcriber.silero.leave(self.id)

    async def fail(self, error: LemonadeError, event_id: str | None = None) -> None:
        """Tells of a failure; `event_id` is that of the message at fault."""
        await self._send(say.Error(_event_id(), _error(error, event_id)))

    async def handle(self, message: say.ClientMessage) -> None:
        """Does what a client asks.

        Raises:
            LemonadeError: to be told to the client; the session is as it was.
        """
        match message:
            case say.Append():
                await self._append(message.audio)
            case say.Commit():
                await self._commit()
            case say.Clear():
                await self._clear()
            case _:
                await self._update(message.session)

    async def _update(self, fields: say.SessionFields) -> None:
        new, old = self._configuration.changed(fields), self._configuration
        if new.model != old.model:
            self._model(new.model)
            if self._warming is not None:
                self._warming.cancel()
                self._warming = None
        if new.ears != old.ears:
            if self._buffer.speaking or (old.turns is None and self._buffer.has_news):
                raise InvalidArgument(
                    "The audio format and the kind of turn detection cannot change in the middle of a turn; send "
                    "'input_audio_buffer.commit' or 'input_audio_buffer.clear' first.",
                    param="session",
                )
            self._buffer = AudioBuffer(new.rate, new.turns)
        elif new.turns != old.turns:
            self._buffer.settings = new.turns
            if not self._buffer.speaking:
                self._end_preview()
        self._configuration = new
        await self._send(say.SessionUpdated(_event_id(), new.describe(self.id)))

    async def _append(self, audio: bytes) -> None:
        if len(audio) % WIDTH:
            raise InvalidArgument("'audio' must hold whole samples of 16 bits: its size is odd.", param="audio")
        if self._ahead + self._buffer.size + len(audio) > MAX_AHEAD * self._buffer.rate * WIDTH:
            raise BufferFull(
                f"More than {MAX_AHEAD // 60} minutes of audio wait to be transcribed; this piece was not taken. Send "
                "'input_audio_buffer.commit', or wait for what was committed."
            )
        if self._warming is None and self._configuration.model:
            self._warming = asyncio.create_task(self._warm(self._configuration.model))
        if self._buffer.is_judged:
            self._buffer.judge(await self._likelihoods(audio))
        self._buffer.append(audio)
        for edge in self._buffer.listen():
            if edge == "start":
                await self._begin_turn()
            elif edge == "end":
                await self._end_turn()
            else:
                await asyncio.sleep(0)
        if self._preview is not None:
            self._preview.consider()

    async def _likelihoods(self, audio: bytes) -> list[float]:
        is_fresh, self._buffer.is_fresh = self._buffer.is_fresh, False
        return await self._transcriber.silero.hear(self.id, audio, self._buffer.rate, fresh=is_fresh)

    async def _begin_turn(self) -> None:
        self._item = _item_id()
        start = self._buffer.milliseconds(self._buffer.turn_start)
        await self._send(say.SpeechStarted(_event_id(), self._item, start))
        item = self._item

        async def show(text: str) -> None:
            await self._send(say.Delta(_event_id(), item, 0, text))

        self._preview = Preview(self._buffer, self._speech, self._find_current, self._transcriber, show)

    async def _end_turn(self) -> None:
        self._end_preview()
        end = self._buffer.milliseconds(self._buffer.heard)
        audio = self._buffer.take()
        await self._send(say.SpeechStopped(_event_id(), self._item, end))
        self._transcribe(audio)

    async def _commit(self) -> None:
        if not self._buffer.has_news:
            raise CommitEmpty("There is no audio to commit: none was appended since the last turn.")
        if self._configuration.turns is not None and not self._buffer.speaking:
            await self._clear()
            return
        self._end_preview()
        if not self._buffer.speaking:
            self._item = _item_id()
        audio = self._buffer.take_all()
        await self._send(say.Committed(_event_id(), self._item, self._previous_item))
        self._transcribe(audio)

    async def _clear(self) -> None:
        self._end_preview()
        self._buffer.clear()
        await self._send(say.Cleared(_event_id()))

    def _end_preview(self) -> asyncio.Task[None] | None:
        """Has no more deltas come of the open turn. Answers what is still under way."""
        preview, self._preview = self._preview, None
        return preview.end() if preview is not None else None

    def _transcribe(self, audio: bytes) -> None:
        """Puts a turn to those that wait; they are transcribed one after the other."""
        self._previous_item = self._item
        turn = Turn(self._item, self._configuration.model, self._speech(audio))
        self._ahead += len(turn.speech.padded)
        self._turns.append(turn)
        if self._worker is None or self._worker.done():
            self._worker = asyncio.create_task(self._work())

    async def _work(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            try:
                text = await self._transcriber.final(self._model(turn.model), turn.speech)
            except LemonadeError as error:
                await self._tell_failed(turn, error)
            except Exception as error:
                logger.exception("a turn of %s", self.id)
                await self._tell_failed(
                    turn, LemonadeError(f"{type(error).__name__}; the daemon's log has the details.")
                )
            else:
                usage = {"type": "duration", "seconds": round(turn.speech.seconds, 3)}
                await self._send(say.Completed(_event_id(), turn.item, 0, text, usage))
            finally:
                self._ahead -= len(turn.speech.padded)

    async def _tell_failed(self, turn: Turn, error: LemonadeError) -> None:
        told = {**_error(error), "message": f"Transcription failed: {error.message}", "type": "transcription_error"}
        await self._send(say.Failed(_event_id(), turn.item, 0, told))
        await self._send(say.Error(_event_id(), {**told, "item_id": turn.item}))

    async def _warm(self, name: str) -> None:
        try:
            await self._transcriber.warm(self._model(name))
        except LemonadeError as error:
            # Whoever speaks is told when a turn fails by it.
            logger.debug("%s is not ready: %s", name, error.message)

    def _speech(self, audio: bytes) -> Speech:
        configuration = self._configuration
        return Speech(audio, self._buffer.rate, configuration.language, configuration.prompt)

    def _find_current(self) -> Model:
        return self._model(self._configuration.model)

    def _model(self, name: str) -> Model:
        if not name:
            raise MissingArgument(
                "session.model", "No model was named: do it in the address, `?model=NAME`, or by 'session.update'."
            )
        model = self._find(name)
        if LABEL not in model.labels:
            raise InvalidArgument(
                f"The model '{name}' does not transcribe speech in realtime; those that do have the label '{LABEL}'.",
                param="model",
            )
        return model


def _error(error: LemonadeError, event_id: str | None = None) -> dict[str, Any]:
    told: dict[str, Any] = error.body()
    told.setdefault("code", None)
    told.setdefault("param", None)
    told["event_id"] = event_id
    return told


def _event_id() -> str:
    return f"event_{secrets.token_hex(12)}"


def _item_id() -> str:
    return f"item_{secrets.token_hex(12)}"
