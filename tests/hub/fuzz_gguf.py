"""Damages GGUF headers in the ways that files get damaged, and that attackers would choose, and has them read.

    python tests/hub/fuzz_gguf.py [--count 10000] [--seed 0]

Each is read or refused as `InvalidGGUF`, in less than 50 ms of the processor and 20 MB. Fails with the damaged header's
number, from which `mutants` makes the same one again.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "src")]

from lemonade.hub.gguf import InvalidGGUF, read_header  # noqa: E402
from tests.hub.gguf_file import gguf, string, value  # noqa: E402

MAX_SECONDS = 0.05
MAX_BYTES = 20_000_000

#: Numbers that break what counts, allocates or multiplies.
_EDGES = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]

_FACTS = gguf(
    {
        "general.architecture": "llama",
        "general.name": "Fuzz",
        "llama.context_length": 8192,
        "llama.block_count": 4,
        "llama.embedding_length": 64,
        "llama.attention.head_count": 8,
        "llama.attention.head_count_kv": [2, 2, 2, 2],
        "llama.attention.sliding_window_pattern": [True, False, True, False],
        "llama.vision.projection_dim": 64,
        "tokenizer.ggml.tokens": [f"token{number}" for number in range(300)],
        "tokenizer.ggml.scores": [float(number) for number in range(300)],
        "tokenizer.chat_template": "{% for tool in tools %}{{ tool }}{% endfor %}" * 20,
        "last": True,
    }
)


#: As converters write a byte-pair tokenizer: every length of token, merges, and a template behind them.
_TOKENIZER = gguf(
    {
        "general.architecture": "qwen3",
        "general.type": "model",
        "general.size_label": "0.6B",
        "qwen3.context_length": 40960,
        "qwen3.block_count": 28,
        "qwen3.rope.freq_base": 1000000.0,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "qwen2",
        "tokenizer.ggml.tokens": [
            *("!\"#$%&'"),
            *("\u0120" + "abcdefgh" * (size // 8) for size in range(600)),
            "<|im_end|>",
        ],
        "tokenizer.ggml.token_type": [1] * 608,
        "tokenizer.ggml.merges": [f"\u0120{'t' * (size % 9)} {'h' * (size % 7)}" for size in range(600)],
        "tokenizer.ggml.eos_token_id": 151645,
        "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": "{%- if tools %}<tools>{{ tools }}</tools>{%- endif %}" * 100,
        "general.quantization_version": 2,
        "general.file_type": 2,
    }
)
_LAYERS = gguf(
    {
        "general.architecture": "gemma4",
        "gemma4.block_count": 48,
        **{
            f"gemma4.{name}": [number % 5 for number in range(48)]
            for name in (
                "attention.head_count",
                "attention.head_count_kv",
                "attention.key_length",
                "feed_forward_length",
            )
        },
        "gemma4.attention.sliding_window_pattern": [number % 6 != 5 for number in range(48)],
        "gemma4.rope.factors": [float(number) for number in range(64)],
        "gemma4.nextn_predict_layers": 1,
    }
)
#: Strings that are read, strings that are passed over by a seek, and a key as long as keys may be.
_BIG = gguf(
    {
        "general.architecture": "llama",
        "general.description": "long " * 30_000,
        "tokenizer.chat_template": "{{ messages }} tool_call " * 3_000,
        "tokenizer.chat_template.rag": "{{ documents }} " * 20_000,
        "k" * 60_000: 1,
        "llama.block_count": 2,
    }
)
#: Arrays in arrays, which the format has and no engine reads.
_NESTED = (
    b"GGUF"
    + struct.pack("<IQQ", 3, 0, 3)
    + string("general.architecture")
    + value("llama")
    + string("llama.nested")
    + struct.pack("<IIQ", 9, 9, 2)
    + value([1, 2, 3])[4:] * 2
    + string("llama.block_count")
    + value(2)
)
TEMPLATES = (_FACTS, _TOKENIZER, _LAYERS, _BIG, _NESTED)


def mutants(count: int, seed: int = 0) -> Iterator[bytes]:
    """Damaged headers, always the same ones for a seed."""
    for number in range(count):
        yield _mutant(random.Random(f"{seed}-{number}"))


def _mutant(chance: random.Random) -> bytes:
    content = bytearray(chance.choice(TEMPLATES))
    for _ in range(chance.choice([1, 1, 1, 2, 4, 16])):
        at = chance.randrange(len(content))
        match chance.randrange(8):
            case 0:
                content[at] ^= 1 << chance.randrange(8)
            case 1:
                content[at : at + 8] = struct.pack("<Q", chance.choice(_EDGES))
            case 2:
                content[at : at + 4] = struct.pack("<I", chance.choice(_EDGES) & 0xFFFFFFFF)
            case 3:
                del content[at : at + chance.randrange(1, 64)]
            case 4:
                content[at:at] = chance.randbytes(chance.randrange(1, 64))
            case 5:
                del content[max(at, 4) :]
            case 6:
                start = chance.randrange(len(content))
                content[at:at] = content[start : start + chance.randrange(1, 400)]
            case _:
                # The counts of tensors and pairs, and the version, are at the start.
                place = chance.choice([4, 8, 16])
                content[place : place + 4] = struct.pack("<I", chance.choice(_EDGES) & 0xFFFFFFFF)
        if len(content) < 32:
            break
    return bytes(content)


def outcome(path: Path) -> str:
    """`read` or `refused`. Anything else that it raises is the fault that is looked for."""
    try:
        read_header(path)
    except InvalidGGUF:
        return "refused"
    return "read"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    counts = {"read": 0, "refused": 0}
    slowest, largest = 0.0, 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        for number, content in enumerate(mutants(arguments.count, arguments.seed)):
            path.write_bytes(content)
            begin = time.process_time()
            counts[outcome(path)] += 1
            seconds = time.process_time() - begin
            tracemalloc.start()
            outcome(path)
            size = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            slowest, largest = max(slowest, seconds), max(largest, size)
            if seconds > MAX_SECONDS or size > MAX_BYTES:
                sys.exit(
                    f"header {number} of seed {arguments.seed} took {seconds * 1e3:.0f} ms and {size / 1e6:.1f} MB"
                )
    print(
        f"{counts['read']} read, {counts['refused']} refused; slowest {slowest * 1e3:.1f} ms, largest {largest} bytes"
    )


if __name__ == "__main__":
    main()
