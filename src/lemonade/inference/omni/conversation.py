"""The conversation as a planner reads it: media that were made in earlier turns become short notes."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from lemonade.inference.omni.tools import Tool

Tree = dict[str, Any]

_PROMPT_WITHOUT_TOOLS = "You are a helpful assistant."
_PROMPT = """You are a helpful assistant. Beside writing you can use these tools:

{tool_list}

{tool_guidance}
What a tool makes is shown to the user by itself, below your answer. So never write a link to it, or its data. After a \
tool is done, say in a sentence or two what you did. If no tool is needed, just answer."""

#: No character of a text can stand in two beginnings of a medium, so that none takes long to look through.
_PICTURE = re.compile(r"!\[[^\[\]]*\]\(\s*data:image/[\w.+-]+;base64,")
_SOUND = re.compile(r"<audio[^<>]*>\s*data:audio/")
_DATA_URL = re.compile(r"data:image/[\w.+-]+(?:;[\w.+-]+=[\w.+-]+)*;base64,([A-Za-z0-9+/=\s]+)\Z")


def system_prompt(template: str, tools: Iterable[Tool]) -> str:
    """The planner's instructions.

    Args:
        template: the collection's own, or `""`; `{tool_list}` and `{tool_guidance}` stand for what is offered.
    """
    tools = tuple(tools)
    listed = "\n".join(f"- {tool.name}: {tool.description}" for tool in tools)
    guidance = "\n".join(tool.guidance for tool in tools)
    template = template or (_PROMPT if tools else _PROMPT_WITHOUT_TOOLS)
    return template.replace("{tool_list}", listed).replace("{tool_guidance}", guidance)


def for_planner(messages: list[Tree], prompt: str, *, sees: bool, hears: bool) -> list[Tree]:
    """The messages with the prompt before the client's own system message, and notes instead of media.

    Args:
        sees, hears: the planner takes pictures, or sounds, of the user.
    """
    reader = _Reader(sees, hears)
    made = [{**message, "content": reader.content(message)} for message in messages]
    if made and made[0].get("role") in ("system", "developer"):
        own = _text(made[0]["content"])
        return [{"role": "system", "content": f"{prompt}\n\n{own}" if own else prompt}, *made[1:]]
    return [{"role": "system", "content": prompt}, *made]


class _Reader:
    def __init__(self, sees: bool, hears: bool) -> None:
        self._sees = sees
        self._hears = hears
        self._pictures = 0

    def content(self, message: Tree) -> Any:
        content = message.get("content")
        if isinstance(content, str):
            return _without_media(content)
        if isinstance(content, list):
            return [self._part(part, message.get("role") == "assistant") for part in content]
        return content

    def _part(self, part: Any, is_own: bool) -> Any:
        kind = part.get("type") if isinstance(part, dict) else None
        if kind == "text" and isinstance(part.get("text"), str):
            return {**part, "text": _without_media(part["text"])}
        if kind == "image_url":
            if is_own:
                return _note("[Generated image]")
            self._pictures += 1
            return part if self._sees else _note(f"[User provided image #{self._pictures}]")
        if kind == "input_audio" and not self._hears:
            return _note("[User provided audio file]")
        return part


def _without_media(text: str) -> str:
    return _noted(_noted(text, _PICTURE, ")", "[generated image]"), _SOUND, "</audio>", "[generated audio]")


def _noted(text: str, head: re.Pattern[str], tail: str, note: str) -> str:
    kept, at = [], 0
    for medium in _media(text, head, tail):
        kept += [text[at : medium.start], note]
        at = medium.end + len(tail)
    return "".join((*kept, text[at:]))


class _Medium(NamedTuple):
    """Where a medium is in a text: its head, its data, and its tail."""

    start: int
    data: int
    end: int


def _media(text: str, head: re.Pattern[str], tail: str) -> Iterator[_Medium]:
    """The data itself, which may be many megabytes, is not looked at."""
    at = 0
    while (match := head.search(text, at)) and (end := text.find(tail, match.end())) >= 0:
        yield _Medium(match.start(), match.end(), end)
        at = end + len(tail)


def _note(text: str) -> Tree:
    return {"type": "text", "text": text}


def newest_picture(messages: list[Tree]) -> bytes | None:
    """The file of the newest picture of a conversation, made by the assistant or shown by the user."""
    for message in reversed(messages):
        content = message.get("content")
        for part in reversed(content if isinstance(content, list) else [content]):
            for data in reversed(_pictures(part)):
                try:
                    return base64.b64decode(data)
                except binascii.Error:
                    continue
    return None


def _pictures(part: Any) -> list[str]:
    """The base64 of the pictures in a text or a part of a content."""
    text = part.get("text") if isinstance(part, dict) else part
    if isinstance(text, str):
        return [text[medium.data : medium.end] for medium in _media(text, _PICTURE, ")")]
    if not isinstance(part, dict):
        return []
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else image
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    return [match[1]] if match else []


def _text(content: Any) -> str:
    if isinstance(content, list):
        return "\n".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""
