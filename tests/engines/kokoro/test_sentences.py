from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.engines.kokoro.sentences import (
    AFTER_CLAUSE,
    AFTER_PARAGRAPH,
    AFTER_SENTENCE,
    AFTER_WORD,
    FIRST,
    LONGEST,
    NEXT,
    SHORT,
    TOLERANCE,
    cut,
    length,
    split,
)

WORDS = "nobody told this person where a sentence could end and so it goes on and on without rest or pause " * 5
CLAUSES = "however long the first of them may be, there are clauses, " * 8
CHINESE = "今天天气很好我们一起去公园散步然后再去吃饭看电影买东西回家休息睡觉明天还要上班" * 4
KANA = "わたしはきのうともだちといっしょにえいがをみてからレストランでゆうしょくをたべました" * 4
DIGITS = "31415926535" * 20


def texts(text: str, growth: float | None = None) -> list[str]:
    return [piece.text for piece in split(text, growth)]


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
    assert all(length(piece) <= LONGEST * TOLERANCE for piece in pieces)
    assert all(piece.endswith(",") for piece in pieces)


def test_one_long_word_is_cut_too() -> None:
    pieces = texts("a" * 5000)
    assert all(length(piece) <= LONGEST * TOLERANCE for piece in pieces)
    assert "".join(pieces) == "a" * 5000
    assert cut("a", 1) == ("a", "", 0.0)


@pytest.mark.parametrize("text", [WORDS, CLAUSES, CHINESE, KANA, DIGITS, "a" * 900, f"{WORDS}. A short one."])
@pytest.mark.parametrize("growth", [0.25, 0.5])
def test_a_listener_hears_something_soon_and_nothing_is_late(text: str, growth: float) -> None:
    """Whatever the text, the first piece is short, yet not so short that the next one could not be there in time."""
    lengths = [length(piece) for piece in texts(text, growth)]
    assert 0.4 * FIRST <= lengths[0] <= FIRST * TOLERANCE
    for at, more in enumerate(lengths[1:], 1):
        assert more <= (NEXT + growth * sum(lengths[:at])) * TOLERANCE
    # Longer pieces sound better.
    assert len(lengths) < sum(lengths) / NEXT
    assert max(lengths) > FIRST


def test_what_is_heard_when_it_is_whole_is_not_cut_small() -> None:
    assert len(texts(WORDS)) < len(texts(WORDS, 0.5))
    assert texts(WORDS[:200]) == [WORDS[:200].strip()]


@pytest.mark.parametrize(
    ("text", "head", "gap"),
    [
        (
            "The old museum by the river, which opened a hundred years ago, is closed.",
            "The old museum by the river,",
            AFTER_CLAUSE,
        ),
        ("It costs 1,000 dollars: too much for the whole city.", "It costs 1,000 dollars:", AFTER_CLAUSE),
        ("It has cost us about 1,000,000 dollars in one year.", "It has cost us about", AFTER_WORD),
        ("今天天气很好，我们一起去公园散步吧好不好我觉得这个主意不错", "今天天气很好，", AFTER_CLAUSE),
        (
            "The children laughed at the dog because it chased its own tail again.",
            "The children laughed at the dog",
            AFTER_WORD,
        ),
        (
            "The children laughed at the little dog chasing its own tail again.",
            "The children laughed at the little",
            AFTER_WORD,
        ),
        # Not "returned home after", as if that were all.
        (
            "The captain of the ship had come home after many months at sea.",
            "The captain of the ship had come home",
            AFTER_WORD,
        ),
        (
            "The yellow painted boats were there on the calm river bank.",
            "The yellow painted boats were there",
            AFTER_WORD,
        ),
        (
            "Some painted yellow boat carries the blueish flag painted bright yellow.",
            "Some painted yellow boat carries",
            AFTER_WORD,
        ),
        (
            "わたしはきのうともだちとえいがをみてからゆうしょくをたべてかえりました",
            "わたしはきのうともだちとえいがをみて",
            AFTER_WORD,
        ),
        ("It may be that this ends. what follows is written small.", "It may be that this ends.", AFTER_CLAUSE),
    ],
)
def test_where_a_sentence_is_cut(text: str, head: str, gap: float) -> None:
    found, rest, silence = cut(text, 40)
    assert (found, silence) == (head, gap)
    assert "".join((found + rest).split()) == "".join(text.split())
    assert length(rest) >= SHORT


@pytest.mark.parametrize("text", ["きゃ" * 200, "っか" * 200, "ก็" * 200, "e\u0301\u0301" * 200, "हिन्दी" * 100])
def test_letters_that_belong_together_stay_so(text: str) -> None:
    for piece in texts(text, 0.5)[1:]:
        assert piece[0] not in "ゃっ็\u0301िी्"


@given(st.text(alphabet=st.sampled_from("ab .,!?\n。，\"'今か1"), max_size=1000), st.sampled_from([None, 0.25, 0.5]))
def test_nothing_is_lost_and_nothing_is_too_long(text: str, growth: float | None) -> None:
    pieces = texts(text, growth)
    assert "".join("".join(pieces).split()) == "".join(text.split())
    assert all(length(piece) <= LONGEST * TOLERANCE for piece in pieces)
