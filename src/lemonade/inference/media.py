"""Pictures and sounds in the messages of a chat: what may be in them, checked before a model is loaded for them.

An engine decodes what it is given, and would open an address that it finds. So it is only ever given what was looked at
here: data whose header declares a reasonable size, and no address at all. The data is looked at where it lies in the
request's body; it is neither copied nor decoded, but for the head of each file.
"""

from __future__ import annotations

import asyncio
import binascii
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import InvalidArgument
from lemonade.inference.pictures import FORMATS, MAX_IMAGE_BYTES, MAX_PIXELS, Picture, Reader, read_header

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.settings import Settings

#: Pictures in one request: a long conversation about photos fits, a flood does not.
MAX_IMAGES = 100
#: Pictures in one request that have to be fetched.
MAX_REMOTE_IMAGES = 8
#: Pixels of all pictures of one request, which an engine unpacks before it looks at the first one: 768 MiB.
MAX_PIXELS_TOGETHER = 4 * MAX_PIXELS
#: Sounds in one request.
MAX_SOUNDS = 16
#: Bytes of one sound: what OpenAI's API takes.
MAX_SOUND_BYTES = 25 * 1024 * 1024
#: Samples per second that a WAV file may declare; an engine resamples to 16000, so that a low number is a bomb.
SAMPLE_RATES = range(4000, 384001)
#: Bytes of a request from which on it is looked at beside the loop: a hundred megabytes take half a second.
LARGE = 512 * 1024

#: Seconds for a picture from the web; the fetch itself ends sooner, but for a name server that is silent.
MAX_FETCH = 30.0

#: Longest head of a data URL: a media type and perhaps a parameter.
_MAX_HEAD = 256
#: Exactly the heads that llama.cpp takes.
_HEAD = re.compile(rb"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]+)*;base64,")
_WEB = re.compile(rb"https?://", re.IGNORECASE)
_BACKSLASH = re.compile(rb"\\")
#: Characters of base64 that are checked at a time; a multiple of 4.
_STEP = 64 * 1024

_RAW_STRING = {"type": "string"}


class ImageURL(msgspec.Struct):
    """A picture."""

    url: Annotated[
        msgspec.Raw,
        Meta(
            description=(
                f"The picture as `data:image/png;base64,…`: {FORMATS}. An http(s) address is fetched only when the "
                "setting `allow_remote_images` is on."
            ),
            extra_json_schema=_RAW_STRING,
        ),
    ]


class InputAudio(msgspec.Struct):
    """A sound, for models with the label `chat-transcription`."""

    data: Annotated[msgspec.Raw, Meta(description="The file in base64.", extra_json_schema=_RAW_STRING)]
    format: Annotated[str, Meta(description="`wav` or `mp3`.")]


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: Annotated[str, Meta(description="`text`, `image_url` or `input_audio`.")]
    text: Annotated[str | UnsetType | None, Meta(description="The text of a part of type `text`.")] = UNSET
    image_url: Annotated[ImageURL | UnsetType | None, Meta(description="Of a part of type `image_url`.")] = UNSET
    input_audio: Annotated[InputAudio | UnsetType | None, Meta(description="Of a part of type `input_audio`.")] = UNSET


class Message(Protocol):
    """As much of a message as is looked at here."""

    @property
    def content(self) -> str | list[Part] | None: ...


class Remote(NamedTuple):
    """A picture that an engine cannot be given as it is, since it is somewhere else, or a WebP file: its place in the
    request, and its address or data URL."""

    message: int
    part: int
    url: str

    @property
    def place(self) -> str:
        return _place(self.message, self.part)

    @property
    def is_here(self) -> bool:
        return self.url.startswith("data:")


@dataclass(slots=True)
class Found:
    """What the messages of a request hold.

    Attributes:
        pixels: of the pictures that are in it.
        addresses: of pictures that are somewhere else.
        remote: the pictures that have to be put in before an engine is asked.
    """

    images: int = 0
    addresses: int = 0
    sounds: int = 0
    pixels: int = 0
    remote: list[Remote] = field(default_factory=list)


def sees(model: Model) -> bool:
    """Whether a model takes pictures."""
    if model.recipe != "llamacpp":
        return "vision" in model.labels
    # A header may call a model `vision` whose projector was never registered with it: the file is what counts.
    return "mmproj" in model.checkpoints and ("vision" in model.labels or "chat-transcription" not in model.labels)


def hears(model: Model) -> bool:
    """Whether a model takes sounds."""
    if "chat-transcription" not in model.labels:
        return False
    return model.recipe != "llamacpp" or "mmproj" in model.checkpoints


def fetches_pictures(settings: Settings) -> bool:
    """Whether the address of a picture may stand for it."""
    return bool(settings["allow_remote_images"]) and not settings["offline"]


async def examine(messages: Sequence[Message], model: Model, *, size: int, allow_remote: bool) -> Found:
    """As `check`, without holding up the loop.

    Args:
        size: of the request in bytes.

    Raises:
        InvalidArgument: as `check`.
    """
    if not any(isinstance(message.content, list) for message in messages):
        return Found()
    if size < LARGE:
        return check(messages, model, allow_remote=allow_remote)
    return await asyncio.to_thread(check, messages, model, allow_remote=allow_remote)


async def put_in(body: bytes, found: Found) -> bytes:
    """The body with the remote pictures in it, and those that engines cannot decode in a form that they can; an address
    is never left.

    Raises:
        InvalidArgument: naming the part that cannot be had, or should not.
    """
    if not found.remote:
        return body
    fetched = iter(await asyncio.gather(*(_fetch(remote) for remote in found.remote if not remote.is_here)))
    tree = msgspec.json.decode(body)
    pixels = found.pixels
    for remote in found.remote:
        if remote.is_here:
            # One after the other, as each needs memory for its pixels; they are counted already.
            url = await asyncio.to_thread(_transcode, remote)
        else:
            url, more = next(fetched)
            pixels += more
            _check_together(remote.place, pixels)
        tree["messages"][remote.message]["content"][remote.part]["image_url"]["url"] = url
    return msgspec.json.encode(tree)


def check(messages: Sequence[Message], model: Model, *, allow_remote: bool) -> Found:
    """Looks at every part of every message.

    Args:
        allow_remote: whether the address of a picture may stand for it.

    Raises:
        InvalidArgument: naming the part that the model cannot take, or that nobody should.
    """
    found = Found()
    for message, part, content in _parts(messages):
        place = _place(message, part)
        if content.type == "image_url":
            found.images += 1
            if found.images > MAX_IMAGES:
                raise _refusal(place, f"is one picture too many: a request holds at most {MAX_IMAGES}.")
            _check_sight(place, model)
            if not isinstance(content.image_url, ImageURL):
                raise _refusal(place, 'needs an `image_url` such as {"url": "data:image/png;base64,…"}.')
            url = _string(place, "image_url.url", content.image_url.url)
            if _WEB.match(url):
                found.remote.append(Remote(message, part, _address(place, url, allow_remote)))
                found.addresses += 1
                if found.addresses > MAX_REMOTE_IMAGES:
                    raise _refusal(place, f"is one address too many: at most {MAX_REMOTE_IMAGES} pictures are fetched.")
                continue
            picture = _check_image(place, url)
            if picture.media_type == "image/webp":
                found.remote.append(Remote(message, part, bytes(url).decode()))
            found.pixels += picture.pixels
            _check_together(place, found.pixels)
        elif content.type == "input_audio":
            found.sounds += 1
            if found.sounds > MAX_SOUNDS:
                raise _refusal(place, f"is one sound too many: a request holds at most {MAX_SOUNDS}.")
            _check_hearing(place, model)
            if not isinstance(content.input_audio, InputAudio):
                raise _refusal(place, 'needs an `input_audio` such as {"data": "…", "format": "wav"}.')
            _check_sound(place, content.input_audio)
        elif content.type != "text":
            raise _refusal(place, "has a type that is not `text`, `image_url` or `input_audio`.")
    return found


async def _fetch(remote: Remote) -> tuple[str, int]:
    def fetch() -> tuple[str, int]:
        from lemonade.inference.remote_images import fetch

        return fetch(remote.place, remote.url)

    try:
        return await asyncio.wait_for(asyncio.to_thread(fetch), MAX_FETCH)
    except TimeoutError:
        raise _refusal(remote.place, "cannot be fetched: the name of the server is not found in time.") from None


def _transcode(remote: Remote) -> str:
    from lemonade.inference.transcoding import webp_as_png

    try:
        return webp_as_png(binascii.a2b_base64(remote.url.partition(",")[2]))[0]
    except ValueError as error:
        raise _refusal(remote.place, f"{error}.") from None


def _parts(messages: Sequence[Message]) -> Iterator[tuple[int, int, Part]]:
    for number, message in enumerate(messages):
        if isinstance(message.content, list):
            for index, part in enumerate(message.content):
                yield number, index, part


def _check_sight(place: str, model: Model) -> None:
    """A collection answers with one of its components, which is asked then."""
    if model.is_collection or sees(model):
        return
    is_file = model.recipe == "llamacpp"
    hint = "It was registered without an `mmproj` file for pictures." if is_file else "It lacks the label `vision`."
    raise _refusal(place, f"is a picture, and the model '{model.name}' cannot see. {hint}")


def _check_hearing(place: str, model: Model) -> None:
    if model.is_collection:
        return
    if "chat-transcription" not in model.labels:
        raise _refusal(
            place,
            f"is a sound, and the model '{model.name}' cannot hear: it lacks the label `chat-transcription`. "
            "`/v1/audio/transcriptions` turns speech into text.",
        )
    if model.recipe == "llamacpp" and "mmproj" not in model.checkpoints:
        raise _refusal(
            place, f"is a sound, and the model '{model.name}' was registered without an `mmproj` file to hear with."
        )


def _check_image(place: str, url: memoryview) -> Picture:
    """A picture in a data URL."""
    head = _HEAD.match(url[:_MAX_HEAD])
    if head is None:
        raise _refusal(place, "must be a picture in a data URL: `data:image/png;base64,…`.")
    read = _reader(place, url[head.end() :], MAX_IMAGE_BYTES)
    try:
        return read_header(read)
    except ValueError as error:
        raise _refusal(place, f"{error}.") from None


def _check_together(place: str, pixels: int) -> None:
    if pixels > MAX_PIXELS_TOGETHER:
        raise _refusal(
            place,
            f"makes the pictures of this request too large: at most {MAX_PIXELS_TOGETHER // 2**20} megapixels.",
        )


def _check_sound(place: str, sound: InputAudio) -> None:
    if sound.format not in ("wav", "mp3"):
        raise _refusal(place, "has an `input_audio.format` that is not `wav` or `mp3`.")
    read = _reader(place, _string(place, "input_audio.data", sound.data), MAX_SOUND_BYTES)
    head = read(0, 12)
    if head.startswith(b"RIFF") and head[8:] == b"WAVE":
        rate = _sample_rate(read)
        if rate not in SAMPLE_RATES:
            raise _refusal(place, f"is a WAV file of {rate} samples per second; 16000 is what models hear.")
    elif not head.startswith(b"ID3") and not (head[:1] == b"\xff" and head[1:2] >= b"\xe0"):
        raise _refusal(place, "is neither a WAV nor an MP3 file.")


def _sample_rate(read: Reader) -> int:
    """Of a WAV file; 0 when none is declared in its first chunks."""
    at = 12
    for _ in range(64):
        chunk = read(at, 16)
        if chunk[:4] == b"fmt ":
            return int.from_bytes(chunk[12:16], "little")
        at += 8 + int.from_bytes(chunk[4:8], "little")
    return 0


def _string(place: str, field: str, raw: msgspec.Raw) -> memoryview:
    """The characters of a JSON string where they lie; a copy of them only if some are escaped."""
    view = memoryview(raw)
    if view.nbytes < 2 or view[0] != ord('"'):
        raise _refusal(place, f"has an `{field}` that is not a string.")
    if _BACKSLASH.search(view):
        return memoryview(msgspec.json.decode(view, type=str).encode())
    return view[1:-1]


def _address(place: str, url: memoryview, allowed: bool) -> str:
    if not allowed:
        raise _refusal(
            place,
            "is the address of a picture. Send the picture itself as `data:image/png;base64,…`; addresses are fetched "
            "only when the setting `allow_remote_images` is on and `offline` is not.",
        )
    if len(url) > 8192:
        raise _refusal(place, "is too long for an address.")
    return bytes(url).decode()


def _reader(place: str, payload: memoryview, limit: int) -> Reader:
    """Checks that the payload is base64 of at most `limit` bytes; the result reads it at any offset."""
    if len(payload) > 4 * -(-limit // 3):
        raise _refusal(place, f"is larger than {limit // 2**20} MiB.")
    if not _is_base64(payload):
        raise _refusal(
            place, "is not base64: only A-Z, a-z, 0-9, + and / belong in it, and = at the end to fill the last four."
        )

    def read(at: int, count: int) -> bytes:
        first = at // 3 * 4
        last = -(-(at + count) // 3) * 4
        data = binascii.a2b_base64(payload[first:last])
        return data[at % 3 : at % 3 + count]

    return read


def _is_base64(payload: memoryview) -> bool:
    if not payload or len(payload) % 4:
        return False
    last = (len(payload) - 1) // _STEP * _STEP
    try:
        for at in range(0, last, _STEP):
            if len(binascii.a2b_base64(payload[at : at + _STEP], strict_mode=True)) * 4 != _STEP * 3:
                return False
        return bool(binascii.a2b_base64(payload[last:], strict_mode=True))
    except binascii.Error:
        return False


def _place(message: int, part: int) -> str:
    return f"messages[{message}].content[{part}]"


def _refusal(place: str, problem: str) -> InvalidArgument:
    """Never with the data in it: it may be megabytes, and nobody's business in a log."""
    return InvalidArgument(f"'{place}' {problem}", param=place)
