"""What the header of a GGUF file says, in one bounded pass over its key-value section.

The layout is the one that ggml documents: magic, version, the counts of tensors and of key-value pairs (u64), then the
pairs; each is a string key, a u32 type and the value, all little-endian. Tensor data is never touched, and values that
nobody asks for (vocabularies, merges) are passed over without being made.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec

from lemonade.hub.window import PAIR, U32, U64, Window
from lemonade.hub.window import InvalidGGUF as InvalidGGUF

MAGIC = b"GGUF"

#: Versions with 64-bit lengths; version 1 had 32-bit ones and no engine reads it any more.
VERSIONS = (2, 3)

#: Real files have 20 to 80 pairs.
MAX_PAIRS = 4_096
#: The format allows keys of 65535 bytes.
MAX_KEY = 65_535
#: Longer strings are passed over, not read. The longest real chat templates have some 30 KiB.
MAX_STRING = 1 << 18
#: Bytes of keys that are read in all, and of values; values beyond are passed over.
MAX_READ = 1 << 20
#: Layers that a per-layer array may describe.
MAX_LAYERS = 4_096
#: Facts that are kept, over all prefixes; one architecture has nine.
MAX_FACTS = 64

_STRING, _ARRAY, _BOOL = 8, 9, 7
#: Type number to its format, for all types of fixed size.
_SCALARS = {
    0: struct.Struct("<B"),
    1: struct.Struct("<b"),
    2: struct.Struct("<H"),
    3: struct.Struct("<h"),
    4: struct.Struct("<I"),
    5: struct.Struct("<i"),
    6: struct.Struct("<f"),
    _BOOL: struct.Struct("<?"),
    10: struct.Struct("<Q"),
    11: struct.Struct("<q"),
    12: struct.Struct("<d"),
}

#: What an architecture says about itself; each key is prefixed with the architecture's name.
_FACTS = (
    "context_length",
    "block_count",
    "embedding_length",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.key_length_swa",
    "attention.shared_kv_layers",
    "attention.value_length",
    "attention.sliding_window",
    "attention.sliding_window_pattern",
    "full_attention_interval",
    "decision.type",
)
_NAMES = ("general.architecture", "general.basename", "general.name", "general.finetune")
_VISION = (
    "vision",
    "image",
    "mmproj",
    "multimodal",
    "multi-modal",
    "qwen2vl",
    "qwen2_5_vl",
    "qwen3vl",
    "mllama",
    "llava",
    "pixtral",
    "paligemma",
)
_TOOLS = (
    "tool_call",
    "tool-call",
    "function_call",
    "function-call",
    "<tool",
    "</tool",
    " tools",
    '"tools"',
    "'tools'",
)


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The facts that sizing, labels and templates need.

    Attributes:
        context_length: tokens the model was made for.
        block_count: number of layers.
        embedding_length: width of the residual stream.
        heads_kv: key/value heads of each layer, one number per layer; empty when unknown.
        key_length: width of one key head; where the file leaves it out, `embedding_length / heads` as llama.cpp has it.
        key_length_swa: the same for layers with a sliding window.
        value_length: width of one value head; None when it is that of a key head.
        shared_kv_layers: the last layers, which keep no keys and values of their own; None when all do.
        sliding_window: tokens that a layer with a sliding window looks back; None when no layer has one.
        sliding_window_pattern: per layer, whether it has a sliding window; empty when all layers are alike.
        full_attention_interval: every so manieth layer attends fully (hybrids of attention and recurrence).
        chat_template: the default Jinja template.
        capabilities: of `vision`, `tool-calling`, `mtp`.
        decision: how a decision model was made; None for others.
    """

    architecture: str
    context_length: int | None = None
    block_count: int | None = None
    embedding_length: int | None = None
    heads_kv: tuple[int, ...] = ()
    key_length: int | None = None
    key_length_swa: int | None = None
    value_length: int | None = None
    shared_kv_layers: int | None = None
    sliding_window: int | None = None
    sliding_window_pattern: tuple[bool, ...] = ()
    full_attention_interval: int | None = None
    chat_template: str | None = None
    capabilities: frozenset[str] = frozenset()
    decision: str | None = None


def no_gguf(path: str) -> str:
    """What to tell somebody whose file has no magic, or is one of a series whose other parts are not there."""
    if has_magic(Path(path)):
        return f"'{path}' is one part of several, and not all of them are beside it."
    return (
        f"'{path}' is no GGUF file: it does not begin like one. Was a web page, or a pointer to the file, saved in its "
        "place?"
    )


def has_magic(path: Path) -> bool:
    """Whether the file can be read and begins as every GGUF file does."""
    if not path.is_file():
        return False  # a pipe would be waited for
    try:
        with path.open("rb", buffering=0) as file:
            return file.read(len(MAGIC)) == MAGIC
    except OSError:
        return False


def read_header(path: Path) -> Header:
    """Reads the header of `path`.

    Raises:
        InvalidGGUF: it is no GGUF file, or its header is cut off or absurd.
        OSError: the file cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        pairs = _Pairs(Window(file, path.name))
        pairs.read()
    return pairs.header()


class _Pairs:
    """The pairs of a header, of which only the wanted ones are kept."""

    def __init__(self, cursor: Window) -> None:
        self._cursor = cursor
        self._facts: dict[str, Any] = {}
        self._architecture = ""
        self._template: str | None = None
        self._capabilities: set[str] = set()
        self._keys_left = MAX_READ
        self._values_left = MAX_READ

    def read(self) -> None:
        cursor = self._cursor
        if cursor.take(4) != MAGIC:
            cursor.refuse("it does not begin with GGUF")
        version = cursor.number(U32)
        if version not in VERSIONS:
            byte_order = "big-endian" if version & 0xFFFF == 0 else f"version {version}"
            cursor.refuse(f"it is {byte_order}; little-endian files of version 2 and 3 can be read")
        _, count = PAIR.unpack(cursor.take(PAIR.size))
        if count > MAX_PAIRS:
            cursor.refuse(f"it claims to have {count} metadata entries")
        for _ in range(count):
            key = cursor.text(min(MAX_KEY, self._keys_left))
            if key is None:
                cursor.refuse("a metadata key is too long")
            self._keys_left -= len(key)
            self._note(key, self._value(key))

    def _value(self, key: str) -> Any:
        cursor = self._cursor
        kind = cursor.number(U32)
        if kind == _STRING:
            text = cursor.text(min(MAX_STRING, self._values_left) if _is_telling(key) else 0)
            self._values_left -= len(text or "")
            return text
        if kind == _ARRAY:
            return self._array(key)
        if kind not in _SCALARS:
            cursor.refuse(f"'{key[:80]}' has the unknown type {kind}")
        return cursor.number(_SCALARS[kind])

    def _array(self, key: str) -> tuple[Any, ...] | None:
        cursor = self._cursor
        kind = cursor.number(U32)
        count = cursor.number(U64)
        if kind == _STRING:
            cursor.skip_strings(count)
            return None
        if kind not in _SCALARS:
            cursor.refuse(f"'{key[:80]}' is an array of the unknown type {kind}")
        form = _SCALARS[kind]
        size = count * form.size
        if _fact(key) is None or count > MAX_LAYERS or size > self._values_left:
            cursor.skip(size)
            return None
        self._values_left -= size
        return tuple(value for (value,) in form.iter_unpack(cursor.take(size)))

    def _note(self, key: str, value: Any) -> None:
        if value is None:
            return
        if _fact(key) is not None and len(self._facts) < MAX_FACTS:
            self._facts[key] = value
        if key == "general.architecture" and isinstance(value, str):
            self._architecture = value
        if "nextn_predict_layers" in key and isinstance(value, int) and value > 0:
            self._capabilities.add("mtp")
        if (key in _NAMES or _is_vision_key(key)) and _mentions(f"{key}={value}", _VISION):
            self._capabilities.add("vision")
        if "chat_template" in key and isinstance(value, str):
            if key == "tokenizer.chat_template":
                self._template = value
            if _mentions(value, _TOOLS):
                self._capabilities.add("tool-calling")

    def header(self) -> Header:
        blocks = self._whole("block_count", MAX_LAYERS)
        width = self._whole("embedding_length")
        heads = self._per_layer("attention.head_count", blocks)
        key_length = self._whole("attention.key_length")
        if key_length is None and width and heads and max(heads):
            key_length = width // max(heads) or None
        return Header(
            architecture=self._architecture,
            context_length=self._whole("context_length"),
            block_count=blocks,
            embedding_length=width,
            heads_kv=self._per_layer("attention.head_count_kv", blocks) or heads,
            key_length=key_length,
            key_length_swa=self._whole("attention.key_length_swa"),
            value_length=self._whole("attention.value_length"),
            shared_kv_layers=self._whole("attention.shared_kv_layers"),
            sliding_window=self._whole("attention.sliding_window"),
            sliding_window_pattern=self._pattern(blocks),
            full_attention_interval=self._whole("full_attention_interval"),
            chat_template=self._template,
            capabilities=frozenset(self._capabilities),
            decision=str(self._get("decision.type") or "") or None,
        )

    def _get(self, name: str) -> Any:
        return self._facts.get(f"{self._architecture}.{name}")

    def _whole(self, name: str, limit: int = 1 << 31) -> int | None:
        value = self._get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= limit else None

    def _per_layer(self, name: str, blocks: int | None) -> tuple[int, ...]:
        value = self._get(name)
        if isinstance(value, tuple):
            return value if all(isinstance(each, int) and 0 <= each <= 1 << 20 for each in value) else ()
        one = self._whole(name, 1 << 20)
        return (one,) * blocks if one and blocks else ()

    def _pattern(self, blocks: int | None) -> tuple[bool, ...]:
        value = self._get("attention.sliding_window_pattern")
        if isinstance(value, tuple):
            return tuple(bool(each) for each in value)
        period = self._whole("attention.sliding_window_pattern", MAX_LAYERS)
        if not period or not blocks:
            return ()
        # llama.cpp's reading of a single number: the last layer of every period attends fully.
        return tuple(layer % period < period - 1 for layer in range(blocks))


def _fact(key: str) -> str | None:
    """The fact that a key tells, whatever the architecture: its prefix may come before the architecture is known."""
    if len(key) > 200:
        return None
    _, _, name = key.partition(".")
    return name if name in _FACTS else None


def _is_vision_key(key: str) -> bool:
    return "clip.vision" in key or "mmproj" in key


def _is_telling(key: str) -> bool:
    return key in _NAMES or "chat_template" in key or _is_vision_key(key) or _fact(key) == "decision.type"


def _mentions(text: str, words: tuple[str, ...]) -> bool:
    text = text.lower()
    return any(word in text for word in words)
