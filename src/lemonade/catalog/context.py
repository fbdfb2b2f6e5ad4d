"""How many tokens a model gets: what its file was made for, as far as the memory reaches."""

from __future__ import annotations

from lemonade.hub.gguf import Header
from lemonade.system.hardware import GIB

#: Tokens when nothing better is known. Source of this and of all numbers below: the original.
UNKNOWN = 4096
#: Embedding models get at least this much: their inputs are whole documents.
EMBEDDING = 8192
#: Most tokens where the file does not say what the model was made for.
UNSTATED_LIMIT = 32768

KIB = 1024
#: Bytes of cache per token by the size of the model in GB, for files that do not tell.
_BY_SIZE = ((1, 128), (3, 224), (8, 256), (16, 320), (32, 512), (64, 640))
_LARGEST = 768

#: A 16-bit float each for key and value.
_BYTES_PER_ELEMENT = 2 * 2
#: Bytes of a number in the cache, by llama.cpp's name for its type.
_TYPES = {"f32": 4, "q8_0": 34 / 32, "q5_1": 24 / 32, "q5_0": 22 / 32, "q4_1": 20 / 32}
_TYPES |= dict.fromkeys(("f16", "bf16"), 2) | dict.fromkeys(("q4_0", "iq4_nl"), 18 / 32)
#: Of a type that is not among these, as other builds of llama.cpp have some: two bits.
_LEAST_TYPE = 1 / 4
#: Layers that attend fully, at least, where not all do and the file does not say which.
_FULL_SHARE = 1 / 8
#: Architectures of which the cache is known to be what the header says. Others keep less: some compress it, some have
#: windows of which their files say nothing, some need none. Source: llama.cpp.
_PLAIN = frozenset(
    [
        *["command-r", "cohere2", "deepseek2", "ernie4_5", "ernie4_5-moe", "exaone", "falcon", "gemma"],
        *["gemma3", "gemma4", "glm4", "glm4moe", "gpt-oss", "granite", "granitehybrid", "granitemoe"],
        *["internlm2", "lfm2", "lfm2moe", "llama", "minicpm", "mistral3", "nemotron", "nemotron_h"],
        *["nemotron_h_moe", "olmo2", "olmoe", "phi2", "phi3", "phimoe", "qwen2", "qwen2moe", "qwen2vl"],
        *["qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "seed_oss", "smollm3", "stablelm", "starcoder2"],
    ]
)
#: Those of which most layers keep nothing per token, even when the file does not say which.
_HYBRID = frozenset({"qwen3next", "qwen35", "qwen35moe"})


def automatic(*, available: int, size: float, header: Header | None, embedding: bool) -> int:
    """The context size for `ctx_size: -1`, in tokens.

    Args:
        available: bytes of memory that are free for the model and its cache; 0 when unknown.
        size: the model in GiB.
        header: facts from the model's file.
        embedding: whether it makes embeddings.
    """
    floor = EMBEDDING if embedding else UNKNOWN
    if available <= 0:
        return floor
    budget = available - size * GIB
    per_token = bytes_per_token(header, size)
    tokens = int(budget / per_token) if budget > 0 else 0
    if tokens <= 0:
        return floor
    limit = header.context_length if header is not None and header.context_length else UNSTATED_LIMIT
    tokens = min(tokens, limit)
    return max(tokens, EMBEDDING) if embedding else tokens


def bytes_per_token(header: Header | None, size: float) -> float:
    """Bytes that one token takes in the cache of keys and values."""
    if header is not None and header.block_count and header.key_length and sum(header.heads_kv) > 0:
        return _from_header(header, header.block_count, header.key_length)
    for limit, kib in _BY_SIZE:
        if size < limit:
            return kib * KIB
    return _LARGEST * KIB


def _from_header(header: Header, blocks: int, key_length: int) -> float:
    heads = header.heads_kv
    base = float(sum(heads) * key_length * _BYTES_PER_ELEMENT)
    interval = header.full_attention_interval or 0
    if interval > 1:
        # Only every so manieth layer keeps keys and values.
        base *= ((blocks - 1) // interval + 1) / blocks
    window, pattern = header.key_length_swa or 0, header.sliding_window_pattern
    if not 0 < window < key_length or not pattern:
        return base
    if len(pattern) == len(heads) and interval <= 1:
        lengths = (window if sliding else key_length for sliding in pattern)
        return float(sum(count * length for count, length in zip(heads, lengths, strict=True)) * _BYTES_PER_ELEMENT)
    share = sum(pattern) / blocks
    return base * max(0.1, 1 - share + share * window / key_length)


def least_bytes_per_token(header: Header | None, keys: str = "", values: str = "") -> float | None:
    """Bytes that one more token takes in the cache whatever the engine saves: layers with a sliding window keep no
    more than their window, those with a single head may keep no values, and the last ones may share what others keep.

    Args:
        keys, values: the types of the cache, as llama.cpp's arguments name them; "" for the usual ones.

    Returns:
        None when the file does not tell, or nobody knows what the engine makes of the architecture.
    """
    if header is None or not header.key_length or not header.block_count or not sum(header.heads_kv):
        return None
    if header.architecture not in _PLAIN | _HYBRID:
        return None
    own = max(header.block_count - (header.shared_kv_layers or 0), 0)
    heads, pattern = header.heads_kv[:own], header.sliding_window_pattern[:own]
    count = float(sum(heads))
    if header.full_attention_interval and header.full_attention_interval > 1:
        count *= header.block_count // header.full_attention_interval / header.block_count
    elif heads and len(pattern) == len(heads):
        count = float(sum(each for each, sliding in zip(heads, pattern, strict=True) if not sliding))
    elif header.sliding_window or pattern or header.architecture in _HYBRID:
        count *= _FULL_SHARE
    of_values = _bytes_of(values) * (header.value_length or header.key_length) if max(header.heads_kv) > 1 else 0
    return count * (_bytes_of(keys) * header.key_length + of_values)


def _bytes_of(type_: str) -> float:
    return _TYPES.get(type_ or "f16", _LEAST_TYPE)
