from __future__ import annotations

import pytest

from lemonade.engines.kokoro.dates import dates, ordinal


@pytest.mark.parametrize(
    ("written", "american", "british"),
    [
        ("2024-05-01", "May 1st, 2024", "1st of May, 2024"),
        ("due 2024/12/22.", "due December 22nd, 2024.", "due 22nd of December, 2024."),
        ("05/01/2024", "May 1st, 2024", "5th of January, 2024"),
        ("25/12/2024", "December 25th, 2024", "25th of December, 2024"),
        ("12/25/2024", "December 25th, 2024", "25th of December, 2024"),
        ("3.5.2024", "May 3rd, 2024", "3rd of May, 2024"),
        ("2024-05-01T09:30", "May 1st, 2024 at 09:30", "1st of May, 2024 at 09:30"),
    ],
)
def test_dates_are_said_as_where_the_voice_comes_from(written: str, american: str, british: str) -> None:
    assert (dates(written, "en-US"), dates(written, "en-GB")) == (american, british)


@pytest.mark.parametrize("text", ["2024-13-01", "32/32/2024", "1.2.3", "log-2024-05-01", "2024-05-01-log", "1/2/3024"])
def test_what_is_no_date_stays(text: str) -> None:
    assert dates(text, "en-US") == text


def test_ordinal_numbers() -> None:
    assert [ordinal(number) for number in (1, 2, 3, 4, 11, 12, 13, 21, 31)] == (
        ["1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "31st"]
    )
