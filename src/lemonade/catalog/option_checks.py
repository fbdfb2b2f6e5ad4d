"""Which values an option may have: the checks of saving and of loading."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from lemonade.catalog.recipes import Option, is_set, options_of
from lemonade.errors import InvalidArgument, RequestError
from lemonade.model import Model

#: Larger numbers are not whole numbers to every JSON reader.
MAX_INTEGER = 2**53
#: Most tokens of a context: engines count them in 32 bits.
MAX_CONTEXT = 2**31 - 1

_AREA = re.compile(r"[1-9]\d{0,5}x[1-9]\d{0,5}", re.ASCII)
_CONTEXT = "'ctx_size' must be a positive whole number, or -1 to size it automatically"
_KINDS = {
    "int": "a whole number",
    "number": "a number",
    "string": "a string",
    "bool": "true or false",
    "bool?": "true, false or null",
    "pixels": "a number of pixels, or WIDTHxHEIGHT",
}


def check_saved(model: Model, changes: Any) -> dict[str, Any]:
    """The options of a body of `POST /models/{id}/options`, checked.

    Raises:
        InvalidArgument: a value of the wrong type for one of the fields that all models share.
        RequestError: an option that the recipe does not have, or a value that it cannot have.
    """
    if not isinstance(changes, Mapping):
        raise InvalidArgument("Request body must be a JSON object of recipe options")
    known = options_of(model.recipe)
    dry_run = changes.get("dry_run")
    if dry_run is not None and not isinstance(dry_run, bool):
        raise InvalidArgument("'dry_run' must be true or false", param="dry_run")
    name = changes.get("model_name")
    if name is not None and not isinstance(name, str):
        raise InvalidArgument("'model_name' must be a string", param="model_name")
    checked: dict[str, Any] = {}
    for key, value in changes.items():
        if key in ("dry_run", "model_name"):
            continue
        if key == "pinned":
            raise RequestError("'pinned' applies to a running model; use /v1/load or /internal/pin", param=key)
        if key not in known:
            raise RequestError(f"Unknown option '{key}' for recipe '{model.recipe}'", param=key)
        if value is None:
            checked[key] = None
        elif key == "ctx_size":
            checked[key] = _context_size(value, RequestError)
        else:
            checked[key] = _value(key, value, known[key], RequestError)
    return checked


def check_request(model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
    """The options among the fields of a load, checked; fields that are no options of the recipe are left out.

    Raises:
        InvalidArgument: a value that the option cannot have, with `param`.
    """
    known = options_of(model.recipe)
    checked: dict[str, Any] = {}
    for key, value in request.items():
        if key not in known:
            continue
        if value is None:
            checked[key] = None
        elif key == "ctx_size":
            # 0 is how llama.cpp spells "as much as the model was made for"; clients send it.
            checked[key] = -1 if value == 0 and not isinstance(value, bool) else _context_size(value, InvalidArgument)
        else:
            checked[key] = _value(key, value, known[key], InvalidArgument)
    return checked


def can_have(key: str, value: Any, option: Option) -> bool:
    """Whether a value that stands in a file, which anybody can edit, is one that the option can have."""
    try:
        if key == "ctx_size":
            return value == 0 or bool(_context_size(value, InvalidArgument))
        _value(key, value, option, InvalidArgument)
    except RequestError:
        return False
    return True


def _context_size(value: Any, error: type[RequestError]) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidArgument(_CONTEXT, param="ctx_size")
    if not (value == -1 or 1 <= value <= MAX_CONTEXT) or value != int(value):
        raise error(_CONTEXT, param="ctx_size")
    return int(value)


def _value(key: str, value: Any, option: Option, error: type[RequestError]) -> Any:
    if not is_set(key, value):
        return value  # "", "auto" and -1 clear an option of any type
    kind = option.kind
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    is_text = isinstance(value, str)
    goods = {"int": is_number, "number": is_number, "string": is_text}
    goods["pixels"] = is_number or (is_text and _AREA.fullmatch(value) is not None)
    good = goods.get(kind, isinstance(value, bool))
    if not good:
        raise error(f"Invalid type for option '{key}': it must be {_KINDS[kind]}", param=key)
    if is_number and not -MAX_INTEGER <= value <= MAX_INTEGER:
        raise error(f"'{key}' must be {_KINDS[kind]} of a usual size", param=key)
    if kind == "int" or (kind == "pixels" and is_number):
        if value != int(value):
            raise error(f"'{key}' must be a whole number", param=key)
        return int(value)
    if kind == "string" and "\0" in value:
        raise error(f"'{key}' must not contain a NUL character", param=key)
    return value
