"""Pictures and sounds inside the text of an answer, which no terminal can show: they are kept in files."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator
from pathlib import Path

#: How a medium begins and ends in a text, and the name of its file.
_FORMS = (
    ("![generated image](data:image/png;base64,", ")", "picture", ".png"),
    ("<audio>data:audio/mpeg;base64,", "</audio>", "speech", ".mp3"),
    ("<audio>data:audio/wav;base64,", "</audio>", "speech", ".wav"),
)


def free_name(stem: str, suffix: str) -> Path:
    """A file of this folder that is not there yet: `STEM.mp3`, `STEM-2.mp3`, …"""
    path, number = Path(f"{stem}{suffix}"), 1
    while path.exists():
        number += 1
        path = Path(f"{stem}-{number}{suffix}")
    return path


class Media:
    """Takes an answer's text as it comes, and gives back what is to be read, and the files of what is not."""

    def __init__(self) -> None:
        self._held = ""
        self._inside: tuple[str, str, str, str] | None = None
        self._looked = 0

    def feed(self, text: str) -> Iterator[str | Path]:
        """Texts, and a path for each medium that is whole now.

        Raises:
            OSError: a file cannot be written.
        """
        self._held += text
        while True:
            if self._inside is None:
                found = min(((at, form) for form in _FORMS if (at := self._held.find(form[0])) >= 0), default=None)
                if found is None:
                    ready = len(self._held) - _begun(self._held)
                    if ready:
                        yield self._held[:ready]
                    self._held = self._held[ready:]
                    return
                at, self._inside = found
                if at:
                    yield self._held[:at]
                self._held, self._looked = self._held[at + len(self._inside[0]) :], 0
            head, tail, stem, suffix = self._inside
            end = self._held.find(tail, self._looked)
            if end < 0:
                # A medium comes in many pieces; what was looked through once has no tail in it.
                self._looked = max(0, len(self._held) - len(tail))
                return
            data, self._held = self._held[:end], self._held[end + len(tail) :]
            self._inside = None
            yield _saved(data, stem, suffix) or f"{head}{data}{tail}"

    def end(self) -> str:
        """What was held back, as it could have been the beginning of a medium."""
        held, self._held = self._held, ""
        if self._inside is None:
            return held
        self._inside = None
        return "(what was being made is cut off)"


def _begun(text: str) -> int:
    """Characters at the end of a text that may be the beginning of a medium."""
    longest = min(max(len(form[0]) for form in _FORMS) - 1, len(text))
    for length in range(longest, 0, -1):
        if any(form[0].startswith(text[-length:]) for form in _FORMS):
            return length
    return 0


def _saved(data: str, stem: str, suffix: str) -> Path | None:
    """None when this is no base64."""
    try:
        content = base64.b64decode(data, validate=True)
    except binascii.Error:
        return None
    path = free_name(stem, suffix)
    path.write_bytes(content)
    return path
