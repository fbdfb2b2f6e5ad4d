from __future__ import annotations

import io
import struct
import threading

import numpy as np
import psutil
import pytest
from PIL import ExifTags, Image

from lemonade.engines.sdcpp import raster
from lemonade.errors import InvalidArgument
from tests.engines.sdcpp.looking import BLUE, RED, file, opened, packed, pixels, right_half, turned


def test_what_is_see_through_lies_on_white() -> None:
    made = raster.rgb(raster.opened(file(4, 4, top=(0, 0, 0, 0), bottom=(0, 0, 0, 255)), "image"))
    assert made.shape == (4, 4, 3)
    assert made[0, 0].tolist() == [255, 255, 255]
    assert made[3, 0].tolist() == [0, 0, 0]


def test_sixteen_bits_are_brought_down() -> None:
    grey = np.array([[0, 256 * 128, 65535]], np.uint16)
    assert raster.rgb(raster.opened(packed(grey), "image"))[0, :, 0].tolist() == [0, 128, 255]


@pytest.mark.parametrize("data", [b"", b"\x89PNG\r\n\x1a\n", file()[:33], file()[:60], b"GIF89a" + bytes(50)])
def test_damaged_files_are_the_clients_mistake(data: bytes) -> None:
    with pytest.raises(InvalidArgument, match="'mask' is a damaged picture") as caught:
        raster.opened(data, "mask")
    assert caught.value.param == "mask"
    assert "BytesIO" not in str(caught.value)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WEBP"])
@pytest.mark.parametrize("orientation", [3, 6, 8])
def test_photos_are_upright(kind: str, orientation: int) -> None:
    photo = turned(file(16, 32), orientation, kind)
    picture = raster.opened(photo, "image")
    assert picture.size == (16, 32)
    made = raster.rgb(picture).astype(int)
    assert abs(made[2, 8] - RED).max() < 25
    assert abs(made[29, 8] - BLUE).max() < 25
    assert raster.lies(photo) is (orientation != 3)
    assert raster.lies(file(16, 32, kind)) is False


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
@pytest.mark.parametrize("at", range(24))
def test_damaged_notes_are_no_matter(at: int) -> None:
    photo = bytearray(turned(file(16, 32), 6, "WEBP"))
    photo[photo.index(b"MM\0*") + at] ^= 0x7F
    assert raster.opened(bytes(photo), "image").size in ((16, 32), (32, 16))
    assert raster.lies(bytes(photo)) in (True, False)


@pytest.mark.parametrize("tag", [ExifTags.Base.ImageWidth, ExifTags.Base.XResolution, ExifTags.Base.Compression])
def test_odd_notes_do_not_keep_a_photo_from_being_turned(tag: int) -> None:
    """A word stands where EXIF wants a number: cameras and programs write such things."""
    entries = sorted([(tag, 2, 4, b"odd\0"), (int(ExifTags.Base.Orientation), 3, 1, b"\0\6\0\0")])
    packed_entries = b"".join(struct.pack(">HHI4s", *entry) for entry in entries)
    notes = b"Exif\0\0MM\0*" + struct.pack(">IH", 8, len(entries)) + packed_entries + bytes(4)
    made = io.BytesIO()
    Image.new("RGB", (32, 16)).save(made, "JPEG", exif=notes)
    assert raster.opened(made.getvalue(), "image").size == (16, 32)
    assert raster.lies(made.getvalue())


def test_a_large_picture_to_look_at_is_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    made = raster.reference(file(640, 320), (64, 64))
    assert made.shape == (48, 96, 3)
    assert abs(made[8, 8].astype(int) - RED).max() < 25
    assert raster.reference(file(2000, 8), (64, 64)).shape == (16, 1008, 3)
    assert (raster.reference(file(31, 17), (64, 64)) == pixels(file(31, 17))).all()
    monkeypatch.setattr(raster, "REFERENCE", 32 * 32)
    assert raster.reference(file(64, 64), (4096, 4096)).shape == (32, 32, 3)


def test_photos_leave_no_memory_behind() -> None:
    photo = packed(np.zeros((6000, 6000), np.uint8))
    memory = psutil.Process().memory_info
    before = memory().rss
    # The C library keeps what other threads than the first one used.
    for size in ((32, 32), (64, 64)):
        reading = threading.Thread(target=raster.reference, args=(photo, size))
        reading.start()
        reading.join()
    raster.give_back()
    assert memory().rss - before < 60e6


def test_a_start_is_cut_to_the_proportions() -> None:
    made = raster.start(file(40, 20), (10, 10))
    assert made.shape == (10, 10, 3)
    assert made[0, 0].tolist() == list(RED)
    assert made[9, 9].tolist() == list(BLUE)
    assert (raster.start(file(10, 10), (10, 10)) == pixels(file(10, 10))).all()


def test_masks() -> None:
    white = raster.mask(right_half(8, 4), (8, 4))
    assert white.shape == (4, 8, 1)
    assert white[0, :, 0].tolist() == [0] * 4 + [255] * 4
    # OpenAI's: see-through is painted, whatever the colour.
    through = raster.mask(file(4, 4, top=(255, 255, 255, 255), bottom=(0, 0, 0, 0)), (4, 4))
    assert through[:, 0, 0].tolist() == [0, 0, 255, 255]
    # An alpha channel that says nothing says nothing.
    opaque = raster.mask(file(4, 4, top=(255, 255, 255, 255), bottom=(0, 0, 0, 255)), (4, 4))
    assert opaque[:, 0, 0].tolist() == [255, 255, 0, 0]


@pytest.mark.parametrize("size", [(8, 8), (9, 8), (1, 1), (15, 23)])
def test_what_is_padded_is_cut_again(size: tuple[int, int]) -> None:
    width, height = size
    before = np.random.default_rng(0).integers(0, 256, (height, width, 3)).astype(np.uint8)
    padded = raster.padded(before, 8)
    assert padded.shape[0] % 8 == padded.shape[1] % 8 == 0
    assert padded.shape[0] - height < 8
    assert (raster.cut(padded, width, height) == before).all()


def test_a_png_with_its_notes() -> None:
    made = raster.png(pixels(file(6, 4)).astype(np.uint8), "größer 苹果\0\nSteps: 4")
    assert opened(made).info["parameters"] == "größer 苹果\nSteps: 4"
    assert (pixels(made) == pixels(file(6, 4))).all()
    again = raster.png(pixels(file(6, 4)).astype(np.uint8), "größer 苹果\0\nSteps: 4")
    assert made == again


def test_a_header_decides_and_not_a_limit_of_the_library() -> None:
    made = io.BytesIO()
    Image.new("1", (14000, 14000)).save(made, "PNG")
    assert raster.opened(made.getvalue(), "image").size == (14000, 14000)
