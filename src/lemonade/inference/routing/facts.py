"""What a router looks at in a request, whatever the format in which it came."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from lemonade.inference.chat import ChatRequest
from lemonade.inference.completion import CompletionRequest
from lemonade.inference.response import ResponsesRequest

_TEXTS = ("text", "input_text", "output_text")
_PICTURES = ("image_url", "input_image", "image")


@dataclass
class Facts:
    """One request.

    Attributes:
        text: what is asked now: a chat's last user message, a completion's prompt.
        metadata: the request's own, as far as they are strings.
        conversation: stays the same from turn to turn of a conversation; empty when there is nothing to tell it by.
    """

    text: str = ""
    has_tools: bool = False
    has_images: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    conversation: bytes = b""

    @cached_property
    def encoded(self) -> bytes:
        """The text in UTF-8."""
        return self.text.encode("utf-8", "replace")

    @cached_property
    def folded(self) -> bytes:
        """The same with small ASCII letters."""
        return self.encoded.lower()


def of_chat(request: ChatRequest) -> Facts:
    said = [(message.role, _text(message.content, lambda part: (part.type, part.text))) for message in request.messages]
    parts = (part for message in request.messages if isinstance(message.content, list) for part in message.content)
    return Facts(
        text=_last(said),
        has_tools=bool(request.tools),
        has_images=any(part.type in _PICTURES for part in parts),
        metadata=strings(request.metadata),
        conversation=_conversation(said),
    )


def of_completion(request: CompletionRequest) -> Facts:
    prompt = request.prompt
    texts = [prompt] if isinstance(prompt, str) else [item for item in prompt if isinstance(item, str)]
    text = "\n".join(texts)
    return Facts(text=text, metadata=strings(request.metadata), conversation=_conversation([("user", text)]))


def of_response(request: ResponsesRequest) -> Facts:
    said: list[tuple[str, str]] = []
    has_images = False
    if isinstance(request.instructions, str):
        said.append(("system", request.instructions))
    for item in [{"role": "user", "content": request.input}] if isinstance(request.input, str) else request.input:
        content = item.get("content")
        role = item.get("role")
        if isinstance(role, str):
            said.append((role, _text(content, _words)))
        parts = content if isinstance(content, list) else []
        has_images = has_images or any(isinstance(part, dict) and part.get("type") in _PICTURES for part in parts)
    return Facts(
        text=_last(said),
        has_tools=bool(request.tools),
        has_images=has_images,
        metadata=strings(request.metadata),
        conversation=_conversation(said),
    )


class AnthropicRequest(Protocol):
    """As much of a request in Anthropic's format as is looked at here."""

    messages: list[dict[str, Any]]
    system: Any
    tools: Any
    metadata: Any


def of_anthropic(request: AnthropicRequest) -> Facts:
    said: list[tuple[str, str]] = []
    has_images = False
    if text := _text(request.system, _words):
        said.append(("system", text))
    for message in request.messages:
        role, content = message.get("role"), message.get("content")
        blocks = content if isinstance(content, list) else []
        results = [block for block in blocks if isinstance(block, dict) and block.get("type") == "tool_result"]
        inner = [part for block in results if isinstance(block.get("content"), list) for part in block["content"]]
        pictures = (block for block in (*blocks, *inner) if isinstance(block, dict) and block.get("type") in _PICTURES)
        has_images = has_images or any(pictures)
        text = _text(content, _words)
        # What a tool gave comes under the user's name, and is not what the user asks.
        if isinstance(role, str) and not (results and not text):
            said.append((role, text))
    return Facts(
        text=_last(said),
        has_tools=bool(request.tools),
        has_images=has_images,
        metadata=strings(request.metadata),
        conversation=_conversation(said),
    )


def strings(metadata: Any) -> dict[str, str]:
    """Those of the metadata that are strings; others say nothing to a policy."""
    if not isinstance(metadata, Mapping):
        return {}
    return {key: value for key, value in metadata.items() if isinstance(value, str)}


def _words(part: Any) -> tuple[Any, Any]:
    return (part.get("type"), part.get("text")) if isinstance(part, dict) else (None, None)


def _text(content: Any, words: Any) -> str:
    """The text of a message's content: as it is, or its parts line by line."""
    if isinstance(content, str):
        return content
    parts: Iterable[Any] = content if isinstance(content, list) else ()
    return "\n".join(text for kind, text in map(words, parts) if kind in _TEXTS and isinstance(text, str))


def _last(said: list[tuple[str, str]]) -> str:
    return next((text for role, text in reversed(said) if role == "user"), "")


def _conversation(said: list[tuple[str, str]]) -> bytes:
    """A conversation is told by what it begins with: the first instructions and the first question."""
    first_user = next((text for role, text in said if role == "user"), "")
    if not first_user:
        return b""
    first_system = next((text for role, text in said if role in ("system", "developer")), "")
    return hashlib.blake2b(f"{first_system}\x1f{first_user}".encode("utf-8", "replace"), digest_size=8).digest()
