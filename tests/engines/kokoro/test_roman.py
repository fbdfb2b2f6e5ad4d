from __future__ import annotations

import pytest

from lemonade.engines.kokoro.roman import numerals


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("World War II", "World War 2"),
        ("Chapter IV: Rocky III", "Chapter 4: Rocky 3"),
        ("Louis XIV and Charles V", "Louis the 14th and Charles the 5th"),
        ("Elizabeth I of England", "Elizabeth the 1st of England"),
        ("the XXI century", "the 21 century"),
        ("Part I", "Part 1"),
        ("an IV drip", "an I V drip"),
    ],
)
def test_numerals_are_numbers(written: str, read: str) -> None:
    assert numerals(written) == read


@pytest.mark.parametrize(
    "text",
    ["It is In", "I am", "Henry I know", "Malcolm X", "Plan V", "MIX", "VIP", "IIII", "IVY", "XL", "Invoice", ""],
)
def test_words_stay_words(text: str) -> None:
    assert numerals(text) == text
