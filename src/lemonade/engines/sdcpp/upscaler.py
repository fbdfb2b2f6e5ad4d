"""Real-ESRGAN by stable-diffusion.cpp, for one picture: what `lemonade.engines.worker` runs while it is enlarged."""

from __future__ import annotations

import base64
import sys
import time
from collections.abc import Mapping
from typing import Any

import cyllama.sd as sd
import numpy as np
from PIL import Image

from lemonade.engines.sdcpp import protocol, raster
from lemonade.engines.sdcpp.telling import Tell, events, stamped
from lemonade.engines.worker import Job, Operation, Reply, progress
from lemonade.errors import EngineError, InvalidArgument, LemonadeError

#: Pixels of a side of what is computed at once; the library lets tiles overlap. A tile of this size takes 420 MB of
#: memory with Real-ESRGAN x4, a whole photo would take more than there is.
TILE = 128


def operations(config: dict[str, Any]) -> Mapping[str, Operation]:
    """Loads the model.

    Args:
        config: `model`, a file; `threads`.

    Raises:
        LemonadeError: it cannot be loaded.
    """
    sd.set_log_callback(lambda level, text: print(text.rstrip(), file=sys.stderr, flush=True))
    sd.set_progress_callback(lambda step, steps, seconds: None)
    try:
        upscaler = sd.Upscaler(config["model"], n_threads=config["threads"], tile_size=TILE)
    except (RuntimeError, ValueError, OSError) as error:
        raise LemonadeError(f"stable-diffusion.cpp cannot load the upscaling model: {error}") from None

    def upscale(job: Job) -> dict[str, Any] | Reply:
        asked = protocol.enlargement(job.body)
        if asked.factor > upscaler.upscale_factor:
            raise InvalidArgument(
                f"'upscale_factor' must be at most {upscaler.upscale_factor}, the model's own.", param="upscale_factor"
            )
        if not asked.events:
            picture = _upscaled(upscaler, job, asked, None)
            return {"created": int(time.time()), "data": [{"b64_json": picture}], "output_format": "png"}

        def compute(tell: Tell) -> None:
            picture = _upscaled(upscaler, job, asked, tell)
            tell(protocol.COMPLETED, stamped({"b64_json": picture, "output_format": "png"}))

        return Reply(events(asked.events, compute), protocol.EVENTS)

    return {protocol.UPSCALE: upscale}


def _upscaled(upscaler: Any, job: Job, asked: protocol.Enlargement, tell: Tell | None) -> str:
    """The picture as PNG, in base64."""
    picture = raster.opened(asked.image, "image")
    factor = asked.factor or upscaler.upscale_factor
    size = (picture.width * factor, picture.height * factor)

    def step(number: int, steps: int, seconds: float) -> None:
        if 0 < number <= steps:
            progress(f"tile {number} of {steps}, {seconds:.2f} s")
            if tell is not None and asked.progress:
                tell(protocol.PROGRESS, {"step": number, "steps": steps})

    alpha = picture.convert("RGBA").getchannel("A") if raster.has_alpha(picture) else None
    # What is see-through keeps its own colour, else white would shine through at its edges.
    colours = np.array(raster.eight_bits(picture).convert("RGB" if alpha is None else "RGBA"))[:, :, :3]
    sd.set_progress_callback(step)
    try:
        with job.unstoppable():
            made = upscaler.upscale(sd.SDImage.from_numpy(np.ascontiguousarray(colours)), upscaler.upscale_factor)
    except RuntimeError as error:
        raise EngineError(f"Upscale failed: {error}") from None
    pixels = made.to_numpy()
    if (pixels.shape[1], pixels.shape[0]) != size:
        pixels = np.array(Image.fromarray(pixels).resize(size, Image.Resampling.LANCZOS))
    if alpha is not None:
        pixels = np.dstack((pixels, np.array(alpha.resize(size, Image.Resampling.BICUBIC))))
    return base64.b64encode(raster.png(pixels)).decode()
