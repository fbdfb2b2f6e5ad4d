"""A window over the header of a GGUF file that moves forward only, and how it passes over what nobody needs."""

from __future__ import annotations

import functools
import os
import re
import struct
from typing import Any, BinaryIO, NoReturn

#: Strings passed over in all arrays together: the largest real vocabularies have 262,144 tokens and twice the merges.
MAX_STRINGS = 2_000_000
#: Bytes read in all; the largest real headers have some 30 MiB.
MAX_HEADER = 256 << 20

#: Bytes read at once, at first and after something was passed over, and when much is read in a row.
_FIRST_CHUNK = 1 << 14
_CHUNK = 1 << 20
#: Strings of an array that are passed over at once, if none has more bytes than the other number says.
_RUN, _SHORT = 64, 127

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")
PAIR = struct.Struct("<QQ")


class InvalidGGUF(ValueError):
    """The file is no GGUF file, is cut off inside its header, or says something that no real file says."""


class Window:
    """The bytes of a file from some place on.

    Args:
        name: of the file, for messages.
    """

    def __init__(self, file: BinaryIO, name: str) -> None:
        self._file = file
        self._name = name
        self._size = os.fstat(file.fileno()).st_size
        self._buffer = b""
        self._at = 0
        self._chunk = _FIRST_CHUNK
        self._strings = 0
        self._read = 0

    def refuse(self, reason: str) -> NoReturn:
        said = "".join(char if char.isprintable() else "?" for char in reason)
        raise InvalidGGUF(f"{self._name} is not a usable GGUF file: {said}")

    def take(self, size: int) -> bytes:
        if size > len(self._buffer) - self._at:
            self._refill(size)
        start, self._at = self._at, self._at + size
        return self._buffer[start : self._at]

    def number(self, form: struct.Struct) -> Any:
        return form.unpack(self.take(form.size))[0]

    def text(self, limit: int) -> str | None:
        """A string, or None if it is longer than `limit` bytes and was passed over."""
        size = self.number(U64)
        if size > limit:
            self.skip(size)
            return None
        return self.take(size).decode("utf-8", "replace")

    def skip(self, size: int) -> None:
        left = len(self._buffer) - self._at
        if size <= left:
            self._at += size
            return
        # Seeking past the end would succeed, or fail as the system likes.
        if self._file.tell() + size - left > self._size:
            self.refuse("it ends inside its header")
        self._file.seek(size - left, os.SEEK_CUR)
        self._buffer, self._at, self._chunk = b"", 0, _FIRST_CHUNK

    def skip_strings(self, count: int) -> None:
        self._strings += count
        if self._strings > MAX_STRINGS:
            self.refuse("it holds more strings than any vocabulary has")
        # Most of the time that a header takes goes by here. The expression passes over a run of short strings in a
        # quarter of the time that the loop takes, which does what it cannot: long strings, and the window's edge.
        unpack, short = U64.unpack_from, _short_strings().match
        while count:
            buffer, at = self._buffer, self._at
            while count >= _RUN and (run := short(buffer, at)):
                at = run.end()
                count -= _RUN
            last, rest = len(buffer) - 8, min(count, _RUN)
            while rest and at <= last:
                after = at + 8 + unpack(buffer, at)[0]
                if after > last + 8:
                    break
                at = after
                count -= 1
                rest -= 1
            self._at = at
            if rest:
                self.skip(self.number(U64))
                count -= 1

    def _refill(self, size: int) -> None:
        parts = [self._buffer[self._at :]]
        missing = size - len(parts[0])
        wanted = max(missing, self._chunk)
        self._chunk = min(4 * self._chunk, _CHUNK)
        while missing > 0:
            part = self._file.read(wanted)
            if not part:
                self.refuse("it ends inside its header")
            parts.append(part)
            missing -= len(part)
            self._read += len(part)
        if self._read > MAX_HEADER:
            self.refuse("its header is larger than any real one")
        self._buffer, self._at = b"".join(parts), 0


@functools.cache
def _short_strings() -> re.Pattern[bytes]:
    """A run of short strings as they lie in an array, each behind its length; nothing is tried twice."""
    strings = b"|".join(re.escape(bytes([size])) + rb"\0{7}.{%d}" % size for size in range(_SHORT + 1))
    return re.compile(rb"(?s:(?>%s){%d}+)" % (strings, _RUN))
