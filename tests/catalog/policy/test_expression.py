from __future__ import annotations

import pytest

from lemonade.catalog.policy.expression import MAX_PATTERN, compiled


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("bug", "a bug", True),
        ("Bug", "a bug", False),
        ("(?i)Bug", "a bug", True),
        ("^ab$", "ab\n", False),
        ("a.c", "axc", True),
        ("a.c", "a\nc", False),
        ("a.c", "a\u2028c", False),
        ("a[^]c", "a\nc", True),
        ("[]a", "a", False),
        ("[[:alpha:]]", ":]", True),
        (r"[\]]", "]", True),
        (r"\d{3}-\d{2}", "123-45", True),
        (r"\d", "\u0661", False),
        (r"\bfoo\b", "a foo b", True),
        (r"\u0041", "A", True),
        (r"\u{1F600}", "\U0001f600", True),
        (r"\x41", "A", True),
        (r"\cA", "\x01", True),
        (r"[\b]", "\b", True),
        (r"\0", "\0", True),
        (r"\s", "\u00a0", True),
        (r"[x\s]", "\ufeff", True),
        (r"\S", "\u3000", False),
        (r"[^\S]", "\u3000", True),
        (r"\/\-\é\e", "/-\u00e9e", True),
        (r"(?<year>\d{4})", "2026", True),
        (r"(?:a|b)+?", "b", True),
        ("[é-ü]", "ö", True),
        ("a{", "a{", True),
    ],
)
def test_as_in_javascript(pattern: str, text: str, found: bool) -> None:
    assert compiled(pattern)(text.encode()) is found


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("(?=a)", "looks ahead"),
        ("(?!a)", "looks ahead"),
        ("(?<=a)b", "looks behind"),
        ("(?<!a)b", "looks behind"),
        (r"(a)\1", "refers back"),
        (r"(?<n>a)\k<n>", "refers back"),
        ("a\\", "backslash"),
        ("(", "missing )"),
        ("a**", "repetition"),
        ("a{1001}", "repetition size"),
        ("((a{100}){100}){100}", "is no expression"),
        (r"\ud800", "no character"),
        ("a" * (MAX_PATTERN + 1), "longer than"),
    ],
)
def test_what_cannot_be_searched_for_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        compiled(pattern)
    assert words in str(caught.value)


@pytest.mark.timeout(20)
@pytest.mark.parametrize("pattern", ["(a+)+$", "(a|aa)+$", "(.*)*x", "(a*)*b|(a|aa)+c$", "(?:a?){500}a{500}$"])
def test_no_expression_hangs(pattern: str) -> None:
    search = compiled(pattern)
    assert search(b"a" * 100_000 + b"!") is False
