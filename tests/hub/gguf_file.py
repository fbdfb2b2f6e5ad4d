"""Writes small GGUF files, as converters write large ones."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any


def string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def value(what: Any) -> bytes:
    """The type number and the value: bool, int (u32), float (f32), str, or a list of one of them."""
    if isinstance(what, list):
        first = what[0] if what else 0
        kind = value(first)[:4]
        return struct.pack("<I", 9) + kind + struct.pack("<Q", len(what)) + b"".join(value(each)[4:] for each in what)
    if isinstance(what, bool):
        return struct.pack("<I?", 7, what)
    if isinstance(what, int):
        return struct.pack("<II", 4, what)
    if isinstance(what, float):
        return struct.pack("<If", 6, what)
    return struct.pack("<I", 8) + string(what)


def gguf(pairs: Mapping[str, Any] | None = None, *, version: int = 3, tail: bytes = b"") -> bytes:
    """A file with these pairs, no tensors, and `tail` behind the header."""
    pairs = pairs or {"general.architecture": "llama"}
    body = b"".join(string(key) + value(what) for key, what in pairs.items())
    return b"GGUF" + struct.pack("<IQQ", version, 0, len(pairs)) + body + tail
