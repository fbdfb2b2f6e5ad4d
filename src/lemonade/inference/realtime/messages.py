"""What is said on a realtime connection: each message is a struct whose tag is its `type`.

The shapes are those of the specification and, where they say more, of OpenAI's realtime API.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

Share = Annotated[float, Meta(ge=0, le=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=60_000)]

# What clients send. Keys that are not named here are overlooked.


class TurnDetection(Struct):
    """When speech begins and ends. What is left out stays as it is."""

    type: Annotated[str | None, Meta(description="`server_vad`, or `silero_vad`.")] = None
    threshold: Annotated[
        Share | None, Meta(description="Root mean square above which audio is voice; 1 is full scale.")
    ] = None
    silence_duration_ms: Annotated[Milliseconds | None, Meta(description="Silence that ends a turn.")] = None
    prefix_padding_ms: Annotated[Milliseconds | None, Meta(description="Voice that begins a turn.")] = None


class Transcription(Struct):
    """OpenAI's place for the model."""

    model: str | None = None
    language: str | None = None
    prompt: str | None = None


class Format(Struct):
    type: str | None = None
    rate: int | None = None


class AudioInput(Struct):
    format: Format | None = None
    transcription: Transcription | None = None
    turn_detection: TurnDetection | UnsetType | None = UNSET


class Audio(Struct):
    input: AudioInput | None = None


class SessionFields(Struct):
    """What can be set, in the flat shape and in OpenAI's nested one."""

    model: Annotated[str | None, Meta(description="The model that transcribes; loaded on first use.")] = None
    turn_detection: Annotated[
        TurnDetection | UnsetType | None,
        Meta(description="`threshold`, `silence_duration_ms`, `prefix_padding_ms`; `null` leaves turns to `commit`."),
    ] = UNSET
    input_audio_format: Annotated[str | None, Meta(description="`pcm16`.")] = None
    input_audio_transcription: Annotated[
        Transcription | None, Meta(description="`model`, `language`, `prompt`, in OpenAI's older shape.")
    ] = None
    audio: Annotated[
        Audio | None,
        Meta(description="`input` with `format`, `transcription` and `turn_detection`, in OpenAI's newer shape."),
    ] = None


SESSION = (
    "`model`, `turn_detection` (`null`, or any of `threshold`, `silence_duration_ms`, `prefix_padding_ms`), "
    "`input_audio_transcription` (`model`, `language`, `prompt`), or in OpenAI's nested shape `audio.input` with "
    "`format`, `transcription` and `turn_detection`."
)
EventId = Annotated[str | None, Meta(description="Any string; an `error` about this message repeats it.")]


class SessionUpdate(Struct, tag="session.update", tag_field="type"):
    """Sets up the session. What is left out stays as it is."""

    session: Annotated[SessionFields, Meta(description=SESSION)]
    event_id: EventId = None


class TranscriptionSessionUpdate(Struct, tag="transcription_session.update", tag_field="type"):
    """The same, under its older name."""

    session: Annotated[SessionFields, Meta(description=SESSION)]
    event_id: EventId = None


class Append(Struct, tag="input_audio_buffer.append", tag_field="type"):
    """A piece of audio of any length."""

    audio: Annotated[bytes, Meta(description="Base64 of 16-bit little-endian mono samples, 16000 a second.")]
    event_id: EventId = None


class Commit(Struct, tag="input_audio_buffer.commit", tag_field="type"):
    """Has the audio transcribed now. With turn detection, audio in which no turn has begun is let go of."""

    event_id: EventId = None


class Clear(Struct, tag="input_audio_buffer.clear", tag_field="type"):
    """Lets go of the audio."""

    event_id: EventId = None


ClientMessage = SessionUpdate | TranscriptionSessionUpdate | Append | Commit | Clear
CLIENT_MESSAGES: tuple[type[Struct], ...] = (SessionUpdate, TranscriptionSessionUpdate, Append, Commit, Clear)


class Envelope(Struct):
    """What can be told of a message that is not understood."""

    type: Any = None
    event_id: Any = None


# What the daemon sends.

OwnId = Annotated[str, Meta(description="A new one for every message.")]
ItemId = Annotated[str, Meta(description="The turn that this is about.")]
ContentIndex = Annotated[int, Meta(description="Always 0.")]


class SessionCreated(Struct, tag="session.created", tag_field="type"):
    """The first message on a connection."""

    event_id: OwnId
    session: Annotated[dict[str, Any], Meta(description="`id`, and what is set.")]


class SessionUpdated(Struct, tag="session.updated", tag_field="type"):
    """The answer to `session.update`."""

    event_id: OwnId
    session: Annotated[
        dict[str, Any], Meta(description="`id`, `model`, `turn_detection`, and the same in the nested shape.")
    ]


class SpeechStarted(Struct, tag="input_audio_buffer.speech_started", tag_field="type"):
    """A turn has begun."""

    event_id: OwnId
    item_id: ItemId
    audio_start_ms: Annotated[int, Meta(description="Where its audio begins, in milliseconds of audio sent so far.")]


class SpeechStopped(Struct, tag="input_audio_buffer.speech_stopped", tag_field="type"):
    """The turn has ended, and is being transcribed."""

    event_id: OwnId
    item_id: ItemId
    audio_end_ms: Annotated[int, Meta(description="Where its audio ends, in milliseconds of audio sent so far.")]


class Committed(Struct, tag="input_audio_buffer.committed", tag_field="type"):
    """The answer to `commit`: the audio is being transcribed."""

    event_id: OwnId
    item_id: ItemId
    previous_item_id: Annotated[str | None, Meta(description="The turn before.")]


class Cleared(Struct, tag="input_audio_buffer.cleared", tag_field="type"):
    """The audio was let go of."""

    event_id: OwnId


class Delta(Struct, tag="conversation.item.input_audio_transcription.delta", tag_field="type"):
    """What the turn says so far."""

    event_id: OwnId
    item_id: ItemId
    content_index: ContentIndex
    delta: Annotated[str, Meta(description="The whole text so far; it takes the place of the one before.")]


class Completed(Struct, tag="conversation.item.input_audio_transcription.completed", tag_field="type"):
    """What the turn says."""

    event_id: OwnId
    item_id: ItemId
    content_index: ContentIndex
    transcript: Annotated[str, Meta(description="The text; empty when nothing was said.")]
    usage: Annotated[dict[str, Any], Meta(description="`type` is `duration`, `seconds` the length of the audio.")]


class Failed(Struct, tag="conversation.item.input_audio_transcription.failed", tag_field="type"):
    """The turn could not be transcribed; an `error` with the same reason comes after it."""

    event_id: OwnId
    item_id: ItemId
    content_index: ContentIndex
    error: Annotated[dict[str, Any], Meta(description="As in `error`.")]


class Error(Struct, tag="error", tag_field="type"):
    """Something was wrong. The connection stays, and so does the session."""

    event_id: OwnId
    error: Annotated[
        dict[str, Any],
        Meta(description="`type`, `message`, and where they apply `code`, `param`, and the message's own `event_id`."),
    ]


ServerMessage = (
    SessionCreated
    | SessionUpdated
    | SpeechStarted
    | SpeechStopped
    | Committed
    | Cleared
    | Delta
    | Completed
    | Failed
    | Error
)
SERVER_MESSAGES: tuple[type[Struct], ...] = (
    SessionCreated,
    SessionUpdated,
    SpeechStarted,
    SpeechStopped,
    Committed,
    Cleared,
    Delta,
    Completed,
    Failed,
    Error,
)

decoder: msgspec.json.Decoder[ClientMessage] = msgspec.json.Decoder(ClientMessage)
