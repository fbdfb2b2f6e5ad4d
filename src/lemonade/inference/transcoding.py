"""Pictures in a format that engines do not decode, made into one that they do."""

from __future__ import annotations

import base64
import io

from lemonade.inference.pictures import read_header

#: zlib's quickest: the engine on this machine unpacks it at once.
_COMPRESSION = 1


def webp_as_png(data: bytes) -> tuple[str, int]:
    """A WebP picture, of an animation the first one, as a PNG data URL, and its number of pixels. Blocks.

    Raises:
        ValueError: it is damaged, or too large; the message ends a sentence about it.
    """
    from PIL import Image

    pixels = read_header(lambda at, count: data[at : at + count]).pixels
    try:
        with Image.open(io.BytesIO(data), formats=("WEBP",)) as picture:
            made = io.BytesIO()
            picture.convert("RGB").save(made, "PNG", compress_level=_COMPRESSION)
    except (OSError, SyntaxError, ValueError, EOFError):
        raise ValueError("is a damaged WebP picture") from None
    return f"data:image/png;base64,{base64.b64encode(made.getbuffer()).decode()}", pixels
