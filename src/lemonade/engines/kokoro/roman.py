"""Roman numerals as English reads them. espeak-ng would say "roman" before each of them."""

from __future__ import annotations

import re

from lemonade.engines.kokoro.dates import ordinal

_ONES = ("", "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX")
#: Names that kings, queens and popes were given again: theirs are ordinal numbers.
_RULERS = (
    "Albert|Alexander|Alfonso|Benedict|Catherine|Charles|Christian|Clement|Constantine|Edward|Elizabeth|Ferdinand|"
    "Francis|Frederick|George|Gregory|Gustav|Harald|Henry|Innocent|Ivan|James|John|Joseph|Juan|Julius|Leo|Leopold|"
    "Louis|Ludwig|Mary|Napoleon|Nicholas|Otto|Paul|Peter|Philip|Pius|Ptolemy|Ramses|Richard|Umberto|Urban|Victor|"
    "Wilhelm|William"
)
#: What is numbered: behind these a single letter is a number as well.
_PARTS = "Act|Appendix|Article|Book|Chapter|Part|Phase|Scene|Section|Stage|Type|Volume|War"
_NUMERAL = re.compile(
    rf"\b(?:(?P<ruler>{_RULERS})\s|(?P<part>{_PARTS})\s)?"
    r"(?P<numeral>(?=[IVX]+\b)(?P<tens>X{0,3})(?P<ones>IX|IV|V?I{0,3}))(?!\w)"
)
#: What follows a numeral I; before all else it is the word.
_FOLLOWS = re.compile(r"\s*(?:$|[.,:;!?)\n])|\s(?:of|and|was)\b")


def numerals(text: str) -> str:
    """The text with its Roman numerals, up to 39, in digits: "World War 2", "Henry the 8th"."""
    return _NUMERAL.sub(_said, text)


def _said(match: re.Match[str]) -> str:
    numeral, ruler, part = match["numeral"], match["ruler"], match["part"]
    if (len(numeral) == 1 and not (ruler or part)) or (
        numeral == "I" and not _FOLLOWS.match(match.string, match.end())
    ):
        return match[0]
    if numeral == "IV" and match.string[: match.start()].endswith("an "):
        # The drip.
        return "I V"
    number = 10 * len(match["tens"]) + _ONES.index(match["ones"])
    if ruler:
        return f"{ruler} the {ordinal(number)}"
    return f"{part} {number}" if part else str(number)
