"""What may be said to faster-whisper: the arguments of its `WhisperModel` and `transcribe`, as flags."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from lemonade.engines.arguments import Flag
from lemonade.engines.words import choice, number, text, whole

#: Numbers in which CTranslate2 computes on processors. Source: its page on quantization.
COMPUTE_TYPES: Final = (
    "auto",
    "default",
    "int8",
    "int8_float32",
    "int8_bfloat16",
    "int16",
    "bfloat16",
    "float32",
)


def _flag(name: str, read: Callable[[str], Any] | None = None, value: Any = True, *, target: str = "") -> Flag:
    """In the spelling of command lines and in that of the library."""
    target = target or name.replace("-", "_")
    return Flag(tuple(dict.fromkeys((f"--{name}", f"--{name.replace('-', '_')}"))), target, read, value)


#: What a flag sets: `threads`, `compute_type` and `language`, or an argument of the library's `transcribe`.
FLAGS: Final = (
    Flag(("-t", "--threads", "--cpu-threads", "--cpu_threads"), "threads", whole(1, 512)),
    _flag("compute-type", choice({name: name for name in COMPUTE_TYPES})),
    Flag(("-l", "--language"), "language", text),
    _flag("beam-size", whole(1, 32)),
    _flag("best-of", whole(1, 32)),
    _flag("patience", number(0, above=True)),
    _flag("length-penalty", number()),
    _flag("repetition-penalty", number(0, above=True)),
    _flag("no-repeat-ngram-size", whole(0, 100)),
    _flag("compression-ratio-threshold", number(0, above=True)),
    _flag("log-prob-threshold", number()),
    _flag("no-speech-threshold", number(0, 1)),
    _flag("condition-on-previous-text"),
    _flag("no-condition-on-previous-text", value=False, target="condition_on_previous_text"),
    _flag("prompt-reset-on-temperature", number(0, 1)),
    _flag("initial-prompt", text),
    _flag("hotwords", text),
    _flag("vad-filter"),
)

_MANAGED, _OF_REQUESTS = "Lemonade manages it", "it belongs to each request"


def _both(names: str, why: str) -> dict[str, str]:
    return {f"--{spelt}": why for name in names.split() for spelt in (name, name.replace("-", "_"))}


#: Arguments of the library that have no place here, and why.
RESERVED: Final = (
    _both("model model-dir model-size-or-path download-root local-files-only files num-workers", _MANAGED)
    | _both("device device-index", "the processor is all that it runs on here")
    | _both("task temperature word-timestamps without-timestamps clip-timestamps prefix chunk-length", _OF_REQUESTS)
)
