"""What a response in OpenAI's format always holds, and llama.cpp leaves out: strict clients refuse it otherwise."""

from __future__ import annotations

import time
from typing import Any

import msgspec
from msgspec import UNSET

from lemonade.inference.response import ResponsesRequest

Tree = dict[str, Any]


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
            "parallel_tool_calls": True,
            "tool_choice": said("tool_choice") or "auto",
            "tools": said("tools") or [],
            **{name: said(name) for name in ("instructions", "max_output_tokens", "temperature", "text", "top_p")},
        }

    def complete(self, response: Tree) -> None:
        """Adds what is missing to a response, whole or in an event, and says so when the limit has cut it off, which
        llama.cpp calls `completed`."""
        for name, value in self._fields.items():
            response.setdefault(name, value)
        limit, usage = self._fields["max_output_tokens"], response.get("usage")
        made = usage.get("output_tokens") if isinstance(usage, dict) else None
        if limit and isinstance(made, int) and made >= limit and response.get("status") == "completed":
            response["status"] = "incomplete"
            response["incomplete_details"] = {"reason": "max_output_tokens"}

    def completed(self, body: bytes) -> bytes:
        """The same for an encoded one."""
        response = msgspec.json.decode(body)
        self.complete(response)
        return msgspec.json.encode(response)
