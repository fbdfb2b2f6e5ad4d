"""Whole events out of pieces."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lemonade.inference import events
from lemonade.inference.events import Assembler, boundary


@pytest.mark.parametrize(
    ("data", "length"),
    [
        (b"", 0),
        (b"data: x", 0),
        (b"a\n\nb", 3),
        (b"a\r\n\r\nb", 5),
        (b"a\r\rb", 3),
        (b"a\n\nb\r\n\r\n", 8),
        (b"a\n\n\n", 4),
    ],
)
def test_boundary(data: bytes, length: int) -> None:
    assert boundary(data) == length


@given(st.lists(st.sampled_from([b"data: 1", b"\n", b"\r", b"\r\n", b"\n\n", b"x"]), max_size=12), st.data())
def test_however_it_is_cut_what_comes_out_are_whole_events_and_the_rest(
    parts: list[bytes], draw: st.DataObject
) -> None:
    whole = b"".join(parts)
    assembler = Assembler()
    came, at = b"", 0
    while at < len(whole):
        size = draw.draw(st.integers(1, len(whole) - at))
        came += assembler.feed(whole[at : at + size])
        at += size
    assert came + assembler.rest == whole
    assert boundary(came) == len(came)
    assert boundary(assembler.rest) == 0
    assert len(assembler) == len(assembler.rest)


def test_a_large_event_is_looked_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = 0

    def counting(data: bytes | bytearray, start: int = 0) -> int:
        nonlocal looked
        looked += len(data) - start
        return boundary(data, start)

    monkeypatch.setattr(events, "boundary", counting)
    assembler = Assembler()
    pieces = [b"data: ", *[b"x" * 1000] * 500, b"\n", b"\n"]
    assert [assembler.feed(piece) for piece in pieces] == [b""] * 502 + [b"".join(pieces)]
    assert looked < 1.01 * sum(map(len, pieces))
