"""The events of a response, with the numbers and fields that llama.cpp leaves out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from lemonade.inference.choices import payloads
from lemonade.inference.relay import DONE, PING, InFront, Sink

Tree = dict[str, Any]


class ResponseEvents(InFront):
    """Gives events the numbers that OpenAI's clients go by, where the engine leaves them
    out, and the model's name.

    Args:
        retell: the events that are told in an event's place.
        complete: adds to a response what the engine leaves out.
    """

    def __init__(
        self,
        sink: Sink,
        asked: str,
        retell: Callable[[Tree], list[Tree]] = lambda event: [event],
        complete: Callable[[Tree], None] = lambda response: None,
    ) -> None:
        super().__init__(sink)
        self._asked = asked
        self._retell = retell
        self._complete_response = complete
        self._sequence = 0
        self._items: dict[str, int] = {}
        #: The end of an item, until the next event tells whether the whole answer ended or was cut off there.
        self._ended: list[Tree] = []

    async def write(self, data: bytes) -> None:
        if data := PING if data == PING else self._numbered(data):
            await self._sink.write(data)

    async def end(self, data: bytes = b"") -> None:
        closing = DONE if data.endswith(DONE) else b""
        await self._sink.end(self._numbered(data) + self._rest() + closing)

    def _numbered(self, data: bytes) -> bytes:
        made = []
        for payload in payloads(data):
            try:
                event = msgspec.json.decode(payload)
            except msgspec.DecodeError:
                event = None
            if not isinstance(event, dict) or "type" not in event:
                made += [self._rest(), b"data: " + payload + b"\n\n"]
                continue
            made += [self._told(told) for told in self._retell(event)]
        return b"".join(made)

    def _told(self, event: Tree) -> bytes:
        if isinstance(response := event.get("response"), dict):
            response["model"] = self._asked
            self._complete_response(response)
            if response.get("status") == "incomplete":
                for ended in self._ended:
                    ended["item"]["status"] = "incomplete"
        before = self._rest()
        if event["type"] == "response.output_item.done" and isinstance(event.get("item"), dict):
            self._ended = [event]
            return before
        return before + self._encoded(event)

    def _rest(self) -> bytes:
        ended, self._ended = self._ended, []
        return b"".join(map(self._encoded, ended))

    def _encoded(self, event: Tree) -> bytes:
        self._complete(event)
        return b"event: %s\ndata: %s\n\n" % (str(event["type"]).encode(), msgspec.json.encode(event))

    def _complete(self, event: Tree) -> None:
        kind = str(event["type"])
        event.setdefault("sequence_number", self._sequence)
        self._sequence = event["sequence_number"] + 1 if isinstance(event["sequence_number"], int) else self._sequence
        if isinstance(response := event.get("response"), dict):
            if kind == "response.completed" and response.get("status") == "incomplete":
                event["type"] = "response.incomplete"
            return
        item = event.get("item")
        key = event.get("item_id") or (item.get("id") if isinstance(item, dict) else None)
        if not isinstance(key, str):
            return
        at = self._items.setdefault(key, len(self._items))
        event.setdefault("output_index", at)
        if ".output_text." in kind or ".content_part." in kind or ".reasoning_text." in kind:
            event.setdefault("content_index", 0)
        if ".output_text." in kind:
            event.setdefault("logprobs", [])
        if ".content_part." in kind:
            complete_part(event.get("part"))


def complete_part(part: Any) -> None:
    """Adds what strict clients want in every text."""
    if isinstance(part, dict) and part.get("type") == "output_text":
        part.setdefault("annotations", [])
        part.setdefault("logprobs", [])
