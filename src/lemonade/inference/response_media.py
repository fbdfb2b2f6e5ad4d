"""Pictures and sounds in the items of a response's input: looked at in the same way as those of a chat."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from lemonade.errors import InvalidArgument
from lemonade.inference.media import Part, examine, put_in
from lemonade.model import Model

Tree = dict[str, Any]


@dataclass(frozen=True, slots=True)
class _Message:
    content: list[Part]


async def look_at(items: list[Tree], model: Model, *, size: int, allow_remote: bool) -> None:
    """Checks every picture and sound, and puts remote pictures in.

    Args:
        items: `input`; changed where a picture is fetched.
        size: of the request in bytes.

    Raises:
        InvalidArgument: naming the part that the model cannot take, or that nobody should.
    """
    chat = [[_as_chat(part, f"input[{i}]", j) for j, part in enumerate(_parts(item))] for i, item in enumerate(items)]
    if not any(part["type"] != "text" for content in chat for part in content):
        return
    try:
        messages = [_Message(msgspec.convert(content, list[Part])) for content in _raw(chat)]
        found = await examine(messages, model, size=size, allow_remote=allow_remote)
        if not found.remote:
            return
        body = msgspec.json.encode({"messages": [{"content": content} for content in chat]})
        filled = msgspec.json.decode(await put_in(body, found))
    except InvalidArgument as error:
        # It speaks of a chat.
        param = (error.param or "input").replace("messages[", "input[", 1)
        raise InvalidArgument(error.message.replace("messages[", "input[", 1), param=param) from None
    for remote in found.remote:
        picture = filled["messages"][remote.message]["content"][remote.part]["image_url"]["url"]
        _parts(items[remote.message])[remote.part]["image_url"] = picture


def _parts(item: Tree) -> list[Any]:
    """The parts of a message, or of what a function gave back; of an item that has both, all of them: an engine must
    not find one that nobody looked at."""
    return [part for key in ("content", "output") if isinstance(item.get(key), list) for part in item[key]]


def _as_chat(part: Any, where: str, number: int) -> Tree:
    """A part in the words of chats; whatever shows nothing is a text here."""
    kind = part.get("type") if isinstance(part, dict) else None
    place = f"{where}.content[{number}]"
    if kind == "input_image":
        url = part.get("image_url")
        if not isinstance(url, str):
            raise InvalidArgument(
                f"'{place}' needs an `image_url` such as data:image/png;base64,…; files are not kept here.", param=place
            )
        return {"type": "image_url", "image_url": {"url": url}}
    if kind == "input_audio":
        sound = part.get("input_audio")
        if not isinstance(sound, dict) or not all(isinstance(sound.get(key), str) for key in ("data", "format")):
            raise InvalidArgument(
                f'\'{place}\' needs an `input_audio` such as {{"data": "…", "format": "wav"}}.', param=place
            )
        return {"type": "input_audio", "input_audio": {key: sound[key] for key in ("data", "format")}}
    if kind == "input_file":
        raise InvalidArgument(f"'{place}' is a file, which no model here can read; send its text.", param=place)
    return {"type": "text"}


def _raw(chat: list[list[Tree]]) -> list[list[Tree]]:
    """With the strings that may be large left as they stand in JSON, as the checks want them."""
    return [[_raw_part(part) for part in content] for content in chat]


def _raw_part(part: Tree) -> Tree:
    if part["type"] == "image_url":
        return {**part, "image_url": {"url": msgspec.Raw(msgspec.json.encode(part["image_url"]["url"]))}}
    if part["type"] == "input_audio":
        sound = part["input_audio"]
        return {**part, "input_audio": {**sound, "data": msgspec.Raw(msgspec.json.encode(sound["data"]))}}
    return part
