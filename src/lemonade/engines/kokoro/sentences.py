"""A text in pieces that are spoken one after the other: whole sentences, so that each sounds right, and short enough
that the first can be heard while the next is computed.

Lengths are estimates of how many phonemes are spoken, for which a letter counts as one.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import accumulate
from unicodedata import category

#: What a piece has at most. Longer sentences are cut at a clause, or else between two words: the model takes 510
#: phonemes, and long before that it begins to hurry. Others who wait for a worker wait for a piece to end.
LONGEST = 200
#: What the first piece has at most when somebody listens: three seconds of sound, computed in about two.
FIRST = 60
#: What any further piece may have on top of its share in what is heard before it.
NEXT = 40
#: A sentence that is longer than it should be by this factor is left whole.
TOLERANCE = 1.25
#: Up to this a sentence takes the next one along, and no cut leaves less behind: very short ones, such as "No.", come
#: out clipped.
SHORT = 20

#: Seconds of silence behind a sentence, a paragraph, a clause, and a word in the middle of one.
AFTER_SENTENCE = 0.3
AFTER_PARAGRAPH = 0.6
AFTER_CLAUSE = 0.12
AFTER_WORD = 0.02

#: Letters that stand for several phonemes: digits and Chinese characters, syllables of Korean, kana.
_LENGTHS = (
    (re.compile(r"[\d\u3400-\u9fff\uf900-\ufaff々]"), 5),
    (re.compile(r"[\uac00-\ud7af]"), 3),
    (re.compile(r"[\u3040-\u30ff]"), 2),
)

_PARAGRAPH = re.compile(r"\n\s*\n|\r\n\s*\r\n")
#: An end of a sentence: a mark, what closes behind it, and then something new. The marks of Chinese and Japanese need
#: no space behind them.
_SENTENCE = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？｡।])["'”’」』）]*\s*""")
#: Where a sentence is cut, best first; the silence there; and the part of a piece that has to be full by then.
_CUTS = (
    (re.compile(r"(?<=[,;:!?…])\s+|(?<=\w{3}\.)\s+|(?<=[—–、，；：])\s*|\s+(?=[(—–])"), AFTER_CLAUSE, 0.4),
    # Before words that begin something new, and behind those of Chinese and Japanese that end something.
    (
        re.compile(
            r"(?<! and)(?<! but)\s+(?=(?:and|but|or|because|so|then|that|which|who|when|where|while|if)\s)"
            r"|(?=然后|但是|因为|所以|如果|而且|不过|可是|或者|我们|你们|他们)|(?<=[的了着吗吧呢はがをにでともて])"
        ),
        AFTER_WORD,
        0.6,
    ),
    (
        re.compile(
            r"\s+(?=(?:about|after|at|before|between|by|during|for|from|in|into|of|on|over|since|through|to|under|until|"
            r"with|without)\s)"
        ),
        AFTER_WORD,
        0.6,
    ),
    # Not behind what belongs to the next word.
    (re.compile(r"(?<!\b[Aa])(?<!\ban)(?<!\b[Tt]he)(?<!\bof)(?<!\bin)(?<!\bto)(?<!\bat)\s+"), AFTER_WORD, 0.0),
    (re.compile(r"\s+"), AFTER_WORD, 0.0),
)
#: Kana that have to stay with the one before them.
_SMALL = "ぁぃぅぇぉっゃゅょァィゥェォッャュョー"

#: What ends in a dot and is no end of a sentence, when a small letter or a digit follows or it is one letter only.
_INITIAL = re.compile(r"(?:^|[\s(])(?:[A-Z]|\w\.\w)\.$")


@dataclass(frozen=True, slots=True)
class Piece:
    """What is spoken in one go.

    Attributes:
        pause: seconds of silence behind it.
    """

    text: str
    pause: float


def split(text: str, growth: float | None = None) -> Iterator[Piece]:
    """The pieces of a text, in order.

    Args:
        growth: for somebody who listens while it is computed: how much longer a piece may be for all that is heard
            before it, as computing it takes that long. None when nobody hears anything before all is there.
    """
    before = 0
    for paragraph in _PARAGRAPH.split(text):
        sentences = list(_merged(_sentences(paragraph)))
        for number, rest in enumerate(sentences, 1):
            pause = AFTER_PARAGRAPH if number == len(sentences) else AFTER_SENTENCE
            while rest:
                part, rest, gap = cut(rest, _most(before, growth))
                before += length(part)
                yield Piece(part, gap if rest else pause)


def length(text: str) -> int:
    """About how many phonemes a text has."""
    return sum(map(_length, text))


def cut(text: str, most: int) -> tuple[str, str, float]:
    """The beginning of a text that may have up to `most`, what is left of it, and the silence between them."""
    # What is far behind the cut does not matter, and a text may be long.
    window = text[: 2 * most + SHORT]
    sums = list(accumulate(map(_length, window)))
    if len(window) == len(text) and sums[-1] <= most * TOLERANCE:
        return text, "", 0.0
    limit = bisect_right(sums, most)
    last = bisect_right(sums, sums[-1] - SHORT) if len(window) == len(text) else len(window)
    # Two halves rather than a whole piece and a crumb.
    half = bisect_right(sums, min(most, sums[-1] // 2))
    for pattern, gap, full in _CUTS:
        least = bisect_right(sums, most * full)
        places = [match for match in pattern.finditer(window) if max(least, 1) <= match.start() <= min(limit, last)]
        if full:
            places = places[-1:]
        if places:
            place = min(places, key=lambda match: abs(match.start() - half))
            if before := text[: place.start()].strip():
                return before, text[place.end() :].strip(), gap
    at = max(half, 1)
    while at < len(window) and (window[at] in _SMALL or category(window[at]).startswith("M")):
        at += 1
    return text[:at], text[at:], AFTER_WORD


def _most(before: int, growth: float | None) -> int:
    if growth is None:
        return LONGEST
    return min(LONGEST, NEXT + int(before * growth)) if before else FIRST


def _length(letter: str) -> int:
    if letter < "\u3040" and not letter.isdigit():
        return 1
    return next((phonemes for pattern, phonemes in _LENGTHS if pattern.match(letter)), 1)


def _sentences(text: str) -> Iterator[str]:
    begin = 0
    for match in _SENTENCE.finditer(text):
        end = match.start() + len(match[0].rstrip())
        follows = text[match.end() : match.end() + 1]
        if (follows.islower() and text[end - 1] == ".") or _INITIAL.search(text, max(begin - 1, end - 8, 0), end):
            continue
        if sentence := text[begin:end].strip():
            yield sentence
            begin = match.end()
    if rest := text[begin:].strip():
        yield rest


def _merged(sentences: Iterator[str]) -> Iterator[str]:
    held = ""
    for sentence in sentences:
        held = f"{held} {sentence}" if held else sentence
        if length(held) >= SHORT:
            yield held
            held = ""
    if held:
        yield held
