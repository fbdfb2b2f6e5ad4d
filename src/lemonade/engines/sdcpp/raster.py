"""Files of pictures into rows of pixels and back. Runs in an engine's process only."""

from __future__ import annotations

import ctypes
import io
import struct
import sys
from typing import Any

import numpy as np
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from PIL.PngImagePlugin import PngInfo

from lemonade.errors import InvalidArgument

FORMATS = ("PNG", "JPEG", "WEBP")
#: Most pixels of a picture to look at, and of what its sides are multiples when it was larger. The library would look
#: at every square of a photo, for hours. Source: what stable-diffusion.cpp's programs do by themselves.
REFERENCE, REFERENCE_STEP = 1024 * 1024, 16
#: What makes a picture upright, by its orientation as EXIF numbers them; from 5 on it lies on its side. Pillow's own
#: function writes all other notes anew as well, and stumbles over odd ones.
_TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_QUARTERS = (5, 6, 7, 8)
#: What Pillow raises.
_DAMAGED = (OSError, SyntaxError, ValueError, EOFError)
#: Between zlib's quickest and its best, which takes longer to pack a picture than some models to paint it.
COMPRESSION = 4

# How large a picture may be was decided from its header, before it came here.
Image.MAX_IMAGE_PIXELS = None


def opened(data: bytes, param: str) -> Image.Image:
    """A picture, decoded, and upright: cameras note how to turn what they took, and the note is lost with the file.

    Raises:
        InvalidArgument: it is damaged.
    """
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            picture.load()
    except UnidentifiedImageError:
        # Its text names an object of this program.
        raise InvalidArgument(f"'{param}' is a damaged picture: it has no image data.", param=param) from None
    except _DAMAGED as error:
        raise InvalidArgument(f"'{param}' is a damaged picture: {error}.", param=param) from None
    turn = _TURNS.get(_orientation(picture))
    return picture if turn is None else picture.transpose(turn)


def lies(data: bytes) -> bool:
    """Whether a picture has to be turned by a quarter to be upright. False for one that is damaged."""
    try:
        with Image.open(io.BytesIO(data), formats=FORMATS) as picture:
            return _orientation(picture) in _QUARTERS
    except _DAMAGED:
        return False


def _orientation(picture: Image.Image) -> int:
    """As EXIF numbers them. 1, which is upright, where it is not noted or the notes are damaged."""
    try:
        said = picture.getexif().get(ExifTags.Base.Orientation)
    except (*_DAMAGED, struct.error):
        return 1
    return said if isinstance(said, int) else 1


def has_alpha(picture: Image.Image) -> bool:
    """Whether any of it is see-through."""
    if not picture.has_transparency_data:
        return False
    low, _ = picture.convert("RGBA").getchannel("A").getextrema()
    return isinstance(low, int) and low < 255


def rgb(picture: Image.Image) -> Any:
    """An array `(height, width, 3)` of bytes; what is see-through lies on white."""
    if has_alpha(picture):
        layer = picture.convert("RGBA")
        ground = Image.new("RGBA", layer.size, "white")
        ground.alpha_composite(layer)
        picture = ground
    return np.array(eight_bits(picture).convert("RGB"))


def reference(data: bytes, size: tuple[int, int]) -> Any:
    """An array `(height, width, 3)` of a picture to look at, with no more pixels than one of `size`.

    Raises:
        InvalidArgument: it is damaged.
    """
    picture = Image.fromarray(rgb(opened(data, "image")))
    scale = (min(size[0] * size[1], REFERENCE) / (picture.width * picture.height)) ** 0.5
    if scale < 1:
        width, height = (
            max(REFERENCE_STEP, round(side * scale / REFERENCE_STEP) * REFERENCE_STEP) for side in picture.size
        )
        picture = picture.resize((width, height), Image.Resampling.LANCZOS)
    return np.array(picture)


def start(data: bytes, size: tuple[int, int], param: str = "image") -> Any:
    """An array `(height, width, 3)` of the size, cut at its edges where its proportions differ.

    Raises:
        InvalidArgument: it is damaged.
    """
    picture = Image.fromarray(rgb(opened(data, param)))
    return np.array(picture if picture.size == size else ImageOps.fit(picture, size, Image.Resampling.LANCZOS))


def mask(data: bytes, size: tuple[int, int]) -> Any:
    """An array `(height, width, 1)`: 255 where the picture is painted anew, cut as the picture is.

    White says so. In a mask with see-through parts these say so, as in OpenAI's API.

    Raises:
        InvalidArgument: it is damaged.
    """
    picture = opened(data, "mask")
    if has_alpha(picture):
        painted = ImageOps.invert(picture.convert("RGBA").getchannel("A"))
    else:
        painted = eight_bits(picture).convert("L")
    if painted.size != size:
        painted = ImageOps.fit(painted, size, Image.Resampling.NEAREST)
    return np.array(painted)[:, :, None]


def padded(pixels: Any, multiple: int) -> Any:
    """With its edges repeated until both sides are multiples."""
    spare = [-side % multiple for side in pixels.shape[:2]]
    return np.pad(pixels, [*((each // 2, each - each // 2) for each in spare), (0, 0)], mode="edge")


def cut(pixels: Any, width: int, height: int) -> Any:
    """The middle of what was padded, or made larger than it was asked for."""
    top, left = (pixels.shape[0] - height) // 2, (pixels.shape[1] - width) // 2
    return pixels[top : top + height, left : left + width]


def png(pixels: Any, parameters: str = "") -> bytes:
    """A PNG file; `parameters` is the note that programs for such pictures read."""
    notes = PngInfo()
    if parameters:
        notes.add_text("parameters", parameters.replace("\0", ""))
    made = io.BytesIO()
    Image.fromarray(np.ascontiguousarray(pixels)).save(made, "PNG", compress_level=COMPRESSION, pnginfo=notes)
    return made.getvalue()


def give_back() -> None:
    """Has the system get what decoding took. The C library keeps it: for photos these are hundreds of megabytes."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform != "win32" else None
    if trim is not None:
        trim(0)


def eight_bits(picture: Image.Image) -> Image.Image:
    """Sixteen bits a pixel brought down to eight, where a conversion would cut them off."""
    if picture.mode.startswith("I"):
        return Image.fromarray((np.asarray(picture, dtype=np.int64) >> 8).astype(np.uint8))
    return picture
