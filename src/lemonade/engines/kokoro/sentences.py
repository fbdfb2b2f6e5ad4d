"""A text in pieces that are spoken one after the other: whole sentences, so that each sounds right, and short enough
that the first can be heard while the next is computed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Characters that a piece has at most. Longer sentences are cut at a clause, or else between two words: the model
#: takes 510 phonemes, and long before that it begins to hurry.
LONGEST = 300
#: Characters up to which a sentence takes the next one along: very short ones, such as "No.", come out clipped.
SHORT = 20

#: Seconds of silence behind a sentence, a paragraph, and the piece of one that was cut.
AFTER_SENTENCE = 0.3
AFTER_PARAGRAPH = 0.6
AFTER_CLAUSE = 0.12

_PARAGRAPH = re.compile(r"\n\s*\n|\r\n\s*\r\n")
#: An end of a sentence: a mark, what closes behind it, and then something new. The marks of Chinese and Japanese need
#: no space behind them.
_SENTENCE = re.compile(r"""(?<=[.!?…])["'”’»)\]]*\s+|(?<=[。！？｡।])["'”’」』）]*\s*""")
_CLAUSE = re.compile(r"(?<=[,;:—–、，；：])\s*|\s+(?=[(—–])")
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


def split(text: str) -> Iterator[Piece]:
    """The pieces of a text, in order."""
    for paragraph in _PARAGRAPH.split(text):
        sentences = list(_merged(_sentences(paragraph)))
        for number, sentence in enumerate(sentences, 1):
            parts = list(_cut(sentence))
            for part in parts[:-1]:
                yield Piece(part, AFTER_CLAUSE)
            yield Piece(parts[-1], AFTER_PARAGRAPH if number == len(sentences) else AFTER_SENTENCE)


def halves(text: str) -> tuple[str, str] | None:
    """A piece that is still too long, in two: at a clause near its middle, or between words. None for one word."""
    for pattern in (_CLAUSE, re.compile(r"\s+")):
        cuts = [
            match for match in pattern.finditer(text) if text[: match.start()].strip() and text[match.end() :].strip()
        ]
        if cuts:
            cut = min(cuts, key=lambda match: abs(match.start() - len(text) // 2))
            return text[: cut.start()].strip(), text[cut.end() :].strip()
    if len(text) < 2:
        return None
    return text[: len(text) // 2], text[len(text) // 2 :]


def _sentences(text: str) -> Iterator[str]:
    begin = 0
    for match in _SENTENCE.finditer(text):
        sentence = text[begin : match.end()].strip()
        follows = text[match.end() : match.end() + 1]
        is_inside = _INITIAL.search(sentence) or (follows.islower() and sentence[-1:] == ".")
        if sentence and not is_inside:
            yield sentence
            begin = match.end()
    if rest := text[begin:].strip():
        yield rest


def _merged(sentences: Iterator[str]) -> Iterator[str]:
    held = ""
    for sentence in sentences:
        held = f"{held} {sentence}" if held else sentence
        if len(held) >= SHORT:
            yield held
            held = ""
    if held:
        yield held


def _cut(sentence: str) -> Iterator[str]:
    if len(sentence) <= LONGEST:
        yield sentence
        return
    two = halves(sentence)
    if two is None:
        yield sentence
        return
    for part in two:
        yield from _cut(part)
