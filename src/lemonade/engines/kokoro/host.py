"""The recipe `kokoro` inside its own process, which `engines/worker.py` runs. The only module that loads its libraries.

`POST /speak` takes `{"input", "voice", "speed", "format", "stream"}` and answers the sound file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.engines.audio.encode import FORMATS, encode, encoder, media_type
from lemonade.engines.kokoro.espeak import Espeak
from lemonade.engines.kokoro.layout import find
from lemonade.engines.kokoro.network import RATE, Network
from lemonade.engines.kokoro.phonemes import Phonemizer
from lemonade.engines.kokoro.speaker import Speaker
from lemonade.engines.kokoro.voices import DEFAULT, blend
from lemonade.engines.worker import Job, Operation, Reply, concurrent
from lemonade.errors import InvalidArgument

if TYPE_CHECKING:
    from lemonade.engines.kokoro.network import Samples


class Request(msgspec.Struct):
    """What the daemon asks; it has checked all but the voice."""

    input: str
    voice: str = DEFAULT
    speed: float = 1.0
    format: str = "mp3"
    stream: bool = False


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """Loads a model.

    Args:
        config: `main`, the model's file or folder as `layout.find` takes it; `threads` that compute one piece of a
            text, and `workers`, how many pieces are computed at once.

    Raises:
        ModelLoadError: it cannot be loaded.
    """
    network = Network(find(Path(config["main"])), int(config["threads"]))
    speaker = Speaker(network, Phonemizer(Espeak(), network.vocabulary), int(config["workers"]))

    @concurrent
    def speak(job: Job) -> Reply:
        request = _decode(job.body)
        voice = blend(request.voice, network.voices)
        sounds = speaker.speak(request.input, voice, request.speed, job.check, soon=request.stream)
        kind = media_type(request.format, RATE)
        if request.stream:
            return Reply(_stream(sounds, request.format), kind)
        return Reply(encode(sounds, request.format, RATE), kind)

    return {"/speak": speak}


def _stream(sounds: Iterator[Samples], name: str) -> Iterator[bytes]:
    made = encoder(name, RATE)
    for sound in sounds:
        yield made.write(sound)
    yield made.finish()


def _decode(body: bytes) -> Request:
    try:
        request = msgspec.json.decode(body, type=Request)
    except msgspec.MsgspecError as error:
        raise InvalidArgument(f"The request is not valid: {error}.") from None
    if request.format not in FORMATS:
        raise InvalidArgument(f"There is no format {request.format!r}.", param="response_format")
    return request
