"""What a response in OpenAI's format always holds, and llama.cpp leaves out: strict clients refuse it otherwise."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import UNSET

from lemonade.inference.response import ResponsesRequest
from lemonade.inference.response_events import complete_part

Tree = dict[str, Any]

#: Arguments that every response repeats.
_REPEATED = (
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "previous_response_id",
    "reasoning",
    "temperature",
    "top_logprobs",
    "top_p",
)


class ResponseFields:
    """The fields of the answers to one request; those that repeat the request are null when it says nothing."""

    def __init__(self, request: ResponsesRequest) -> None:
        def said(name: str) -> Any:
            value = getattr(request, name)
            return None if value is UNSET else value

        self._fields: Tree = {
            "created_at": int(time.time()),
            "output": [],
            "error": None,
            "incomplete_details": None,
            "metadata": said("metadata") or {},
            "background": False,
            "store": False,
            "truncation": "disabled",
            "parallel_tool_calls": said("parallel_tool_calls") is not False,
            "tool_choice": said("tool_choice") or "auto",
            "tools": [_tool(tool) for tool in said("tools") or []],
            "text": said("text") or {"format": {"type": "text"}},
            **{name: said(name) for name in _REPEATED},
        }

    def complete(self, response: Tree) -> None:
        """Adds what is missing to a response, whole or in an event, and says so when the limit has cut it off, which
        llama.cpp calls `completed`."""
        for name, value in self._fields.items():
            response.setdefault(name, value)
        usage = response.get("usage")
        if isinstance(usage, dict):
            _complete_usage(usage)
        items = [item for item in response["output"] if isinstance(item, dict)]
        for item in items:
            for part in item.get("content") or ():
                complete_part(part)
        limit = self._fields["max_output_tokens"]
        made = usage.get("output_tokens") if isinstance(usage, dict) else None
        if limit and isinstance(made, int) and made >= limit and response.get("status") == "completed":
            response["status"] = "incomplete"
            response["incomplete_details"] = {"reason": "max_output_tokens"}
            for item in items[-1:]:
                item["status"] = "incomplete"

    def completed(self, body: bytes) -> bytes:
        """The same for an encoded one."""
        response = msgspec.json.decode(body)
        self.complete(response)
        return msgspec.json.encode(response)


def _tool(tool: Tree) -> Tree:
    return {"parameters": None, "strict": False, **tool} if tool.get("type") == "function" else tool


def _complete_usage(usage: Tree) -> None:
    """The engine counts neither what it writes into its cache nor what it thinks, but the numbers must be there."""
    for name, counts in (
        ("input_tokens_details", ("cached_tokens", "cache_write_tokens")),
        ("output_tokens_details", ("reasoning_tokens",)),
    ):
        details = usage.get(name)
        usage[name] = {**dict.fromkeys(counts, 0), **(details if isinstance(details, dict) else {})}
