"""What tests see in pictures."""

from __future__ import annotations

import base64
import io
from typing import Any

import numpy as np
from PIL import ExifTags, Image

RED, BLUE = (220, 60, 30), (20, 90, 200)


def file(width: int = 32, height: int = 32, kind: str = "PNG", top: Any = RED, bottom: Any = BLUE) -> bytes:
    """Two halves, one above the other."""
    pixels = np.zeros((height, width, len(top)), np.uint8)
    pixels[: height // 2], pixels[height // 2 :] = top, bottom
    return packed(pixels, kind)


def turned(data: bytes, orientation: int, kind: str) -> bytes:
    """The picture as a camera writes it that was not held upright: it is to be turned, as EXIF says, to look like it
    did."""
    back = {6: Image.Transpose.ROTATE_90, 3: Image.Transpose.ROTATE_180, 8: Image.Transpose.ROTATE_270}
    made = io.BytesIO()
    notes = Image.Exif()
    notes[ExifTags.Base.Orientation] = orientation
    picture = opened(data).transpose(back[orientation])
    picture.save(made, kind, exif=notes, **({} if kind == "PNG" else {"quality": 100}))
    return made.getvalue()


def noise(width: int, height: int, channels: int = 3, kind: str = "PNG") -> bytes:
    return packed(np.random.default_rng(0).integers(0, 256, (height, width, channels)).astype(np.uint8), kind)


def right_half(width: int = 32, height: int = 32) -> bytes:
    """A mask whose right half is white."""
    pixels = np.zeros((height, width), np.uint8)
    pixels[:, width // 2 :] = 255
    return packed(pixels)


def packed(pixels: Any, kind: str = "PNG") -> bytes:
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()


def opened(data: bytes | str) -> Image.Image:
    """A picture out of a file, or out of base64."""
    return Image.open(io.BytesIO(base64.b64decode(data) if isinstance(data, str) else data))


def pixels(data: bytes | str) -> Any:
    return np.asarray(opened(data).convert("RGB")).astype(int)
