from __future__ import annotations

import base64
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.errors import InvalidArgument, RequestError, UnsupportedOperation
from lemonade.inference import upscaling
from lemonade.inference.images import (
    MAX_PIXELS,
    SOFT_PIXEL_CAP,
    TIDY,
    check_model,
    fitted,
    is_editor,
    pixel_cap,
    read_base64,
    read_file,
    read_size,
)
from lemonade.inference.images_dialects import size_of
from lemonade.inference.images_events import engine_events
from lemonade.inference.pictures import Size
from lemonade.model import Model
from tests.engines.sdcpp.looking import file
from tests.inference.images import data_url, png


@pytest.mark.parametrize(
    ("text", "size"),
    [(None, None), ("auto", None), ("8x8", (8, 8)), ("513x511", (513, 511)), ("8192x2048", (8192, 2048))],
)
def test_sizes(text: str | None, size: tuple[int, int] | None) -> None:
    assert read_size(text) == size


@given(st.text(alphabet="0123456789x -.", max_size=12))
def test_a_size_is_read_or_refused(text: str) -> None:
    try:
        size = read_size(text)
    except InvalidArgument as error:
        assert error.param == "size"
    else:
        assert size is not None
        assert f"{size.width}x{size.height}" == "x".join(str(int(side)) for side in text.split("x"))
        assert size.width * size.height <= MAX_PIXELS


@given(st.integers(1, 32768), st.integers(1, 32768), st.integers(TIDY * TIDY, 1 << 26))
def test_what_is_fitted_is_not_larger_than_the_cap(width: int, height: int, cap: int) -> None:
    made = fitted(Size(width, height), cap)
    assert made.width * made.height <= max(cap, min(width * height, cap))
    if width * height <= cap:
        assert made == (width, height)
    elif min(made) > 8 * TIDY:
        assert abs(made.width / made.height / (width / height) - 1) < 0.15


@pytest.mark.parametrize(
    ("option", "pixels"),
    [
        (None, SOFT_PIXEL_CAP),
        (0, SOFT_PIXEL_CAP),
        (-1, SOFT_PIXEL_CAP),
        (65536, 65536),
        ("256x128", 32768),
        ("x", SOFT_PIXEL_CAP),
    ],
)
def test_the_cap_as_an_option(option: object, pixels: int) -> None:
    assert pixel_cap(option) == pixels


@pytest.mark.parametrize("text", [base64.b64encode(file()).decode(), data_url(file())])
def test_base64(text: str) -> None:
    assert read_base64(text, "image") == file()


@pytest.mark.parametrize("text", ["", "data:image/png;base64,", "data:text/plain;base64,QUJD", "QUJD", "AAA", "ä" * 8])
def test_base64_of_no_picture(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        read_base64(text, "image")
    assert caught.value.param == "image"
    assert len(caught.value.message) < 300


def test_a_file_is_measured_and_not_read(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    path.write_bytes(png(8, 6))
    assert read_file(path, path.stat().st_size, "image").picture.size == (8, 6)
    with pytest.raises(InvalidArgument, match="larger than 32 MiB"):
        read_file(tmp_path / "not-even-there", 33 * 2**20, "image")


def of(*labels: str, recipe: str = "sd-cpp", checkpoint: str = "") -> Model:
    return Model(name="m", recipe=recipe, labels=labels, checkpoints={"main": checkpoint})


def test_models_for_pictures() -> None:
    check_model(of("image"))
    check_model(of("image", "edit"))
    for other in (of("chat", recipe="llamacpp"), of("tts", recipe="kokoro"), of("upscaling", "image", "on-demand")):
        with pytest.raises(UnsupportedOperation):
            check_model(other)


def test_models_that_edit() -> None:
    assert is_editor(of("image", "edit"))
    assert is_editor(of("image", checkpoint="x/FLUX.1-Kontext-dev-GGUF:flux1-kontext-dev-Q4_K_M.gguf"))
    assert is_editor(of("image", checkpoint="x/Qwen-Image-Edit-GGUF:Q4_0.gguf"))
    assert not is_editor(of("image", checkpoint="x/Qwen-Image-GGUF:Q4_0.gguf"))


def test_models_that_enlarge() -> None:
    upscaling.check_model(of("upscaling", "image"), "m")
    with pytest.raises(RequestError, match="not labeled 'upscaling': asked"):
        upscaling.check_model(of("image"), "asked")
    with pytest.raises(RequestError, match="not supported by recipe: thenoise"):
        upscaling.check_model(of("upscaling", recipe="thenoise"), "asked")


def test_a_size_out_of_the_options_is_checked_too() -> None:
    from lemonade.inference.images import Wanted

    wanted = Wanted(kind="generation", prompt="x", n=2)
    assert size_of(wanted, {"width": 64, "height": 32}) == (64, 32)
    assert size_of(wanted, {}) == (512, 512)
    for options in ({"width": 100000, "height": 8}, {"width": 1}):
        with pytest.raises(InvalidArgument):
            size_of(wanted, options)


class Reply:
    """An engine's answer in pieces."""

    status = 200

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


LAST = b'event: image_generation.completed\ndata: {"b64_json": "x"}\n\n'
STEP = b'event: image_generation.progress\ndata: {"step": 1}\n\n'


@pytest.mark.parametrize("length", [1, 2, 7, 40, 1000])
async def test_events_come_whole(length: int) -> None:
    data = STEP + STEP + LAST
    pieces = [data[at : at + length] for at in range(0, len(data), length)]
    assert [event async for event in engine_events(Reply(*pieces), "engine")] == [STEP, STEP, LAST]  # type: ignore[arg-type]


async def test_a_stream_without_its_last_event_failed() -> None:
    from lemonade.errors import EngineReplied, EngineSilent

    with pytest.raises(EngineSilent, match="without a picture"):
        [event async for event in engine_events(Reply(STEP), "engine")]  # type: ignore[arg-type]
    failed = b'event: error\ndata: {"error": {"message": "out of memory", "type": "backend_error"}}\n\n'
    with pytest.raises(EngineReplied, match="out of memory"):
        [event async for event in engine_events(Reply(STEP, failed), "engine")]  # type: ignore[arg-type]
