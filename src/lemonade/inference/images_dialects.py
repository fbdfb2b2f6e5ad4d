"""How an engine is asked for pictures: the bundled one by a message of ours, sd-server by its own API."""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

from lemonade.engines.sdcpp import loras, protocol
from lemonade.engines.sdcpp.arguments import lora_folder, split
from lemonade.errors import InvalidArgument
from lemonade.inference.images import (
    LEAST_SIDE,
    VARIATION_PROMPT,
    ImageFile,
    Wanted,
    check_size,
    check_together,
    fitted,
    is_editor,
    pixel_cap,
)
from lemonade.inference.pictures import Size
from lemonade.model import Model

#: sd-server reads its own arguments out of the prompt, between these; nobody else may put them there.
_EXTRA = "sd_cpp_extra_args"
_FOREIGN = re.compile(rf"</?\s*{_EXTRA}\s*>", re.IGNORECASE)
#: What sd-server decodes.
_DECODED = ("image/png", "image/jpeg")


class Asked(NamedTuple):
    """One request to an engine."""

    path: str
    body: bytes
    headers: Mapping[str, str]


def size_of(wanted: Wanted, options: Mapping[str, Any]) -> Size:
    """The size of the pictures in pixels.

    Args:
        options: those that the model runs with.

    Raises:
        InvalidArgument: nobody said a size, and what it would be then is none to paint.
    """
    if wanted.size is not None:
        return wanted.size
    if wanted.kind == "edit":
        size = fitted(wanted.images[0].picture.size, pixel_cap(options.get("soft_pixel_cap")))
        if min(size) < LEAST_SIDE:
            raise InvalidArgument(
                f"The picture is {size.width}x{size.height} pixels large, too small for the result; say a 'size'.",
                param="size",
            )
    else:
        size = Size(int(options.get("width") or 512), int(options.get("height") or 512))
    check_size(size, "size")
    check_together(wanted.n, size)
    return size


def for_library(wanted: Wanted, model: Model, options: Mapping[str, Any]) -> Asked:
    """The request to the bundled engine. Reads files."""
    size = size_of(wanted, options)
    images = [image.path.read_bytes() for image in wanted.images]
    starts = bool(images) and (wanted.mask is not None or not is_editor(model))
    painting = protocol.Painting(
        prompt=VARIATION_PROMPT if wanted.kind == "variation" else wanted.prompt,
        negative_prompt=wanted.negative_prompt,
        width=size.width,
        height=size.height,
        as_first=wanted.kind == "edit" and wanted.size is None,
        n=wanted.n,
        seed=_seed(wanted, protocol.SEED),
        steps=_or(wanted.steps, options.get("steps"), 20),
        cfg_scale=_or(wanted.cfg_scale, options.get("cfg_scale"), 7.0),
        sampling_method=_or(wanted.sampling_method, options.get("sampling_method"), ""),
        flow_shift=0.0 if wanted.kind == "variation" else _or(wanted.flow_shift, options.get("flow_shift"), 0.0),
        start=images[0] if starts else None,
        strength=wanted.strength,
        references=images if is_editor(model) else images[1:],
        mask=wanted.mask.path.read_bytes() if wanted.mask else None,
        model=model.name,
        events=wanted.events,
        progress=wanted.progress,
        partial_images=wanted.partial_images,
    )
    return Asked(protocol.GENERATE, protocol.encode(painting), {"Content-Type": protocol.MEDIA_TYPE})


def for_server(wanted: Wanted, model: Model, options: Mapping[str, Any]) -> Asked:
    """The request to an sd-server. Reads files.

    Raises:
        InvalidArgument: a picture is of a kind that it does not decode, or the prompt names a LoRA that is not there.
    """
    size = size_of(wanted, options)
    prompt = VARIATION_PROMPT if wanted.kind == "variation" else wanted.prompt
    fields = {"prompt": _with_extra(prompt, wanted, options), "n": wanted.n, "size": f"{size.width}x{size.height}"}
    if not wanted.images:
        return Asked("/v1/images/generations", json.dumps(fields).encode(), {"Content-Type": "application/json"})
    files = [("image[]", image) for image in wanted.images]
    files += [("mask", wanted.mask)] if wanted.mask else []
    for name, file in files:
        if file.picture.media_type not in _DECODED:
            param = name.removesuffix("[]")
            raise InvalidArgument(f"'{param}' must be PNG or JPEG for an sd-server.", param=param)
    boundary = secrets.token_hex(16)
    return Asked(
        "/v1/images/edits",
        _form(fields, files, boundary),
        {"Content-Type": f"multipart/form-data; boundary={boundary}"},
    )


def _with_extra(prompt: str, wanted: Wanted, options: Mapping[str, Any]) -> str:
    sampling: dict[str, Any] = {
        "sample_steps": _or(wanted.steps, options.get("steps"), 20),
        "guidance": {"txt_cfg": _or(wanted.cfg_scale, options.get("cfg_scale"), 7.0)},
    }
    if method := _or(wanted.sampling_method, options.get("sampling_method"), ""):
        sampling["sample_method"] = method
    shift = _or(wanted.flow_shift, options.get("flow_shift"), 0.0)
    if shift and wanted.kind != "variation":
        sampling["flow_shift"] = shift
    extra: dict[str, Any] = {"sample_params": sampling}
    if wanted.seed is not None:
        extra["seed"] = _seed(wanted, 0)
    if wanted.negative_prompt:
        extra["negative_prompt"] = wanted.negative_prompt
    if wanted.strength is not None:
        extra["strength"] = wanted.strength
    prompt, named = loras.read(prompt, lora_folder(split(str(options.get("sdcpp_args") or ""))))
    if named:
        # It knows them by their names in its folder.
        extra["lora"] = [{"path": each.path.name, "multiplier": each.weight} for each in named]
    # What could end our arguments must not stand in one of them.
    text = json.dumps(extra).replace("<", "\\u003c")
    while (cleaned := _FOREIGN.sub("", prompt)) != prompt:
        prompt = cleaned
    return f"{prompt.strip()} <{_EXTRA}>{text}</{_EXTRA}>"


def _form(fields: Mapping[str, Any], files: list[tuple[str, ImageFile]], boundary: str) -> bytes:
    parts = [
        f'--{boundary}\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'.encode()
        for name, value in fields.items()
    ]
    for name, file in files:
        kind = file.picture.media_type
        filename = f"{name.removesuffix('[]')}.{kind.removeprefix('image/')}"
        head = f'Content-Disposition: form-data; name="{name}"; filename="{filename}"\r\nContent-Type: {kind}'
        parts += [f"--{boundary}\r\n{head}\r\n\r\n".encode(), file.path.read_bytes(), b"\r\n"]
    return b"".join([*parts, f"--{boundary}--\r\n".encode()])


def _seed(wanted: Wanted, default: int) -> int:
    if wanted.seed is None:
        return default
    return wanted.seed if wanted.seed >= 0 else secrets.randbits(31)


def _or(asked: Any, option: Any, default: Any) -> Any:
    return asked if asked is not None else option if option is not None else default
