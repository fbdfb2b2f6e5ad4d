"""What a person may register as a model of their own, and what is kept of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lemonade.catalog import labels, rows
from lemonade.catalog.formats import mismatch
from lemonade.catalog.option_checks import check_saved
from lemonade.catalog.policy.document import RECIPE
from lemonade.catalog.policy.document import define as define_policy
from lemonade.errors import InvalidArgument
from lemonade.hub import address
from lemonade.hub.layout import check_repository, is_safe
from lemonade.model import Checkpoint, Model

#: Keys of a definition that go into user_models.json. Source: the original's file.
PERSISTED = (
    "checkpoint",
    "checkpoints",
    "recipe",
    "mmproj",
    "size",
    "image_defaults",
    "components",
    "recipe_options",
    "routing",
    "system_prompt",
    "version",
    "source",
    "registry_source",
    "hashes",
    "cloud_provider",
)

RESERVED = ("extra.", "builtin.")

#: Longest name; a terminal shows it in a line or two.
MAX_NAME = 256

_NEEDS_VARIANT = (
    "You are required to provide a 'variant' in the checkpoint field when registering a GGUF model. "
    "The variant is provided as CHECKPOINT:VARIANT. For example: Qwen/Qwen2.5-Coder-3B-Instruct-GGUF:Q4_0 or "
    "Qwen/Qwen2.5-Coder-3B-Instruct-GGUF:qwen2.5-coder-3b-instruct-q4_0.gguf"
)


def bare_name(definition: Mapping[str, Any]) -> str:
    """The name that a definition gives its model, without `user.`.

    Raises:
        InvalidArgument: on `model_name`.
    """
    name = definition.get("model_name")
    if not isinstance(name, str):
        raise InvalidArgument("A string `model_name` is required", param="model_name")
    bare = name.removeprefix("user.")
    if name.startswith(RESERVED) or bare.startswith(RESERVED):
        raise InvalidArgument(
            "Model names with 'extra.' / 'builtin.' prefixes are reserved, including as bare-name parts of a "
            f"'user.' alias. Received: {name[:MAX_NAME]}",
            param="model_name",
        )
    if not name.startswith("user.") or not bare.strip():
        raise InvalidArgument(
            "Registered model definitions must use a non-empty `user.*` name, for example `user.Phi-4-Mini-GGUF`. "
            f"Received: {name[:MAX_NAME]}",
            param="model_name",
        )
    segments = re.split(r"[/\\]", bare)
    if len(name) > MAX_NAME or bare != bare.strip() or not bare.isprintable() or {".", "..", ""} & set(segments):
        raise InvalidArgument(
            f"'model_name' must have at most {MAX_NAME} printable characters, no blanks at its ends, and no part "
            "that is empty, `.` or `..`.",
            param="model_name",
        )
    return bare


def define(
    definition: Mapping[str, Any], find: Callable[[str], Model | None], *, default_source: str = "huggingface"
) -> tuple[str, dict[str, Any]]:
    """The bare name and the row to keep of a definition.

    Args:
        definition: `model_name`, `recipe` and what else the specification lists for registering.
        find: the model of a name, or None; for the components of a collection.
        default_source: the registry of a definition that names none.

    Raises:
        InvalidArgument: with `param` naming the field.
    """
    if not isinstance(definition, Mapping):
        raise InvalidArgument("Request body must be a JSON object")
    name = definition.get("model_name")
    if not isinstance(name, str):
        raise InvalidArgument("A string `model_name` is required", param="model_name")
    recipe = definition.get("recipe")
    if not isinstance(recipe, str) or not recipe:
        raise InvalidArgument("A non-empty string `recipe` is required", param="recipe")
    bare = bare_name(definition)
    if definition.get("models") is not None:
        raise InvalidArgument("'models' can be imported but not registered; register each model.", param="models")
    row = {key: definition[key] for key in PERSISTED if definition.get(key) is not None}
    wanted = labels.requested(definition)
    labels.refuse(name, recipe, wanted)
    _read_addresses(row)
    _locate(row, default_source)
    model = rows.parse(bare, {**row, "labels": wanted}, "user")
    if model.is_collection:
        row["components"] = _components(model, definition, find)
        if not row["components"]:
            del row["components"]  # it points to a repository, whose manifest names them
    else:
        _check_checkpoints(model)
        if row.pop("components", None):
            raise InvalidArgument("'components' belong to the recipes collection.*", param="components")
    if model.recipe_options:
        check_saved(model, model.recipe_options)
    row["labels"] = sorted({*model.labels, "custom"})
    row["suggested"] = True
    return bare, row


def differences(old: Model, new: Model) -> list[str]:
    """The fields in which a second definition of a name contradicts the first, in the words of the wire."""
    pairs = {
        "checkpoints": (old.checkpoints, new.checkpoints),
        "recipe": (old.recipe, new.recipe),
        "source": (old.source or old.registry, new.source or new.registry),
    }
    return [field for field, (before, after) in pairs.items() if before != after]


def refuse_change(old: Model | None, new: Model) -> None:
    """Refuses a second definition of a name that contradicts the first. A collection may change.

    Raises:
        InvalidArgument: on `model_name`.
    """
    if old is None or new.is_collection:
        return
    if fields := differences(old, new):
        raise InvalidArgument(
            f"Model '{new.canonical}' is already registered with other {', '.join(fields)}. "
            "Choose another name, or delete it first.",
            param="model_name",
        )


def _read_addresses(row: dict[str, Any]) -> None:
    """Writes addresses of hubs as repositories, in place, and with them the registry that they are on."""
    several = row.get("checkpoints")
    texts = {"checkpoint": row.get("checkpoint"), "mmproj": row.get("mmproj")}
    texts |= several if isinstance(several, dict) else {}
    found = {
        role: read for role, text in texts.items() if isinstance(text, str) and (read := address.read(text)) is not None
    }
    if not found:
        return
    registries = {read.registry for read in found.values()}
    stated = rows.REGISTRIES.get(row.get("source") or row.get("registry_source") or "")
    if len(registries) > 1 or (stated and stated not in registries):
        raise InvalidArgument("The checkpoints and 'source' name different registries.", param="source")
    row["source"] = registries.pop()
    for role, read in found.items():
        if role in ("checkpoint", "mmproj"):
            row[role] = read.checkpoint
        else:
            row["checkpoints"] = {**row["checkpoints"], role: read.checkpoint}


def _locate(row: dict[str, Any], default_source: str) -> None:
    """Decides between a registry and local files, in place: an absolute path needs no `source` to be understood."""
    main = (row.get("checkpoints") or {}).get("main") if isinstance(row.get("checkpoints"), dict) else None
    main = main or row.get("checkpoint")
    if not isinstance(main, str) or not main:
        return
    stated = row.get("source") or row.get("registry_source")
    if not stated:
        row["source"] = "local_path" if _is_path(main) else default_source
    if row.get("source") == "local_path":
        shown = main[:MAX_NAME]
        try:
            path = Path(main).expanduser()
            is_there = path.exists()
            problem = mismatch(row["recipe"], path) if is_there else None
        except (OSError, RuntimeError) as error:  # RuntimeError: the home of somebody who is not there
            reason = error.strerror if isinstance(error, OSError) else error
            raise InvalidArgument(f"'{shown}' cannot be looked at: {reason}", param="checkpoint") from None
        if not path.is_absolute():
            raise InvalidArgument(f"With source `local_path`, '{shown}' must be an absolute path.", param="checkpoint")
        if not is_there:
            raise InvalidArgument(f"There is no file or folder '{shown}'.", param="checkpoint")
        if problem:
            raise InvalidArgument(problem, param="checkpoint")
        if isinstance(row.get("checkpoints"), dict):
            row["checkpoints"] = {**row["checkpoints"], "main": str(path)}
        else:
            row["checkpoint"] = str(path)


def _is_path(text: str) -> bool:
    return text.startswith(("/", "~/", "\\\\")) or re.match(r"[A-Za-z]:[\\/]", text) is not None


def _check_checkpoints(model: Model) -> None:
    if model.source or model.recipe in ("flm", "cloud"):
        return
    for role, text in model.checkpoints.items():
        param = "checkpoint" if role == "main" else "checkpoints"
        checkpoint = Checkpoint.parse(text)
        check_repository(model.registry, checkpoint.repository)
        if checkpoint.variant not in ("", "*") and not is_safe(checkpoint.variant):
            raise InvalidArgument(
                f"The variant '{checkpoint.variant[:MAX_NAME]}' must be a quantisation, or a path inside the "
                "repository.",
                param=param,
            )
        if not checkpoint.variant and (role not in ("main", "npu_cache") or model.registry == "pypi"):
            raise InvalidArgument(f"'{text[:MAX_NAME]}' must name a file: {text[:MAX_NAME]}:FILE", param=param)
    main = model.checkpoint
    if model.recipe == "llamacpp" and "gguf" in main.lower() and not Checkpoint.parse(main).variant:
        raise InvalidArgument(_NEEDS_VARIANT, param="checkpoint")


def _components(model: Model, definition: Mapping[str, Any], find: Callable[[str], Model | None]) -> list[str]:
    if not model.components:
        if model.checkpoint and model.recipe == "collection.omni" and definition.get("components") is None:
            _check_checkpoints(model)
            return []
        raise InvalidArgument("A collection needs a non-empty array `components`.", param="components")
    result = []
    for component in model.components:
        if component.removeprefix("user.") == model.name:
            raise InvalidArgument(f"The collection '{model.name}' cannot contain itself.", param="components")
        found = find(component)
        if found is None:
            raise InvalidArgument(
                f"Collection component not registered: '{component}'. Pull or register it before referencing it in a "
                "collection.",
                param="components",
            )
        if found.is_collection:
            raise InvalidArgument(
                f"'{component}' is a collection; a collection holds models, not collections.", param="components"
            )
        result.append(found.canonical)
    if model.recipe == RECIPE:
        define_policy(definition, find)
    return result
