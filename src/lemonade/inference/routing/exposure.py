"""The decision of a router in the answer that it led to."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from lemonade.inference.relay import InFront, Sink

FIELD = "x_lemonade_route"
HEADER = b"x-lemonade-route"

#: The beginning of an event with an object.
_EVENT = re.compile(rb"^data: ?\{", re.MULTILINE)


class Exposed(InFront):
    """Puts the decision into the answer, or into the first event of a stream.

    Nothing is decoded for it: the field goes in front of the others.
    """

    def __init__(self, sink: Sink, decision: dict[str, Any]) -> None:
        super().__init__(sink)
        self._field = msgspec.json.encode({FIELD: decision})[1:-1]
        self._told = False

    async def write(self, data: bytes) -> None:
        await self._sink.write(self._with(data))

    async def end(self, data: bytes = b"") -> None:
        await self._sink.end(self._with(data))

    async def reply(self, body: bytes) -> None:
        await self._sink.reply(self._after(body, body.find(b"{") + 1))

    def _with(self, data: bytes) -> bytes:
        if self._told or (event := _EVENT.search(data)) is None:
            return data
        self._told = True
        return self._after(data, event.end())

    def _after(self, data: bytes, at: int) -> bytes:
        is_empty = data[at:].lstrip().startswith(b"}")
        return data[:at] + self._field + (b"" if is_empty else b",") + data[at:]
