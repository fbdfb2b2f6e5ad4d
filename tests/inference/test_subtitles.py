from __future__ import annotations

from dataclasses import dataclass

from lemonade.inference.subtitles import srt, vtt


@dataclass
class Said:
    start: float
    end: float
    text: str


SAID = [Said(0, 1.5, " Hello."), Said(59.9996, 3723.0451, " <b>A & B</b> --> C\n")]


def test_srt() -> None:
    assert srt(SAID) == (
        "1\n00:00:00,000 --> 00:00:01,500\nHello.\n\n2\n00:01:00,000 --> 01:02:03,045\n<b>A & B</b> --> C\n\n"
    )
    assert srt([]) == ""


def test_vtt() -> None:
    assert vtt(SAID) == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nHello.\n\n"
        "00:01:00.000 --> 01:02:03.045\n&lt;b&gt;A &amp; B&lt;/b&gt; --&gt; C\n\n"
    )
    assert vtt([]) == "WEBVTT\n\n"
