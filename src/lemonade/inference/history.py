"""The messages of a chat as chat templates take them, whichever program wrote them."""

from __future__ import annotations

from typing import Any

import msgspec

Tree = dict[str, Any]

#: What a chat template calls to refuse a conversation.
_REFUSAL = "raise_exception"


def is_odd(message: Any, position: int) -> bool:
    """Whether a message (with `role`, `content` and `tool_calls`) may have to be changed."""
    return (
        message.content is None
        or message.role == "developer"
        or (message.role == "system" and position > 0)
        or bool(message.tool_calls)
    )


def normal(messages: list[Tree], template: str | None) -> list[Tree]:
    """The same conversation in the words of templates.

    They know `system`, not `developer`; many fail on a missing content, or on a call without a type or with arguments
    that are no text. Those that refuse some conversations get one system message at the front.

    Args:
        template: the model's chat template, None when it is not known.
    """
    made = [_normal(message) for message in messages]
    if template is not None and _REFUSAL not in template:
        return made
    return _system_first(made)


def _normal(message: Tree) -> Tree:
    if message.get("role") == "developer":
        message["role"] = "system"
    calls = message.get("tool_calls")
    if isinstance(calls, list):
        message["tool_calls"] = [_call(call) for call in calls]
    if message.get("content") is None and not calls:
        message["content"] = ""
    return message


def _call(call: Any) -> Any:
    if not isinstance(call, dict):
        return call
    call.setdefault("type", "function")
    function = call.get("function")
    if isinstance(function, dict):
        function["arguments"] = _arguments(function.get("arguments"))
    return call


def _arguments(given: Any) -> str:
    """As JSON. What a model wrote that is none stays in the conversation as a text, so that it can go on."""
    if given is None or given == "":
        return "{}"
    if isinstance(given, str):
        try:
            msgspec.json.decode(given)
        except (msgspec.DecodeError, RecursionError):
            return msgspec.json.encode(given).decode()
        return given
    return msgspec.json.encode(given).decode()


def _system_first(messages: list[Tree]) -> list[Tree]:
    """All system messages as one at the front, if there are any that are not there already."""
    if not any(message.get("role") == "system" for message in messages[1:]):
        return messages
    system = [message for message in messages if message.get("role") == "system"]
    text = "\n\n".join(part for part in (_text(message.get("content")) for message in system) if part)
    rest = [message for message in messages if message.get("role") != "system"]
    return [{"role": "system", "content": text}, *rest]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return ""
