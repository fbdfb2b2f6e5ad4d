"""LoRA files that a prompt names: `<lora:NAME:WEIGHT>`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from lemonade.errors import InvalidArgument

_TAG = re.compile(r"<lora:(?P<name>[^:>]+):(?P<weight>[+-]?(?:\d+\.?\d*|\.\d+))>")
_ENDINGS = (".safetensors", ".gguf", ".ckpt", ".pt")


class Lora(NamedTuple):
    """A file, and how much of it is wanted."""

    path: Path
    weight: float


def read(prompt: str, folder: str | None) -> tuple[str, list[Lora]]:
    """The prompt without its tags, and the files that they name.

    Args:
        folder: the only one whose files can be named; None if the model runs without one.

    Raises:
        InvalidArgument: there is no such file, or no folder.
    """
    found = list(_TAG.finditer(prompt))
    if not found:
        return prompt, []
    if not folder:
        raise InvalidArgument(
            f"The prompt names the LoRA '{found[0]['name'][:100]}', and the model was loaded without a folder of them. "
            "Set it: sdcpp_args '--lora-model-dir FOLDER'.",
            param="prompt",
        )
    loras = [Lora(_find(Path(folder), each["name"]), float(each["weight"])) for each in found]
    return _TAG.sub("", prompt).strip(), loras


def _find(folder: Path, name: str) -> Path:
    # A prompt may come from anybody: it names files of this folder and no others.
    if re.fullmatch(r"[\w][\w .+-]*", name):
        for path in (folder / name, *(folder / f"{name}{ending}" for ending in _ENDINGS)):
            if path.is_file():
                return path
    raise InvalidArgument(f"There is no LoRA '{name[:100]}' in {folder}.", param="prompt")
