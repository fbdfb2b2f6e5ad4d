"""What may be asked of a picture, and its bounds: checked before a model is loaded for it."""

from __future__ import annotations

import base64
import binascii
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference.pictures import FORMATS, MAX_IMAGE_BYTES, Picture, Reader, Size, read_header
from lemonade.model import Model

#: Pixels of a side, and of the whole, of a picture that is made. No model was trained for more than a fourth of that.
LEAST_SIDE = 8
MAX_SIDE = 8192
MAX_PIXELS = 4096 * 4096
#: Pixels of all pictures of one request; the engine holds them all until the last one is done.
MAX_PIXELS_TOGETHER = 16 * MAX_PIXELS
#: Pictures of one request.
MAX_PICTURES = 100
#: Pictures of one edit. Source: the specification.
MAX_EDITS = 10
#: Pictures that an edit may look at. Source: OpenAI's API.
MAX_REFERENCES = 16
MAX_STEPS = 1000
MAX_GUIDANCE = 100.0
MAX_PROMPT = 32_000
#: Previews of one picture. Source: OpenAI's API.
MAX_PARTIAL_IMAGES = 3
#: Pixels that an edited picture is scaled down to when no option says otherwise. Source: the specification.
SOFT_PIXEL_CAP = 2048 * 2048
#: Sides of what was scaled down are multiples of so many pixels, which every model can paint.
TIDY = 16

#: What is taken as a file. The last one is for the bundled engine only.
MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp")
_TAKEN = "PNG, JPEG or WebP"

#: Of variations, which have no prompt of their own. Source: the original.
VARIATION_PROMPT = "variation of the image, same subject, same style"

#: Names of models that are made to edit, beside those with the label.
_EDITORS = ("kontext", "image-edit", "image_edit")
_SIZE = re.compile(r"(\d{1,9})x(\d{1,9})", re.ASCII)
_SPACE = re.compile(r"\s")
_DATA_URL = re.compile(r"data:image/[\w.+-]{1,40};base64,", re.ASCII)


class ImageFile(NamedTuple):
    """A picture as it came: where its bytes are, and what its header says."""

    path: Path
    picture: Picture


@dataclass(kw_only=True)
class Wanted:
    """Pictures that a client wants. None where the model's options decide.

    Attributes:
        size: None is the size of the first picture for an edit, and the model's own for all else.
        seed: None is the same one each time; a negative one is random.
        images: to edit or to vary; none to paint from nothing.
        events: the prefix of the names of events when the answer is to be a stream.
    """

    kind: Literal["generation", "edit", "variation"]
    prompt: str
    n: int = 1
    size: Size | None = None
    steps: int | None = None
    cfg_scale: float | None = None
    seed: int | None = None
    negative_prompt: str = ""
    sampling_method: str | None = None
    flow_shift: float | None = None
    strength: float | None = None
    images: list[ImageFile] = field(default_factory=list)
    mask: ImageFile | None = None
    events: str = ""
    progress: bool = False
    partial_images: int = 0


def check_model(model: Model) -> None:
    """Raises UnsupportedOperation unless `model` makes pictures; asked before it is loaded."""
    if model.mode != "image":
        raise UnsupportedOperation(f"Image generation not supported by {model.recipe}", param="model")
    if "on-demand" in model.labels:
        raise UnsupportedOperation(
            f"'{model.name}' enlarges pictures and makes none; it is for /v1/images/upscale.", param="model"
        )


def is_editor(model: Model) -> bool:
    """Whether a model is made to look at pictures, so that it needs none to start from."""
    name = model.checkpoint.lower()
    return "edit" in model.labels or any(editor in name for editor in _EDITORS)


def read_size(text: str | None) -> Size | None:
    """`WIDTHxHEIGHT`; None for `auto`.

    Raises:
        InvalidArgument
    """
    if text is None or text == "auto":
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(
            f"'size' must be WIDTHxHEIGHT in pixels, such as 512x512, not {text[:100]!r}.", param="size"
        )
    size = Size(int(match[1]), int(match[2]))
    check_size(size, "size")
    return size


def check_size(size: Size, param: str) -> None:
    """Raises InvalidArgument for what no engine should be asked to paint."""
    if min(size) < LEAST_SIDE or max(size) > MAX_SIDE or size.width * size.height > MAX_PIXELS:
        raise InvalidArgument(
            f"'{param}' must have sides from {LEAST_SIDE} to {MAX_SIDE} pixels and at most {MAX_PIXELS // 2**20} "
            f"megapixels, not {size.width}x{size.height}.",
            param=param,
        )


def check_together(n: int, size: Size | None) -> None:
    """Raises InvalidArgument when all the pictures of a request would be more than an engine should hold."""
    if size is not None and n * size.width * size.height > MAX_PIXELS_TOGETHER:
        raise InvalidArgument(
            f"'n' pictures of this size are more than {MAX_PIXELS_TOGETHER // 2**20} megapixels together; ask for "
            "fewer at a time.",
            param="n",
        )


def read_file(path: Path, size: int, param: str, *, number: int = 0) -> ImageFile:
    """A picture of a request, measured by its header. Nothing is decoded.

    Args:
        size: bytes.
        number: of several under the same name, from 1 on.

    Raises:
        InvalidArgument: it is none, or too large.
    """
    which = f"'{param}' number {number}" if number else f"'{param}'"
    if not size:
        raise InvalidArgument(f"{which} is an empty file.", param=param)
    if size > MAX_IMAGE_BYTES:
        raise InvalidArgument(f"{which} is larger than {MAX_IMAGE_BYTES // 2**20} MiB.", param=param)
    with path.open("rb") as file:

        def read(at: int, count: int) -> bytes:
            file.seek(at)
            return file.read(count)

        return ImageFile(path, _measured(read, param, which))


def read_base64(text: str, param: str) -> bytes:
    """A picture in base64, with or without the head of a data URL, measured by its header and not decoded. Spaces and
    line breaks around it are no matter.

    Raises:
        InvalidArgument: it is none, or too large to be made larger.
    """
    text = text.strip()
    head = _DATA_URL.match(text[:100])
    start = head.end() if head else 0
    if (len(text) - start) // 4 * 3 > MAX_IMAGE_BYTES + 2:
        raise InvalidArgument(f"'{param}' is larger than {MAX_IMAGE_BYTES // 2**20} MiB.", param=param)
    try:
        data = base64.b64decode(text[start:], validate=True)
    except (binascii.Error, ValueError) as error:
        why = "it has spaces or line breaks inside" if _SPACE.search(text) else str(error)
        raise InvalidArgument(f"'{param}' is not valid base64: {why}.", param=param) from None
    if not data:
        raise InvalidArgument(f"'{param}' is empty.", param=param)
    picture = _measured(lambda at, count: data[at : at + count], param, f"'{param}'")
    if picture.pixels > MAX_PIXELS:
        raise InvalidArgument(
            f"'{param}' is {picture.size.width}x{picture.size.height} pixels large; at most {MAX_PIXELS // 2**20} "
            "megapixels are made larger.",
            param=param,
        )
    return data


def _measured(read: Reader, param: str, which: str) -> Picture:
    try:
        picture = read_header(read)
    except ValueError as error:
        # Chats take more kinds.
        raise InvalidArgument(f"{which} {str(error).replace(FORMATS, _TAKEN)}.", param=param) from None
    if picture.media_type not in MEDIA_TYPES:
        kind = picture.media_type.removeprefix("image/").upper()
        raise InvalidArgument(f"{which} must be {_TAKEN}, not {kind}.", param=param)
    return picture


def fitted(size: Size, cap: int) -> Size:
    """The size, scaled down to at most `cap` pixels with its proportions; as it is when it is not larger."""
    if size.width * size.height <= cap:
        return size
    scale = (cap / (size.width * size.height)) ** 0.5
    width, height = (max(TIDY, int(side * scale) // TIDY * TIDY) for side in size)
    # A side that may not be smaller than it is leaves less for the other one.
    width = max(TIDY, min(width, cap // height // TIDY * TIDY))
    height = max(TIDY, min(height, cap // width // TIDY * TIDY))
    return Size(width, height)


def pixel_cap(value: Any) -> int:
    """The option `soft_pixel_cap` in pixels: a number, or `WIDTHxHEIGHT`. 0 is the default."""
    if isinstance(value, str) and (match := _SIZE.fullmatch(value)):
        value = int(match[1]) * int(match[2])
    return value if isinstance(value, int) and value > 0 else SOFT_PIXEL_CAP
