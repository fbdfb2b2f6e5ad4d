"""Dates in digits as English reads them."""

from __future__ import annotations

import re

_MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip

#: Year first, as ISO 8601 has it, perhaps with the time of the day.
_ISO = re.compile(
    r"(?<![\w/.-])(?P<year>[12]\d{3})(?P<mark>[-/.])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})"
    r"(?:T(?P<time>\d\d:\d\d(?::\d\d)?)(?:\.\d{1,9})?(?P<zulu>Z?))?(?![\w/-]|\.\d)"
)
#: Year last. With dots it is the day that stands first, with slashes in America the month.
_OTHER = re.compile(
    r"(?<![\w/.-])(?P<first>\d{1,2})(?P<mark>[-/.])(?P<second>\d{1,2})(?P=mark)(?P<year>[12]\d{3})(?![\w/-]|\.\d)"
)


def dates(text: str, language: str) -> str:
    """The text with its dates in words and ordinal numbers; years stay in digits.

    Args:
        language: BCP 47: whether day or month stand first, as they are written and as they are said.
    """
    american = language == "en-US"

    def iso(match: re.Match[str]) -> str:
        said = _said(int(match["day"]), int(match["month"]), match["year"], american)
        if said is None:
            return match[0]
        at = f" at {match['time']}" if match["time"] else ""
        return f"{said}{at}{' U T C' if match['zulu'] else ''}"

    def other(match: re.Match[str]) -> str:
        first, second = int(match["first"]), int(match["second"])
        orders = [(first, second), (second, first)]
        if american and match["mark"] != ".":
            orders.reverse()
        found = (_said(day, month, match["year"], american) for day, month in orders)
        return next((said for said in found if said), match[0])

    return _OTHER.sub(other, _ISO.sub(iso, text))


def ordinal(number: int) -> str:
    """1st, 2nd, 3rd, …"""
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th") if number // 10 % 10 != 1 else "th"
    return f"{number}{ending}"


def _said(day: int, month: int, year: str, american: bool) -> str | None:
    """None where there is no such day."""
    if not (1 <= month <= 12 and 1 <= day <= 31):
        return None
    name = _MONTHS[month - 1]
    return f"{name} {ordinal(day)}, {year}" if american else f"{ordinal(day)} of {name}, {year}"
