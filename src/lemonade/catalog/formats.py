"""What the files of a recipe begin with: enough to tell a model's file from one that was named by mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from lemonade.hub.gguf import MAGIC, no_gguf

#: Bytes that are looked at.
HEAD = 16

#: A model of whisper.cpp's own format. Source: its GGML_FILE_MAGIC, as it lies in the file.
_GGML = b"lmgg"
#: PyTorch writes archives, and wrote pickles of protocol 2 and later.
_TORCH = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04")


class _Format(NamedTuple):
    """A recipe's files: their name for people, and whether one of them can begin with these bytes."""

    what: str
    fits: Callable[[bytes], bool]


def _is_safetensors(head: bytes) -> bool:
    """The length of a JSON object in eight bytes, of which real ones need four, and the object."""
    return head[4:8] == bytes(4) and head[8:9] == b"{"


_FORMATS = {
    "llamacpp": _Format("GGUF file", lambda head: head.startswith(MAGIC)),
    "whispercpp": _Format("model of whisper.cpp", lambda head: head.startswith((_GGML, MAGIC))),
    "sd-cpp": _Format(
        "GGUF, safetensors or PyTorch file",
        lambda head: head.startswith((MAGIC, *_TORCH)) or _is_safetensors(head),
    ),
}
#: Recipes whose models are folders.
_FOLDERS = ("onnxruntime",)


def mismatch(recipe: str, path: Path) -> str | None:
    """Why a file cannot be a model of the recipe, or None when it may be one; of folders nothing is known.

    Raises:
        OSError: it cannot be read.
    """
    if path.is_dir():
        return None
    if not path.is_file():
        return f"'{path}' is no file and no folder."
    if recipe in _FOLDERS:
        return f"'{path}' is a file; models of {recipe} are folders."
    known = _FORMATS.get(recipe)
    if known is None:
        return None
    with path.open("rb", buffering=0) as file:
        head = file.read(HEAD)
    if known.fits(head):
        return None
    if recipe == "llamacpp":
        return no_gguf(str(path))
    return f"'{path}' is no {known.what}: it does not begin like one."
