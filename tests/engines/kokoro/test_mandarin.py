from __future__ import annotations

import pytest

from lemonade.engines.kokoro.mandarin import numbers_in_words, sounds, syllable
from lemonade.engines.kokoro.phonemes import VOCABULARY


@pytest.mark.parametrize(
    ("pinyin", "read"),
    [
        ("zhong1", "ꭧʊ→ŋ"),
        ("guo2", "kwo↗"),
        ("shi4", "ʂɨ↘"),
        ("si3", "sɨ↓"),
        ("xue2", "ɕɥe↗"),
        ("nü3", "ny↓"),
        ("quan1", "ʨʰɥɛ→n"),
        ("wo3", "wo↓"),
        ("you3", "jou↓"),
        ("liu4", "ljou↘"),
        ("gui4", "kwei↘"),
        ("lun2", "lwə↗n"),
        ("er2", "ɚ↗"),
        ("de5", "tɤ"),
        ("x", ""),
        ("hm5", ""),
    ],
)
def test_syllables(pinyin: str, read: str) -> None:
    assert syllable(pinyin) == read
    assert set(read) <= set(VOCABULARY)


def test_words_decide_how_a_character_is_read() -> None:
    assert sounds("银行") == "i↗nxa↗ŋ"
    assert "ɕi↗ŋ" in sounds("行走")


def test_tones_change_beside_each_other() -> None:
    assert sounds("你好") == "ni↗xau↓"


@pytest.mark.parametrize(
    ("number", "words"),
    [
        ("0", "零"),
        ("10", "十"),
        ("12", "十二"),
        ("20", "二十"),
        ("105", "一百零五"),
        ("110", "一百一十"),
        ("2024", "二千零二十四"),
        ("10500", "一万零五百"),
        ("100001", "十万零一"),
        ("3.14", "三点一四"),
        ("50%", "百分之五十"),
        ("007", "零零七"),
        ("13800138000", "一三八零零一三八零零零"),
        ("有3个", "有三个"),
    ],
)
def test_numbers(number: str, words: str) -> None:
    assert numbers_in_words(number) == words
