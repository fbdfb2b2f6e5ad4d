"""`WS /v1/realtime`: speech in, text out, while it is spoken."""

from __future__ import annotations

import contextlib
from typing import Annotated

import msgspec
from msgspec import Meta

from lemonade.api.endpoint import explain
from lemonade.api.websocket import ClientGone, WebSocket, WebSocketEndpoint
from lemonade.errors import InvalidArgument, LemonadeError, RequestError
from lemonade.inference.realtime.messages import (
    CLIENT_MESSAGES,
    SERVER_MESSAGES,
    ClientMessage,
    Envelope,
    ServerMessage,
    decoder,
)

_encoder = msgspec.json.Encoder()
_envelopes = msgspec.json.Decoder(Envelope)
_TYPES = frozenset(str(message.__struct_config__.tag) for message in CLIENT_MESSAGES)


class Query(msgspec.Struct):
    """The query of the address."""

    model: Annotated[str, Meta(description="The model that transcribes; `session.update` can name it as well.")] = ""


async def realtime(socket: WebSocket) -> None:
    from lemonade.inference.realtime.session import Session

    services = socket.services

    async def send(message: ServerMessage) -> None:
        # The one that reads notices that nobody is there.
        with contextlib.suppress(ClientGone):
            await socket.send(_encoder.encode(message).decode())

    session = Session(send, services.catalog.find, services.transcriber, model=socket.query.model)
    try:
        await session.open()
        while True:
            text = await socket.receive()
            try:
                await session.handle(_decode(text))
            except LemonadeError as error:
                await session.fail(error, _event_id(text))
    finally:
        await session.close()


def _decode(text: str | bytes) -> ClientMessage:
    """A client's message.

    Raises:
        RequestError: what is wrong with it.
    """
    if isinstance(text, bytes):
        raise InvalidArgument("Messages are JSON texts; audio goes into 'input_audio_buffer.append' as base64.")
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _wrong(text, error) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise RequestError(f"Invalid JSON: {error}.") from None


def _wrong(text: str, error: msgspec.ValidationError) -> RequestError:
    try:
        kind = _envelopes.decode(text).type
    except msgspec.ValidationError:
        return RequestError("Invalid JSON: a message is an object.")
    except (msgspec.DecodeError, RecursionError) as worse:
        # The decoder stopped at the first wrong field, before it came to what is no JSON at all.
        return RequestError(f"Invalid JSON: {worse}.")
    if isinstance(kind, list | dict):
        return InvalidArgument("'type' must be a string.", param="type")
    if kind not in _TYPES:
        return InvalidArgument(f"Unknown message type: {str(kind)[:100]}", param="type")
    return explain(str(error))


def _event_id(text: str | bytes) -> str | None:
    try:
        event_id = _envelopes.decode(text).event_id
    except (msgspec.DecodeError, RecursionError):
        return None
    return event_id if isinstance(event_id, str) else None


REALTIME = WebSocketEndpoint(
    id="openai.realtime",
    path="/realtime",
    summary="Transcribe speech while it is spoken",
    description=(
        "Models with the label `realtime-transcription` serve it; they are loaded with the first audio. Audio is mono, "
        "16-bit little-endian samples in base64, 16000 a second; a session that says so in "
        "`audio.input.format.rate` may send 24000. A turn begins and ends by its energy, counted in samples, so the "
        "size of the messages does not matter; with `turn_detection: null` it ends by `input_audio_buffer.commit`. "
        "No failure ends the connection; an `error` tells of it. At most 30 minutes of audio may wait."
    ),
    query=Query,
    receives=CLIENT_MESSAGES,
    sends=SERVER_MESSAGES,
    handler=realtime,
)
