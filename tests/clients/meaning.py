"""Whether vectors are those of an embedding model, and not just numbers."""

from __future__ import annotations

from collections.abc import Sequence

from tests.bert import WIDTH

#: What the clients have embedded: the first two mean about the same.
TEXTS = ("a cat", "a kitten", "revenue")


def close(vectors: Sequence[Sequence[float]]) -> bool:
    """Whether these are vectors of `TEXTS`."""
    assert [len(vector) for vector in vectors] == [WIDTH] * len(TEXTS)
    cat, kitten, revenue = vectors

    def product(one: Sequence[float], other: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(one, other, strict=True))

    return product(cat, kitten) > 0.6 > 0.4 > product(cat, revenue)
