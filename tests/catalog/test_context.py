from __future__ import annotations

import pytest

from lemonade.catalog.context import EMBEDDING, KIB, UNKNOWN, automatic, bytes_per_token, least_bytes_per_token
from lemonade.hub.gguf import Header
from lemonade.system.hardware import GIB

SMALL = Header(architecture="qwen3", context_length=40960, block_count=28, heads_kv=(8,) * 28, key_length=128)


@pytest.mark.parametrize(
    ("available", "size", "header", "embedding", "tokens"),
    [
        (0, 1.0, SMALL, False, UNKNOWN),
        (0, 1.0, None, True, EMBEDDING),
        (GIB, 2.0, SMALL, False, UNKNOWN),
        (64 * GIB, 0.38, SMALL, False, 40960),
        (64 * GIB, 2.38, None, False, 32768),
        (64 * GIB, 0.1, Header(architecture="bert", context_length=512), True, EMBEDDING),
        # 2 GiB for the cache, 224 KiB for a token of a model of 2 GB.
        (4 * GIB, 2.0, None, False, 2 * GIB // (224 * KIB)),
        # 28 layers x 8 heads x 128 x 4 bytes.
        (2 * GIB, 1.0, SMALL, False, GIB // (28 * 8 * 128 * 4)),
        (2 * GIB, 2.0 - 1e-9, SMALL, False, UNKNOWN),
    ],
)
def test_automatic(available: int, size: float, header: Header | None, embedding: bool, tokens: int) -> None:
    assert automatic(available=available, size=size, header=header, embedding=embedding) == tokens


@pytest.mark.parametrize(
    ("size", "kib"), [(0.5, 128), (1, 224), (2.9, 224), (3, 256), (8, 320), (16, 512), (32, 640), (64, 768), (500, 768)]
)
def test_bytes_per_token_by_size(size: float, kib: int) -> None:
    assert bytes_per_token(None, size) == kib * KIB
    assert bytes_per_token(Header(architecture="x", block_count=4), size) == kib * KIB


BASE = 4 * 2 * 100 * 4  # 4 layers x 2 heads x 100 x 4 bytes


def header(**facts: object) -> Header:
    facts = {"architecture": "llama", "block_count": 4, "heads_kv": (2,) * 4, "key_length": 100, **facts}
    return Header(**facts)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        (header(), BASE),
        (header(heads_kv=(0, 2, 0, 6)), BASE),
        # Only layers 0 and 3 of 4 attend fully: (4 - 1) // 3 + 1.
        (header(full_attention_interval=3), BASE * 2 / 4),
        (header(full_attention_interval=1), BASE),
        # Layer by layer: three of four with a window of 50.
        (header(key_length_swa=50, sliding_window_pattern=(True, True, True, False)), (3 * 50 + 100) * 2 * 4),
        # Arrays that do not match: by the share of the layers.
        (header(key_length_swa=50, sliding_window_pattern=(True, True)), BASE * (1 - 0.5 + 0.5 * 0.5)),
        (header(key_length_swa=200, sliding_window_pattern=(True,) * 4), BASE),
        (header(key_length_swa=1, sliding_window_pattern=(True,) * 5), BASE * 0.1),
    ],
)
def test_bytes_per_token_by_header(facts: Header, expected: float) -> None:
    assert bytes_per_token(facts, 1.0) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("facts", "types", "expected"),
    [
        (header(), ("", ""), BASE),
        (header(), ("q8_0", "q4_0"), 4 * 2 * 100 * (34 / 32 + 18 / 32)),
        (header(), ("f32", "of-tomorrow"), 4 * 2 * 100 * (4 + 1 / 4)),
        (header(value_length=50), ("", ""), BASE * 3 / 4),
        (header(full_attention_interval=3), ("", ""), BASE / 4),
        (header(architecture="qwen3next"), ("", ""), BASE / 8),
        (header(architecture="qwen35", full_attention_interval=4), ("", ""), BASE / 4),
        # Layers with a sliding window keep no more than that.
        (header(sliding_window_pattern=(True, True, True, False)), ("", ""), BASE / 4),
        (header(sliding_window=512), ("", ""), BASE / 8),
        # The last layers read what earlier ones keep.
        (header(architecture="gemma4", shared_kv_layers=1), ("", ""), BASE * 3 / 4),
        (header(shared_kv_layers=2, sliding_window_pattern=(True, False) * 2), ("", ""), BASE / 4),
        (header(shared_kv_layers=9), ("", ""), 0),
        # Its windows are not in the file; its cache is compressed; it has none.
        *((header(architecture=name), ("", ""), None) for name in ("llama4", "deepseek4", "bert", "of-tomorrow")),
        # A single head may be what keys and values are both made of.
        (header(heads_kv=(1,) * 4), ("", ""), 4 * 100 * 2),
        (header(heads_kv=()), ("", ""), None),
        (header(heads_kv=(0,) * 4), ("", ""), None),
        (header(key_length=None), ("", ""), None),
        (None, ("", ""), None),
    ],
)
def test_least_bytes_per_token(facts: Header | None, types: tuple[str, str], expected: float | None) -> None:
    assert least_bytes_per_token(facts, *types) == (expected if expected is None else pytest.approx(expected))
