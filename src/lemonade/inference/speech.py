"""A request for speech: what it may hold, and what an engine is asked for it."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.engines.audio.encode import FORMATS
from lemonade.errors import InvalidArgument, ModelNotApplicable, UnsupportedOperation
from lemonade.model import Model

#: Characters that are spoken for one request: more than an hour.
MAX_INPUT = 65_536
MAX_VOICE = 2_000
#: Rates of speech. Source: OpenAI's API.
SLOWEST, FASTEST = 0.25, 4.0
#: Bytes of a recording whose voice is taken.
MAX_REFERENCE = 32 * 1024 * 1024

#: Recipe to the formats that its engine writes whole, and as a stream; the first one is taken when the usual one is
#: not among them.
WHOLE: Mapping[str, tuple[str, ...]] = {"kokoro": tuple(FORMATS), "openmoss": ("wav", "pcm")}
STREAMED: Mapping[str, tuple[str, ...]] = {"kokoro": tuple(FORMATS), "openmoss": ("pcm",)}
#: What is written when the request does not say.
USUAL, USUAL_STREAMED = "mp3", "pcm"


class SpeechRequest(msgspec.Struct):
    """`null` counts as absent. Arguments that are not listed go to an OpenMOSS engine untouched; Kokoro knows none."""

    input: Annotated[str, Meta(description="The text to speak.", max_length=MAX_INPUT)]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
    voice: Annotated[
        Annotated[str, Meta(max_length=MAX_VOICE)] | UnsetType | None,
        Meta(
            description=(
                "For Kokoro, a voice of the model (`af_heart`, …; `GET /v1/audio/voices` lists them), one of OpenAI's "
                "(`alloy`, …), or a mixture such as `af_sky+af_bella`; `shimmer` by default. For OpenMOSS, a "
                "description of the voice or the style in free words."
            )
        ),
    ] = UNSET
    speed: Annotated[
        Annotated[float, Meta(ge=SLOWEST, le=FASTEST)] | UnsetType | None,
        Meta(description="Rate of speech; 1.0 by default."),
    ] = UNSET
    response_format: Annotated[
        Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] | UnsetType | None,
        Meta(
            description=(
                "How the sound is written: by default `mp3`, and `pcm` in a stream; `wav` and `pcm` by OpenMOSS, `pcm` "
                "only in its streams."
            )
        ),
    ] = UNSET
    stream: Annotated[bool | UnsetType | None, Meta(description="Send the sound as it is made, piece by piece.")] = (
        UNSET
    )
    stream_format: Annotated[
        Literal["audio", "sse"] | UnsetType | None,
        Meta(
            description=(
                "Streams, too: `audio` sends the sound itself; `sse` (an extension here) events with it in base64."
            )
        ),
    ] = UNSET
    instructions: Annotated[
        Annotated[str, Meta(max_length=MAX_VOICE)] | UnsetType | None,
        Meta(description="For OpenMOSS, the style if `voice` is not given. Ignored by Kokoro."),
    ] = UNSET
    reference_wav_b64: Annotated[
        str | UnsetType | None, Meta(description="Extension, OpenMOSS: a WAV file in base64 whose voice is taken.")
    ] = UNSET
    voice_design_description: Annotated[
        Annotated[str, Meta(max_length=MAX_VOICE)] | UnsetType | None,
        Meta(
            description=(
                "Extension, OpenMOSS: a description of a voice that is made up for this request. Of no effect beside "
                "`reference_wav_b64`."
            )
        ),
    ] = UNSET


@dataclass(frozen=True, slots=True)
class Speech:
    """A request that has been looked through.

    Attributes:
        format: in which the sound is written.
        stream: piece by piece.
        events: as server-sent events; only with `stream`.
        body: what the engine is asked, without what differs from one question to the next.
        design: the description of a voice that has to be made up first, or `""`.
    """

    format: str
    stream: bool
    events: bool
    body: Mapping[str, Any]
    design: str = ""


def check_model(model: Model) -> None:
    """Raises an error unless `model` speaks; asked before it is loaded.

    Raises:
        ModelNotApplicable: it is of another kind.
        UnsupportedOperation: its recipe has no engine for speech.
    """
    if model.mode != "tts":
        raise ModelNotApplicable(
            f"'{model.name}' does not speak: it is a model for {model.mode}. Speech is made by models with the label "
            "`tts`, such as 'kokoro-v1'."
        )
    if model.recipe not in WHOLE:
        raise UnsupportedOperation(f"Text to speech not supported by {model.recipe}", param="model")


def read(request: SpeechRequest, model: Model, raw: bytes = b"{}") -> Speech:
    """What the engine of `model` is to be asked. Takes what no other check sees: texts without a word, formats that
    this engine does not write, recordings that are none.

    Args:
        raw: the body that `request` was decoded from.

    Raises:
        InvalidArgument: naming the argument.
    """
    if not request.input.strip():
        raise InvalidArgument("'input' must not be empty.", param="input")
    events = request.stream_format == "sse"
    stream = request.stream is True or isinstance(request.stream_format, str)
    form = _format(request, model, stream)
    if model.recipe == "kokoro":
        body = {"input": request.input, "format": form, "stream": stream, **_given(request, "voice", "speed")}
        return Speech(form, stream, events, body)
    reference = _reference(request)
    more = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    body = {key: value for key, value in more.items() if key not in request.__struct_fields__}
    body |= {"input": request.input, **_given(request, "voice", "speed")}
    if not body.get("voice"):
        body |= {"voice": request.instructions} if isinstance(request.instructions, str) else {}
    body |= {"reference_wav_b64": reference} if reference else {}
    design = request.voice_design_description
    return Speech(form, stream, events, body, design.strip() if isinstance(design, str) and not reference else "")


def _format(request: SpeechRequest, model: Model, stream: bool) -> str:
    known = (STREAMED if stream else WHOLE)[model.recipe]
    wanted = request.response_format
    if not isinstance(wanted, str):
        usual = USUAL_STREAMED if stream else USUAL
        return usual if usual in known else known[0]
    if wanted not in known:
        how = " in a stream" if stream and wanted in WHOLE[model.recipe] else ""
        raise InvalidArgument(
            f"response_format '{wanted}' is not supported by this model{how} (supported: {', '.join(known)})",
            param="response_format",
        )
    return wanted


def _given(request: SpeechRequest, *names: str) -> dict[str, Any]:
    return {name: value for name in names if (value := getattr(request, name)) is not UNSET and value is not None}


def _reference(request: SpeechRequest) -> str:
    """The recording whose voice is taken, in base64 without gaps; `""` when there is none."""
    said = request.reference_wav_b64
    if not isinstance(said, str) or not said:
        return ""
    text = "".join(said.split()).removeprefix("data:audio/wav;base64,")
    if len(text) > MAX_REFERENCE * 4 // 3:
        raise InvalidArgument(
            f"'reference_wav_b64' is larger than {MAX_REFERENCE // 2**20} MiB; some seconds of speech are enough.",
            param="reference_wav_b64",
        )
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise InvalidArgument("'reference_wav_b64' is no base64.", param="reference_wav_b64") from None
    if data[:4] != b"RIFF" or data[8:12] != b"WAVE":
        raise InvalidArgument("'reference_wav_b64' must be a WAV file.", param="reference_wav_b64")
    return text
