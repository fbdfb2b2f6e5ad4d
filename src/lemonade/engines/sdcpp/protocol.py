"""What the bundled engine is asked: one message of msgpack, in which pictures are the files as they came."""

from __future__ import annotations

import msgspec

#: The seed of a request without one, so that it can be repeated. Source: stable-diffusion.cpp's own default.
SEED = 42

GENERATE = "/generate"
UPSCALE = "/upscale"
MEDIA_TYPE = "application/msgpack"
EVENTS = "text/event-stream"

#: Clients of OpenAI's API look for it in the last event; pictures are not made of tokens here.
NO_USAGE = {
    "input_tokens": 0,
    "output_tokens": 0,
    "total_tokens": 0,
    "input_tokens_details": {"image_tokens": 0, "text_tokens": 0},
}

#: What the engine tells while it computes, as the name of an event behind the prefix that its client wants.
PROGRESS, PARTIAL, COMPLETED = "progress", "partial_image", "completed"


class Painting(msgspec.Struct, kw_only=True):
    """Pictures that are wanted.

    Attributes:
        width, height: of the result, in pixels; any size.
        as_first: the size is that of the first picture as its file has it, before it is turned upright.
        n: so many pictures, with the seeds from `seed` on.
        steps: of sampling, from 1 on.
        cfg_scale: how far the prompt leads; 1 is without guidance.
        sampling_method: as stable-diffusion.cpp names it; empty for the model's own.
        flow_shift: of flow models; 0 for the model's own.
        start: a picture to begin with, PNG or JPEG or WebP.
        strength: of the noise that is laid over `start`, 0 to 1; None for the engine's own.
        references: pictures to look at.
        mask: which part of `start` is painted anew.
        model: its name, for the notes in the file.
        events: the prefix of the names of events, and that there shall be events; empty for one answer.
        progress: whether steps are told by events.
        partial_images: so many previews of each picture.
    """

    prompt: str
    width: int
    height: int
    as_first: bool = False
    n: int = 1
    seed: int = SEED
    steps: int = 20
    cfg_scale: float = 7.0
    negative_prompt: str = ""
    sampling_method: str = ""
    flow_shift: float = 0.0
    start: bytes | None = None
    strength: float | None = None
    references: list[bytes] = []
    mask: bytes | None = None
    model: str = ""
    events: str = ""
    progress: bool = False
    partial_images: int = 0


class Enlargement(msgspec.Struct, kw_only=True):
    """A picture that is wanted larger.

    Attributes:
        factor: how much; 0 for the model's own, which is the most.
        events, progress: as of a `Painting`.
    """

    image: bytes
    factor: int = 0
    events: str = ""
    progress: bool = False


encode = msgspec.msgpack.encode
painting = msgspec.msgpack.Decoder(Painting).decode
enlargement = msgspec.msgpack.Decoder(Enlargement).decode
