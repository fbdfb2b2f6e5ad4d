"""A collection's answer as a chat completion, whole or as a stream."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from lemonade.errors import LemonadeError
from lemonade.inference.omni.loop import Loop
from lemonade.inference.relay import DONE, Heartbeat, Sink

Tree = dict[str, Any]

#: Characters of one delta. Source: the specification's server-side tools.
MAX_DELTA = 16_000

_numbers = itertools.count(1)


def whole(loop: Loop, asked: str) -> Tree:
    """The planner's last answer with the media in its content, under the collection's name."""
    reply = {**loop.reply, "model": asked}
    choice = dict(reply["choices"][0])
    message = {**choice["message"], "role": "assistant"}
    message["content"] = "\n\n".join(part for part in (loop.text, *loop.media) if part) or None
    message.pop("tool_calls", None)
    if loop.calls:
        message["tool_calls"] = loop.calls
    elif message["content"] is None:
        message["content"] = ""
    choice |= {"index": 0, "message": message, "finish_reason": finish_reason(loop)}
    return {**reply, "choices": [choice]}


def finish_reason(loop: Loop) -> str:
    if loop.calls:
        return "tool_calls"
    # A planner whose tools were done, and that was not asked again, has not been cut short.
    return "length" if loop.reply["choices"][0].get("finish_reason") == "length" else "stop"


class Stream:
    """Events of `chat.completion.chunk`, written as the loop goes on.

    Args:
        heart: writes comments into the same sink while nothing else is written.
    """

    def __init__(self, sink: Sink, asked: str, heart: Heartbeat | None = None) -> None:
        self._heart = heart
        self._begun = False
        self._sink = sink
        self._asked = asked
        self._created = int(time.time())
        self._id = f"chatcmpl-omni-{self._created}-{next(_numbers)}"

    async def begin(self) -> None:
        self._begun = True
        await self._delta({"role": "assistant", "content": ""})

    async def show(self, media: str) -> None:
        """A picture or a sound, the moment it is there."""
        await self._say(f"\n\n{media}\n\n")

    async def finish(self, loop: Loop, *, usage: bool) -> None:
        """What the planner says at the end.

        Args:
            usage: the client wants a last chunk with the token counts.
        """
        if thought := loop.reply["choices"][0]["message"].get("reasoning_content"):
            await self._delta({"reasoning_content": thought})
        await self._say(loop.text)
        for number, call in enumerate(loop.calls):
            await self._delta({"tool_calls": [{"index": number, **call}]})
        await self._end(finish_reason(loop), loop.reply if usage else None)

    async def fail(self, error: LemonadeError) -> None:
        """A failure after the first event: it is told as the answer's text."""
        if not self._begun:
            await self.begin()
        await self._say(f"Error: {error.message}")
        await self._end("stop", None)

    async def _say(self, text: str) -> None:
        for piece in pieces(text):
            await self._delta({"content": piece})

    async def _delta(self, delta: Tree, finish: str | None = None) -> None:
        await self._event({"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})

    async def _event(self, fields: Tree) -> None:
        if self._heart is not None:
            await self._heart.settle()
            self._heart.reset()
        if not self._sink.started:
            await self._sink.start()
        chunk = {"id": self._id, "object": "chat.completion.chunk", "created": self._created, "model": self._asked}
        await self._sink.write(b"data: " + msgspec.json.encode(chunk | fields) + b"\n\n")

    async def _end(self, finish: str, reply: Tree | None) -> None:
        await self._delta({}, finish)
        if reply is not None:
            kept: Tree = {key: reply[key] for key in ("usage", "timings", "system_fingerprint") if key in reply}
            await self._event({"choices": [], **kept})
        await self._sink.end(DONE)


def pieces(text: str) -> Iterator[str]:
    """A text in pieces that fit into a delta."""
    for at in range(0, len(text), MAX_DELTA):
        yield text[at : at + MAX_DELTA]
