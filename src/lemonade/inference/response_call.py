"""A function that a response must call, by `tool_choice`: as in chats, its arguments are asked for as a JSON answer,
and the message that comes is told as the call that it is."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from lemonade.inference.forced_call import CallReader, ask_for_call
from lemonade.inference.response import ResponsesRequest, check_reply
from lemonade.system.metrics import Measurement

Tree = dict[str, Any]

_NOTHING_TOLD = ("response.content_part.added", "response.content_part.done")


def must_call(request: ResponsesRequest) -> list[str]:
    """The functions of which one has to be called; empty when none has to, or when a tool that is no function would
    do, too."""
    if isinstance(request.tool_choice, dict):
        return [str(request.tool_choice.get("name"))]
    tools = request.tools if isinstance(request.tools, list) else []
    if request.tool_choice == "required" and all(tool.get("type") == "function" for tool in tools):
        return [str(tool["name"]) for tool in tools]
    return []


class ForcedFunction:
    """Tells the message of one response as a call.

    Args:
        names: of the functions, one of which has to be called.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._name = names[0] if len(names) == 1 else None
        self._id = f"fc_{secrets.token_hex(12)}"
        self._call_id = f"call_{secrets.token_hex(12)}"
        self._reader = CallReader(self._name)
        #: The event that opens the call, until it can say which function it is.
        self._opening: Tree | None = None

    def force(self, body: Tree) -> None:
        """Makes the body for the engine ask for the call."""
        ask_for_call(body, [tool for tool in body["tools"] if tool.get("name") in self._names])

    def check(self, body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        """As `response.check_reply`."""
        checked, figures = check_reply(body, asked)
        tree = msgspec.json.decode(checked)
        return msgspec.json.encode({**tree, "output": [self._item(item) for item in tree["output"]]}), figures

    def retell(self, event: Tree) -> list[Tree]:
        """An event of the message as those of the call that have to be told now."""
        kind = event["type"]
        if kind in _NOTHING_TOLD:
            return []
        if kind == "response.output_text.delta":
            pieces = self._reader.feed(event["delta"])
            told = [
                self._arguments(event, {"type": "response.function_call_arguments.delta", "delta": piece})
                for piece in pieces
            ]
            return [*self._opened(), *told] if self._reader.is_open else []
        if kind == "response.output_text.done":
            name, arguments = self._read(event["text"])
            self._reader.end()
            done = {"type": "response.function_call_arguments.done", "name": name, "arguments": arguments}
            return [*self._opened(), self._arguments(event, done)]
        if isinstance(item := event.get("item"), dict):
            if kind == "response.output_item.added" and item.get("type") == "message" and not self._name:
                self._opening = event
                return []
            event["item"] = self._item(item)
        response = event.get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            response["output"] = [self._item(item) for item in response["output"]]
        return [event]

    def _opened(self) -> list[Tree]:
        """The event that was held back, now that the function is known."""
        event, self._opening = self._opening, None
        if event is None:
            return []
        event["item"] = {**self._item(event["item"]), "name": self._reader.name or ""}
        return [event]

    def _read(self, text: str) -> tuple[str, str]:
        """The function that a whole text calls, and the arguments."""
        reader = CallReader(self._name)
        arguments = "".join([*reader.feed(text), *reader.end()])
        return reader.name or "", arguments

    def _arguments(self, event: Tree, told: Tree) -> Tree:
        kept: Tree = {key: event[key] for key in ("output_index", "sequence_number") if key in event}
        return {**told, "item_id": self._id, **kept}

    def _item(self, item: Tree) -> Tree:
        if item.get("type") != "message":
            return item
        name, arguments = self._read("".join(part.get("text", "") for part in item.get("content") or []))
        return {
            "type": "function_call",
            "id": self._id,
            "call_id": self._call_id,
            "name": name,
            "arguments": arguments,
            "status": item.get("status", "completed"),
        }
