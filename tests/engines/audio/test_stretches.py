from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from lemonade.engines.audio.stretches import FRAME, levels, stretches
from tests.recordings import RATE, Samples


def noise(seconds: float, level: float = 0.1) -> Samples:
    return (np.random.default_rng(0).standard_normal(int(seconds * RATE)) * level).astype(np.float32)


def blocks(samples: Samples, size: int) -> Iterator[Samples]:
    for at in range(0, len(samples), size):
        yield samples[at : at + size]


@pytest.mark.parametrize("size", [1, 1000, 1_000_000])
def test_nothing_is_lost_and_nothing_comes_twice(size: int) -> None:
    whole = noise(4 if size == 1 else 25)
    longest = 1.0 if size == 1 else 10.0
    made = list(stretches(blocks(whole, size), longest))
    assert (np.concatenate([samples for _, samples in made]) == whole).all()
    assert [begin for begin, _ in made] == [
        sum(len(samples) for _, samples in made[:number]) / RATE for number in range(len(made))
    ]
    assert all(len(samples) <= longest * RATE for _, samples in made)


def test_a_cut_is_made_in_a_pause() -> None:
    whole = noise(15)
    whole[int(8.6 * RATE) : int(9.0 * RATE)] = 0
    (_, first), (begin, _) = stretches(blocks(whole, 4000), 10)
    assert 8.6 < begin < 9.0
    assert len(first) / RATE == begin


def test_short_sound_is_one_stretch() -> None:
    ((begin, samples),) = stretches([noise(1)], 10)
    assert begin == 0
    assert len(samples) == RATE
    assert list(stretches([], 10)) == []


def test_levels_of_frames() -> None:
    width = int(FRAME * RATE)
    samples = np.concatenate([np.zeros(width), np.full(width, 0.5), np.full(width // 2, 1.0)]).astype(np.float32)
    assert levels(samples) == pytest.approx([0, 0.5, np.sqrt(0.5)], abs=1e-6)
