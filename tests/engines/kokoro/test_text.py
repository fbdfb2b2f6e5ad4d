from __future__ import annotations

import pytest

from lemonade.engines.kokoro.sentences import split
from lemonade.engines.kokoro.text import clean, english, spoken


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("Dr. Smith and Mrs. Jones met Prof. X.", "Doctor Smith and Missus Jones met Professor X."),
        ("St. John lives on Main St. today.", "Saint John lives on Main Street today."),
        ("It cost $5.20.", "It cost 5 dollars and 20 cents."),
        ("It cost $1 or £1.01 or €1,000.", "It cost 1 dollar or 1 pound and 1 penny or 1000 euros."),
        ("$3.5 million, $2b, -$4, $0.99", "3.5 million dollars, 2 billion dollars, minus 4 dollars, 99 cents"),
        ("1,234,567.5 people", "1234567.5 people"),
        ("1,234 people paid $1,984.50 in 1984", "1234 people paid 1984 dollars and 50 cents in 19 84"),
        ("1,000-2,000 people", "1000 to 2000 people"),
        ("at 3:30pm or 10:00 or 9:05 a.m. today", "at 3 30 P M or 10 o'clock or 9 oh 5 eh M today"),
        ("At 5 p.m. We left.", "At 5 P M. We left."),
        ("in 1984, 1905, 1900, 2005 and 2024", "in 19 84, 19 oh 5, 19 hundred, 2005 and 20 24"),
        ("the 1990s and the 80s", "the 19 nineties and the 80s"),
        ("on Jan. 3rd", "on January 3rd"),
        ("e.g. this, i.e. that, etc. and so on", "for example, this, that is, that, et cetera and so on"),
        ("Cats, dogs, etc. They sleep.", "Cats, dogs, et cetera. They sleep."),
        ("the U.S. today", "the U S today"),
        ("version 3.11.2", "version 3 point 11 point 2"),
        ("1/2 cup, 3/4 mile, 2½ days", "one half cup, 3 quarters mile, 2 and a half days"),
        ("pages 10-20, -5 degrees", "pages 10 to 20, minus 5 degrees"),
        ("5 km, 1 kg, 20°C, 90 km/h", "5 kilometers, 1 kilogram, 20 degrees Celsius, 90 kilometers per hour"),
        ("2 x 3 = 6 & 1 + 1", "2 times 3 equals 6 and 1 plus 1"),
        ("#5 of No. 7", "number 5 of number 7"),
        ("see www.example.com/a or me@x.org.", "see example dot com slash a or me at x dot org."),
        ("end.Next", "end.Next"),
        ("a well-known 3-year-old", "a well-known 3-year-old"),
        ("call 555-1234 now", "call 5 5 5, 1 2 3 4 now"),
        ("(555) 123-4567 or 1-800-555-1234", "5 5 5, 1 2 3, 4 5 6 7 or 1, 8 0 0, 5 5 5, 1 2 3 4"),
        ("the 2010s, the 2000s, the 1900s", "the 20 tens, the two thousands, the 19 hundreds"),
        (
            "$5-10, $5–$10, $2bn, €5,50, $10/month",
            "5 to 10 dollars, 5 to 10 dollars, 2 billion dollars, 5 euros and 50 cents, 10 dollars per month",
        ),
        ("10%-20%, 5 - 3 = 2", "10% to 20%, 5 minus 3 equals 2"),
        ("24/7 on 9/11, 5/6, 8/10, 2 1/2 cups", "24 7 on 9 11, 5 sixths, 8 out of 10, 2 and one half cups"),
        (
            "5 m, 5 min, 10 MB/s, 3 m², x³, 1 ft",
            "5 meters, 5 minutes, 10 megabytes per second, 3 square meters, x cubed, 1 foot",
        ),
        ("He lives at 5 Elm Dr. near Mt. Hood.", "He lives at 5 Elm Drive near Mount Hood."),
        ("the Dr. said, The Dr. said", "the Doctor said, The Doctor said"),
        ("A Ph.D. w/o pay", "A P H D without pay"),
        ("on 2024-05-01T10:00:00Z", "on May 1st, 20 24 at 10 o'clock U T C"),
        ("World War II in Part I. Henry VIII", "World War 2 in Part 1. Henry the 8th"),
        ("~5 people, I am, It was, VISIT", "about 5 people, I am, It was, VISIT"),
    ],
)
def test_english_as_it_is_read(written: str, read: str) -> None:
    assert english(written) == read


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ("**Bold** and *italic* and `code`", "Bold and italic and code"),
        ("# Title\ntext", "Title.\ntext"),
        ("- one\n- two!\n* three", "one.\ntwo!\nthree."),
        ("[a link](https://x.org/a_b) and ![picture](p.png)", "a link and picture"),
        ("before\n```python\nprint()\n```\nafter", "before\n\nprint()\n\nafter"),
        ("<b>tag</b>", "tag"),
        ("2 * 3 * 4", "2 * 3 * 4"),
        ("snake_case stays", "snake_case stays"),
        ("Party 🎉! 👩‍👩‍👧 Yes ✅.", "Party! Yes."),
        ("zero\u200bwidth \u202eturned", "zero width turned"),
        ("a\r\nb\rc", "a\nb\nc"),
        ("20°C © 2024", "20°C © 2024"),
        ("🎉 👍🏽 🇩🇪", ""),
        ("---", ""),
    ],
)
def test_what_has_no_sound_is_left_out(written: str, read: str) -> None:
    assert clean(written) == read


def test_only_english_is_put_into_english_words() -> None:
    assert spoken("5 € & mehr", "de") == "5 € & mehr"
    assert spoken("**A** & B", "en-GB") == "A and B"


@pytest.mark.parametrize(
    "text", ["*" * 20000, "(" * 20000, "1," * 20000, "a." * 20000, "[" * 5000, "<a" * 20000, " \n" * 20000]
)
def test_no_text_takes_for_ever(text: str) -> None:
    english(clean(text))


@pytest.mark.parametrize(
    ("written", "said"),
    [("𝓗𝓮𝓵𝓵𝓸 Ｗｏｒｌｄ", "Hello World"), ("①②", "12"), ("ｶﾞｷﾞ", "ガギ"), ("x² ½ №", "x² ½ №"), ("e\u0301", "é")],
)
def test_letters_that_only_look_different(written: str, said: str) -> None:
    assert clean(written) == said


@pytest.mark.timeout(60)
@pytest.mark.parametrize("language", ["en-US", "fr"])
@pytest.mark.parametrize(
    "part",
    ["\n", " ", "[", "[a](", "<a", "1", "1.", "$1", "a.", "a-", "a. ", "a@", "- ", "`", "~~", "x x", "今", "\u0301"],
)
def test_no_text_holds_everything_up(part: str, language: str) -> None:
    """What grows with the square of the length takes minutes here, and nothing else is computed meanwhile."""
    text = spoken(part * (65_536 // len(part)), language)
    assert sum(len(piece.text) for piece in split(text, 0.5)) <= 20 * 65_536


@pytest.mark.parametrize("language", ["en-US", "zh", "fr"])
def test_a_number_that_is_longer_than_python_likes(language: str) -> None:
    assert spoken(f"It costs ${'1' * 5000}.", language)
