"""Transcripts as files of subtitles."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol


class Timed(Protocol):
    """Something that was said; times in seconds."""

    @property
    def start(self) -> float: ...
    @property
    def end(self) -> float: ...
    @property
    def text(self) -> str: ...


def srt(segments: Iterable[Timed]) -> str:
    """SubRip."""
    return "".join(
        f"{number}\n{_time(one.start, ',')} --> {_time(one.end, ',')}\n{one.text.strip()}\n\n"
        for number, one in enumerate(segments, 1)
    )


def vtt(segments: Iterable[Timed]) -> str:
    """WebVTT. An arrow in a text would end its cue."""
    cues = "".join(
        f"{_time(one.start, '.')} --> {_time(one.end, '.')}\n{_escaped(one.text.strip())}\n\n" for one in segments
    )
    return f"WEBVTT\n\n{cues}"


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _time(seconds: float, point: str) -> str:
    whole = round(seconds * 1000)
    minutes, milliseconds = divmod(whole, 60_000)
    hours, minutes = divmod(minutes, 60)
    return f"{hours:02}:{minutes:02}:{milliseconds // 1000:02}{point}{milliseconds % 1000:03}"
