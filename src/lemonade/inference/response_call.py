"""A function that a response must call, by `tool_choice`: as in chats, its arguments are asked for as a JSON answer,
and the message that comes is told as the call that it is."""

from __future__ import annotations

import secrets
from typing import Any

import msgspec

from lemonade.inference.response import ResponsesRequest, check_reply
from lemonade.system.metrics import Measurement

Tree = dict[str, Any]

_NOTHING_TOLD = ("response.content_part.added", "response.content_part.done")


def must_call(request: ResponsesRequest) -> str | None:
    """The one function that has to be called, or None; a choice among several is the engine's."""
    if isinstance(request.tool_choice, dict):
        return str(request.tool_choice.get("name"))
    tools = request.tools if isinstance(request.tools, list) else []
    if request.tool_choice == "required" and len(tools) == 1 and tools[0].get("type") == "function":
        return str(tools[0]["name"])
    return None


class ForcedFunction:
    """Tells the message of one response as a call.

    Args:
        name: of the function.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._id = f"fc_{secrets.token_hex(12)}"
        self._call_id = f"call_{secrets.token_hex(12)}"

    def force(self, body: Tree) -> None:
        """Makes the body for the engine ask for the arguments."""
        tool = next(one for one in body["tools"] if one.get("name") == self._name)
        schema = tool.get("parameters") or {"type": "object", "properties": {}}
        body["tool_choice"] = "none"
        body["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}

    def check(self, body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        """As `response.check_reply`."""
        checked, figures = check_reply(body, asked)
        tree = msgspec.json.decode(checked)
        return msgspec.json.encode({**tree, "output": [self._item(item) for item in tree["output"]]}), figures

    def retell(self, event: Tree) -> Tree | None:
        """An event of the message as one of the call; None for one that has no counterpart."""
        kind = event["type"]
        if kind in _NOTHING_TOLD:
            return None
        if kind == "response.output_text.delta":
            return self._arguments(event, {"type": "response.function_call_arguments.delta", "delta": event["delta"]})
        if kind == "response.output_text.done":
            done = {"type": "response.function_call_arguments.done", "name": self._name, "arguments": event["text"]}
            return self._arguments(event, done)
        if isinstance(item := event.get("item"), dict):
            event["item"] = self._item(item)
        response = event.get("response")
        if isinstance(response, dict) and isinstance(response.get("output"), list):
            response["output"] = [self._item(item) for item in response["output"]]
        return event

    def _arguments(self, event: Tree, told: Tree) -> Tree:
        kept: Tree = {key: event[key] for key in ("output_index", "sequence_number") if key in event}
        return {**told, "item_id": self._id, **kept}

    def _item(self, item: Tree) -> Tree:
        if item.get("type") != "message":
            return item
        content = item.get("content") or []
        return {
            "type": "function_call",
            "id": self._id,
            "call_id": self._call_id,
            "name": self._name,
            "arguments": "".join(part.get("text", "") for part in content),
            "status": item.get("status", "completed"),
        }
