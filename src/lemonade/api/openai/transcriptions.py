"""`POST /v1/audio/transcriptions` and `POST /v1/audio/translations`."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.api.endpoint import ENGINE_ERRORS, LOAD_ERRORS, Endpoint, ErrorRow
from lemonade.api.exchange import Exchange
from lemonade.api.form import Upload
from lemonade.errors import InvalidArgument
from lemonade.inference import languages
from lemonade.inference.relay import on_engine
from lemonade.inference.transcription import Transcribing, Wish, check_model, rendered, verbose

ResponseFormat = Annotated[
    Literal["json", "verbose_json", "text", "srt", "vtt"],
    Meta(description="`json` (the default), `verbose_json`, `text`, or subtitles as `srt` or `vtt`."),
]
Temperature = Annotated[
    float,
    Meta(ge=0, le=1, description="Sampling temperature. The default is 0. Moonshine models ignore it."),
]
Prompt = Annotated[
    str, Meta(description="Text that comes before: names and a style to follow. Moonshine models ignore it.")
]
File = Annotated[
    Upload,
    Meta(
        description=(
            "The recording: WAV of every kind, MP3, M4A and AAC, FLAC, Ogg with Opus or Vorbis, WebM, and other files "
            "with sound in them."
        )
    ),
]
ModelName = Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]


class TranscriptionForm(msgspec.Struct):
    """Fields that are not listed are ignored."""

    file: File
    model: ModelName
    language: Annotated[
        str,
        Meta(
            description=(
                "The language that is spoken, as a code such as `en`. The default `auto` finds it out. Models that "
                "know one language ignore it."
            )
        ),
    ] = languages.AUTO
    prompt: Prompt = ""
    response_format: ResponseFormat = "json"
    temperature: Temperature = 0.0
    timestamp_granularities: Annotated[
        list[Literal["word", "segment"]],
        Meta(description="What `verbose_json` has times of: `segment` (the default), `word`, or both."),
    ] = msgspec.field(name="timestamp_granularities[]", default_factory=list)
    stream: Annotated[
        bool,
        Meta(description="Sends the text as it becomes known, as events. Not with `srt` and `vtt`."),
    ] = False


class TranslationForm(msgspec.Struct):
    """Fields that are not listed are ignored."""

    file: File
    model: ModelName
    prompt: Prompt = ""
    response_format: ResponseFormat = "json"
    temperature: Temperature = 0.0


class Usage(msgspec.Struct):
    """What was worked on."""

    type: Annotated[str, Meta(description="Always `duration`.")]
    seconds: Annotated[float, Meta(description="Length of the recording.")]


class TranscriptSegment(msgspec.Struct):
    """Something that was said without a longer pause."""

    id: Annotated[int, Meta(description="Number of the segment, from 0.")]
    seek: Annotated[int, Meta(description="Where the stretch that the model looked at begins, in 1/100 s.")]
    start: Annotated[float, Meta(description="Begin, in seconds.")]
    end: Annotated[float, Meta(description="End, in seconds.")]
    text: Annotated[str, Meta(description="What was said.")]
    tokens: Annotated[list[int], Meta(description="Ids of the text's tokens; empty for Moonshine models.")]
    temperature: Annotated[float, Meta(description="The temperature that was asked for.")]
    avg_logprob: Annotated[float, Meta(description="Mean logarithm of the tokens' probabilities; 0 for Moonshine.")]
    compression_ratio: Annotated[float, Meta(description="Above 2.4 the model has probably repeated itself.")]
    no_speech_prob: Annotated[
        float, Meta(description="The part of the segment, from 0 to 1, that is too quiet to be speech.")
    ]


class TranscriptWord(msgspec.Struct):
    """One word."""

    word: Annotated[str, Meta(description="The word, with its punctuation.")]
    start: Annotated[float, Meta(description="Begin, in seconds.")]
    end: Annotated[float, Meta(description="End, in seconds.")]


class Transcription(msgspec.Struct):
    """The answer for `json` and `verbose_json`. `text`, `srt` and `vtt` are answered as `text/plain`. A stream has
    events of the type `transcript.text.delta`, whose `delta`s are what the text consists of, and at the end one of the
    type `transcript.text.done` with the whole `text`. With `verbose_json` the events have more than OpenAI's:
    deltas their `start` and `end`, the last one all that this answer has."""

    text: Annotated[str, Meta(description="What was said; empty when nothing was.")]
    usage: Annotated[Usage, Meta(description="What was worked on.")]
    task: Annotated[str | UnsetType, Meta(description="With `verbose_json`: `transcribe` or `translate`.")] = UNSET
    language: Annotated[
        str | UnsetType,
        Meta(description="With `verbose_json`: what was spoken, as `english`; after a translation, that."),
    ] = UNSET
    duration: Annotated[float | UnsetType, Meta(description="With `verbose_json`: of the recording, in seconds.")] = (
        UNSET
    )
    segments: Annotated[list[TranscriptSegment] | UnsetType, Meta(description="With `verbose_json`.")] = UNSET
    words: Annotated[
        list[TranscriptWord] | UnsetType, Meta(description="With `verbose_json`, when words were asked for.")
    ] = UNSET


async def transcribe(exchange: Exchange, form: TranscriptionForm) -> None:
    wish = Wish(
        language=languages.code(form.language),
        prompt=form.prompt,
        temperature=form.temperature,
        words="word" in form.timestamp_granularities and form.response_format == "verbose_json",
    )
    if form.stream and form.response_format in ("srt", "vtt"):
        raise InvalidArgument("'stream' goes with the response formats json, verbose_json and text.", param="stream")
    await _answer(exchange, form, wish)


async def translate(exchange: Exchange, form: TranslationForm) -> None:
    await _answer(exchange, form, Wish(prompt=form.prompt, temperature=form.temperature, translate=True))


async def _answer(exchange: Exchange, form: TranscriptionForm | TranslationForm, wish: Wish) -> None:
    services = exchange.services
    if form.file.size == 0:
        raise InvalidArgument("'file' is empty.", param="file")
    model = services.catalog.find(form.model)
    check_model(model, translate=wish.translate)
    stream = isinstance(form, TranscriptionForm) and form.stream
    granularities = form.timestamp_granularities if isinstance(form, TranscriptionForm) else []
    if stream:
        more = partial(verbose, granularities=granularities) if form.response_format == "verbose_json" else None
        work = Transcribing(form.file.path, wish, exchange, more)
    else:
        work = Transcribing(form.file.path, wish)
    await on_engine(services.residency, model, work, streaming=stream, metrics=services.metrics)
    if not stream:
        body, media_type = rendered(work.transcript, form.response_format, granularities, translated=wish.translate)
        await exchange.reply(body, media_type=media_type)


_ERRORS = (
    ErrorRow(400, None, "`unsupported_operation`: the model does not turn speech into text, or not in this way."),
    *LOAD_ERRORS,
    *(row for row in ENGINE_ERRORS if row.code != "context_shared" and row.status != 501),
)

TRANSCRIPTIONS = Endpoint(
    id="openai.audio_transcriptions",
    method="POST",
    path="/audio/transcriptions",
    summary="Transcribe a recording",
    description=(
        "Downloads and loads the model if it is not loaded. Long recordings are worked on piece by piece, and the log "
        "tells how far. When the client hangs up, the work is given up."
    ),
    form=TranscriptionForm,
    response=Transcription,
    streams=True,
    errors=_ERRORS,
    handler=transcribe,
)

TRANSLATIONS = Endpoint(
    id="openai.audio_translations",
    method="POST",
    path="/audio/translations",
    summary="Translate a recording into English",
    description="As transcriptions, with the text in English. For Whisper models that know several languages.",
    form=TranslationForm,
    response=Transcription,
    errors=_ERRORS,
    handler=translate,
)
