from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.engines.kokoro.sentences import (
    AFTER_CLAUSE,
    AFTER_PARAGRAPH,
    AFTER_SENTENCE,
    LONGEST,
    halves,
    split,
)


def texts(text: str) -> list[str]:
    return [piece.text for piece in split(text)]


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        (
            "This is the first sentence. And here is the second one! Is this the third?",
            ["This is the first sentence.", "And here is the second one!", "Is this the third?"],
        ),
        ('He said "this is enough." Then he went home.', ['He said "this is enough."', "Then he went home."]),
        ("Mr. J. R. R. Tolkien wrote it long ago.", ["Mr. J. R. R. Tolkien wrote it long ago."]),
        ("It costs about 3.50 dollars per piece.", ["It costs about 3.50 dollars per piece."]),
        ("The word etc. is no end when small letters follow.", ["The word etc. is no end when small letters follow."]),
        ("No. Yes. Maybe. But only after you have eaten.", ["No. Yes. Maybe. But only after you have eaten."]),
        ("A line that is\nwrapped by hand, as in mails.", ["A line that is\nwrapped by hand, as in mails."]),
        ("今天天气很好，我们一起去公园散步吧好不好？我觉得这个主意真的非常不错，走吧。", None),
        ("", []),
        (" \n\n ", []),
    ],
)
def test_sentences(text: str, pieces: list[str] | None) -> None:
    found = texts(text)
    if pieces is None:
        assert len(found) == 2
        assert "".join(found) == text
    else:
        assert found == pieces


def test_the_silence_behind_a_piece() -> None:
    long = "one clause of many, " * 30
    pieces = list(split(f"A first sentence is here. A second sentence is here.\n\n{long}and an end."))
    assert [piece.pause for piece in pieces[:2]] == [AFTER_SENTENCE, AFTER_PARAGRAPH]
    assert {piece.pause for piece in pieces[2:-1]} == {AFTER_CLAUSE}
    assert pieces[-1].pause == AFTER_PARAGRAPH


def test_long_sentences_are_cut_at_clauses() -> None:
    pieces = texts("this is a clause, " * 60)
    assert all(len(piece) <= LONGEST for piece in pieces)
    assert all(piece.endswith(",") for piece in pieces)


def test_one_long_word_is_cut_too() -> None:
    pieces = texts("a" * 5000)
    assert all(len(piece) <= LONGEST for piece in pieces)
    assert "".join(pieces) == "a" * 5000
    assert halves("a") is None


@given(st.text(alphabet=st.sampled_from("ab .,!?\n。，\"')"), max_size=1000))
def test_nothing_is_lost_and_nothing_is_too_long(text: str) -> None:
    pieces = texts(text)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(len(piece) <= LONGEST + 1 for piece in pieces)
