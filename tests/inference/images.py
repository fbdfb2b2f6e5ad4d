"""Pictures for tests, made by hand: whole ones, and heads that promise more than there is."""

from __future__ import annotations

import base64
import io
import struct
import zlib


def png(width: int = 8, height: int = 8, *, declared: tuple[int, int] | None = None) -> bytes:
    """A grey gradient; `declared` is what its header says instead of its size."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + bytes((x * 31 + y * 17) % 256 for x in range(width) for _ in "rgb") for y in range(height))
    header = struct.pack(">IIBBBBB", *(declared or (width, height)), 8, 2, 0, 0, 0)
    parts = (chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg(width: int, height: int, *, tables: int = 3, frame: int = 0xC0, padding: int = 0) -> bytes:
    """The head of a JPEG file; each of the parts before the size is as long as a part can be."""
    part = b"\xff\xe2" + struct.pack(">H", 65535) + bytes(65533)
    size = bytes([0xFF, frame]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)
    return b"\xff\xd8" + part * tables + bytes(padding) + size


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH", width, height) + bytes(20)


def bmp(width: int, height: int, *, old: bool = False) -> bytes:
    head = b"BM" + bytes(12)
    return (
        head + (struct.pack("<IHH", 12, width, height) if old else struct.pack("<Iii", 40, width, height)) + bytes(20)
    )


def webp(width: int, height: int, kind: str) -> bytes:
    head = b"RIFF" + struct.pack("<I", 100) + b"WEBP" + kind.encode() + struct.pack("<I", 80)
    if kind == "VP8X":
        body = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    elif kind == "VP8L":
        body = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14)
    else:
        body = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return head + body + bytes(20)


def whole_webp(width: int = 8, height: int = 8) -> bytes:
    """The pixels of `png`, without a loss."""
    from PIL import Image

    made = io.BytesIO()
    with Image.open(io.BytesIO(png(width, height))) as picture:
        picture.save(made, "WEBP", lossless=True)
    return made.getvalue()


def data_url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def wav(seconds: float = 0.5, rate: int = 16000) -> bytes:
    """Silence, or nearly."""
    samples = bytes(2 * int(seconds * min(rate, 16000)))
    head = struct.pack("<4sIHHIIHH", b"fmt ", 16, 1, 1, rate, 2 * rate, 2, 16)
    data = b"data" + struct.pack("<I", len(samples)) + samples
    return b"RIFF" + struct.pack("<I", 4 + len(head) + len(data)) + b"WAVE" + head + data
