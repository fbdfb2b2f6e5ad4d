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
