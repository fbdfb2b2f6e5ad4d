"""A body that grows beyond the limit without having said so."""

from __future__ import annotations

import tracemalloc
from typing import Any

import pytest

from lemonade.api import exchange as module
from lemonade.api.exchange import ClientLeft, Exchange
from lemonade.errors import BodyTooLarge


def reading(*messages: dict[str, Any]) -> Exchange:
    """A request whose body comes in these messages."""
    left = list(messages)

    async def receive() -> dict[str, Any]:
        return left.pop(0)

    async def send(message: Any) -> None:
        raise AssertionError("nothing is to be said")

    unused: Any = None
    return Exchange({"headers": []}, receive, send, endpoint=unused, services=unused, headers=[])


def piece(data: bytes, *, more: bool = True) -> dict[str, Any]:
    return {"type": "http.request", "body": data, "more_body": more}


async def test_the_first_byte_too_many_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_BODY", 10)
    assert await reading(piece(b"12345"), piece(b"67890", more=False)).read_body() == b"1234567890"
    with pytest.raises(BodyTooLarge):
        await reading(piece(b"12345"), piece(b"67890x"), piece(b"never read")).read_body()


async def test_a_body_in_pieces_is_held_once() -> None:
    size, pieces = 1 << 20, 32

    async def receive() -> dict[str, Any]:
        nonlocal pieces
        pieces -= 1
        return piece(bytes(size), more=pieces > 0)

    unused: Any = None
    one = Exchange({"headers": []}, receive, unused, endpoint=unused, services=unused, headers=[])
    tracemalloc.start()
    try:
        body = await one.read_body()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(body) == 32 * size
    assert peak < 1.5 * len(body)


async def test_a_body_that_will_never_be_complete() -> None:
    with pytest.raises(ClientLeft):
        await reading(piece(b"12345"), {"type": "http.disconnect"}).read_body()
