"""Whole server-sent events, out of the pieces in which they arrive."""

from __future__ import annotations


class Assembler:
    """Gives events on as soon as they are whole, and keeps what has come of the next one.

    A picture is one event in hundreds of pieces: what was looked through for its end is not looked through again.
    """

    def __init__(self) -> None:
        self._held = bytearray()

    def __len__(self) -> int:
        """Bytes of the event that is not whole yet."""
        return len(self._held)

    @property
    def rest(self) -> bytes:
        """The event that is not whole yet, as far as it has come."""
        return bytes(self._held)

    def feed(self, piece: bytes) -> bytes:
        """The events that are whole with this piece; empty when there are none."""
        held = self._held
        if not held and piece.endswith(b"\n\n"):
            return piece
        # The end of an event may be cut by two bytes.
        looked = max(0, len(held) - 2)
        held += piece
        cut = boundary(held, looked)
        whole = bytes(held[:cut])
        del held[:cut]
        return whole


def boundary(data: bytes | bytearray, start: int = 0) -> int:
    """The length of the whole events at the beginning of `data`; line ends are LF, CRLF or CR.

    Args:
        start: where the last of them may end.
    """
    ends = (
        (data.rfind(b"\n\n", start), 2),
        (data.rfind(b"\n\r\n", start), 3),
        (data.rfind(b"\r\r", start), 2),
    )
    return max(at + length if at >= 0 else 0 for at, length in ends)
