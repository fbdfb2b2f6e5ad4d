"""Damages GGUF headers in the ways that files get damaged, and that attackers would choose, and has them read.

    python tests/hub/fuzz_gguf.py [--count 10000] [--seed 0]

Each is read or refused as `InvalidGGUF`, in less than 50 ms and 20 MB. Fails with the damaged header's number, from
which `mutants` makes the same one again.
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
from tests.hub.gguf_file import gguf  # noqa: E402

MAX_SECONDS = 0.05
MAX_BYTES = 20_000_000

#: Numbers that break what counts, allocates or multiplies.
_EDGES = [0, 1, 2**7, 2**8 - 1, 2**15, 2**16, 2**20, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**63, 2**64 - 1]

_WHOLE = gguf(
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


def mutants(count: int, seed: int = 0) -> Iterator[bytes]:
    """Damaged headers, always the same ones for a seed."""
    for number in range(count):
        yield _mutant(random.Random(f"{seed}-{number}"))


def _mutant(chance: random.Random) -> bytes:
    content = bytearray(_WHOLE)
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
            begin = time.perf_counter()
            counts[outcome(path)] += 1
            seconds = time.perf_counter() - begin
            if seconds > MAX_SECONDS:
                # Another program may have had the processor.
                begin = time.perf_counter()
                outcome(path)
                seconds = min(seconds, time.perf_counter() - begin)
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
