"""How large a picture is, read from the few bytes of its header. Nothing is decoded.

Each format is read as the decoder in llama.cpp reads it, so that a file has the size here that it has there; what this
module does not understand is refused rather than passed on.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import NamedTuple

#: Gives `count` bytes from an offset, fewer at the end of the file.
Reader = Callable[[int, int], bytes]

#: What can be read, for messages.
FORMATS = "PNG, JPEG, WebP, GIF or BMP"

#: Bytes of one picture: what a camera of 64 megapixels writes as JPEG.
MAX_IMAGE_BYTES = 32 * 1024 * 1024
#: Pixels of one picture: those of that camera. An engine unpacks a picture to three bytes a pixel, here 192 MiB.
MAX_PIXELS = 64 * 1024 * 1024
#: Pixels of the longer side; what is longer is no picture but a line.
MAX_SIDE = 32768

#: Parts of a JPEG before the one with its size, and bytes of padding between them. A photo with a large colour profile
#: and previews has a few dozen.
MAX_JPEG_PARTS = 1000

#: JPEG markers: baseline, extended and progressive frames; and what may stand before them.
_FRAMES = (0xC0, 0xC1, 0xC2)
_TABLES = (0xC4, 0xDB, 0xDD, 0xFE, *range(0xE0, 0xF0))


class Size(NamedTuple):
    """In pixels, as the header declares it."""

    width: int
    height: int


class Picture(NamedTuple):
    """What a header tells."""

    media_type: str
    size: Size

    @property
    def pixels(self) -> int:
        return self.size.width * self.size.height


def read_header(read: Reader) -> Picture:
    """The format and size of a picture.

    Raises:
        ValueError: it is no picture of a known format, its header is damaged, or its size is beyond the limits; the
            message ends a sentence about it.
    """
    head = read(0, 32)
    for signature, kind, measure in _KINDS:
        if head.startswith(signature):
            try:
                size = measure(head, read)
            except (struct.error, IndexError):
                raise ValueError("ends within its header") from None
            if size.width < 1 or size.height < 1:
                raise ValueError(f"declares a size of {size.width}x{size.height} pixels")
            if size.width * size.height > MAX_PIXELS or max(size) > MAX_SIDE:
                raise ValueError(
                    f"is {size.width}x{size.height} pixels large; at most {MAX_PIXELS // 2**20} megapixels, and "
                    f"{MAX_SIDE} pixels a side, are taken"
                )
            return Picture(f"image/{kind}", size)
    raise ValueError(f"is not a {FORMATS} picture")


def _png(head: bytes, read: Reader) -> Size:
    if head[12:16] != b"IHDR":
        raise ValueError("is a PNG file whose header does not come first")
    return Size(*struct.unpack_from(">II", head, 16))


def _gif(head: bytes, read: Reader) -> Size:
    return Size(*struct.unpack_from("<HH", head, 6))


def _bmp(head: bytes, read: Reader) -> Size:
    (length,) = struct.unpack_from("<I", head, 14)
    if length == 12:
        return Size(*struct.unpack_from("<HH", head, 18))
    width, height = struct.unpack_from("<ii", head, 18)
    # A negative height says that the rows come from the top.
    return Size(width, abs(height))


def _jpeg(head: bytes, read: Reader) -> Size:
    at = 2
    for _ in range(MAX_JPEG_PARTS):
        part = read(at, 9)
        if part[0] != 0xFF or part[1] == 0xFF:
            at += 1
        elif part[1] in _FRAMES:
            height, width = struct.unpack_from(">HH", part, 5)
            return Size(width, height)
        elif part[1] in _TABLES:
            at += 2 + max(2, struct.unpack_from(">H", part, 2)[0])
        else:
            raise ValueError("is a JPEG file of a kind that cannot be read; baseline and progressive ones can")
    raise ValueError("is a JPEG file without a size at its beginning")


def _webp(head: bytes, read: Reader) -> Size:
    kind = head[12:16]
    if head[8:12] != b"WEBP":
        raise ValueError(f"is not a {FORMATS} picture")
    if kind == b"VP8X" and len(head) >= 30:
        return Size(1 + int.from_bytes(head[24:27], "little"), 1 + int.from_bytes(head[27:30], "little"))
    if kind == b"VP8L" and head[20] == 0x2F:
        (bits,) = struct.unpack_from("<I", head, 21)
        return Size(1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF))
    if kind == b"VP8 " and head[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", head, 26)
        return Size(width & 0x3FFF, height & 0x3FFF)
    raise ValueError("is a WebP file with a damaged header")


_KINDS: tuple[tuple[bytes, str, Callable[[bytes, Reader], Size]], ...] = (
    (b"\x89PNG\r\n\x1a\n", "png", _png),
    (b"\xff\xd8", "jpeg", _jpeg),
    (b"GIF87a", "gif", _gif),
    (b"GIF89a", "gif", _gif),
    (b"BM", "bmp", _bmp),
    (b"RIFF", "webp", _webp),
)
