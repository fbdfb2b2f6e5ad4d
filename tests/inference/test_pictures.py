from __future__ import annotations

import pytest

from lemonade.inference.pictures import MAX_JPEG_PARTS, Picture, Size, read_header
from tests.inference.images import bmp, gif, jpeg, png, webp


def header(data: bytes) -> Picture:
    return read_header(lambda at, count: data[at : at + count])


def refused(data: bytes) -> str:
    with pytest.raises(ValueError) as caught:
        header(data)
    return str(caught.value)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (png(30, 20), "png"),
        (jpeg(30, 20), "jpeg"),
        (jpeg(30, 20, tables=0, frame=0xC2), "jpeg"),
        (jpeg(30, 20, padding=5), "jpeg"),
        (gif(30, 20), "gif"),
        (bmp(30, 20), "bmp"),
        (bmp(30, -20), "bmp"),
        (bmp(30, 20, old=True), "bmp"),
        (webp(30, 20, "VP8 "), "webp"),
        (webp(30, 20, "VP8L"), "webp"),
        (webp(30, 20, "VP8X"), "webp"),
    ],
)
def test_sizes(data: bytes, kind: str) -> None:
    assert header(data) == Picture(f"image/{kind}", Size(30, 20))
    assert header(data).pixels == 600


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (png(9, 9), 24),
        (jpeg(9, 9, tables=0), 11),
        (gif(9, 9), 10),
        (bmp(9, 9), 26),
        (bmp(9, 9, old=True), 22),
        (webp(9, 9, "VP8X"), 30),
        (webp(9, 9, "VP8L"), 25),
        (webp(9, 9, "VP8 "), 30),
    ],
)
def test_heads_that_end_too_soon(data: bytes, length: int) -> None:
    assert header(data[:length]).size == (9, 9)
    for short in range(length):
        refused(data[:short])


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (png(declared=(40000, 40000)), "40000x40000"),
        (png(declared=(2**31, 2**31)), "2147483648x2147483648"),
        (png(declared=(60000, 100)), "32768 pixels a side"),
        (png(declared=(0, 5)), "declares a size of 0x5"),
        (jpeg(65535, 65535), "65535x65535"),
        (gif(65535, 65535), "65535x65535"),
        (bmp(40000, -(2**31)), "40000x2147483648"),
        (bmp(-5, 5), "declares a size of -5x5"),
        (webp(2**24, 2**24, "VP8X"), "16777216x16777216"),
        (jpeg(9, 9, frame=0xC9), "baseline and progressive"),
        (b"\xff\xd8" + b"\xff" * (MAX_JPEG_PARTS + 10), "without a size at its beginning"),
        (b"<html>", "is not a PNG, JPEG, WebP, GIF or BMP picture"),
        (b"RIFF\0\0\0\0WAVEfmt ", "is not a PNG"),
        (b"\x89PNG\r\n\x1a\n\0\0\0\x04CgBI" + bytes(20), "header does not come first"),
        (b"", "is not a PNG"),
    ],
)
def test_what_is_refused(data: bytes, reason: str) -> None:
    assert reason in refused(data)


def test_the_limits_are_wide_enough_for_a_camera() -> None:
    assert header(png(declared=(8160, 6120))).pixels == 49_939_200
