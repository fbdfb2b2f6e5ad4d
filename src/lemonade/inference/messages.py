"""A request in Anthropic's format for a model on this machine, and its answer.

llama.cpp speaks the format itself. What is done here is what it must not do: open the address of a picture, or decode
what nobody looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference import media
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.relay import DONE, InFront
from lemonade.model import Model
from lemonade.system.metrics import Measurement

Tree = dict[str, Any]

#: Blocks of a message that reach an engine; those of other types do not.
BLOCKS = ("text", "image", "tool_use", "tool_result", "thinking", "redacted_thinking")


class _Picture(NamedTuple):
    """A block with a picture, where it is, and the picture's address or data URL."""

    block: Tree
    place: str
    url: str


class _Carrier(msgspec.Struct):
    content: list[media.Part]


def check_model(model: Model) -> None:
    """Raises UnsupportedOperation unless `model` is an LLM that runs in llama.cpp; asked before it is loaded."""
    if model.recipe != "llamacpp" or model.mode != "chat":
        raise UnsupportedOperation(
            f"'{model.name}' cannot be asked in this format. Models of llama.cpp and of cloud providers can.",
            param="model",
        )


async def shape(raw: bytes, model: Model, *, allow_remote: bool) -> bytes:
    """The body for llama.cpp: without what is the daemon's own, and with the pictures in it.

    Args:
        allow_remote: whether the address of a picture may stand for it.

    Raises:
        InvalidArgument: naming the block that the model cannot take, or that nobody should.
    """
    tree = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    pictures = list(_pictures(tree))
    if pictures:
        await _look_at(pictures, model, size=len(raw), allow_remote=allow_remote)
    tree.pop("ctx_size", None)
    return msgspec.json.encode(tree)


def _pictures(tree: Tree) -> Iterator[_Picture]:
    """The pictures of a request, in order; all else that is in its blocks is of a known type."""
    system = tree.get("system")
    for number, block in enumerate(system if isinstance(system, list) else ()):
        if not isinstance(block, dict) or block.get("type") != "text":
            raise _refusal(f"system[{number}]", "has a type that is not `text`.")
    for number, message in enumerate(tree["messages"]):
        place = f"messages[{number}]"
        if not isinstance(message.get("role"), str):
            raise _refusal(f"{place}.role", "must be `user` or `assistant`.")
        yield from _in_content(message.get("content"), f"{place}.content", BLOCKS)


def _in_content(content: Any, place: str, known: tuple[str, ...]) -> Iterator[_Picture]:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        raise _refusal(place, "must be a string or an array of blocks.")
    for number, block in enumerate(content):
        here = f"{place}[{number}]"
        kind = block.get("type") if isinstance(block, dict) else None
        if kind not in known:
            raise _refusal(here, f"has a type that is not one of: {', '.join(known)}.")
        if kind == "image":
            yield _Picture(block, here, _url(block.get("source"), here))
        elif kind == "tool_result" and block.get("content") is not None:
            yield from _in_content(block["content"], f"{here}.content", ("text", "image"))


def _url(source: Any, place: str) -> str:
    given = source if isinstance(source, dict) else {}
    kind, data, media_type, url = (given.get(key) for key in ("type", "data", "media_type", "url"))
    if kind == "base64" and isinstance(data, str) and isinstance(media_type, str):
        return f"data:{media_type};base64,{data}"
    if kind == "url" and isinstance(url, str):
        return url
    raise _refusal(f"{place}.source", 'must be such as {"type": "base64", "media_type": "image/png", "data": "…"}.')


async def _look_at(pictures: list[_Picture], model: Model, *, size: int, allow_remote: bool) -> None:
    """Has the pictures looked at as those of a chat, and puts in those that have to be fetched or made another file."""
    parts = [{"type": "image_url", "image_url": {"url": picture.url}} for picture in pictures]
    body = msgspec.json.encode({"messages": [{"content": parts}]})
    messages = msgspec.json.decode(body, type=dict[str, list[_Carrier]])["messages"]
    try:
        found = await media.examine(messages, model, size=size, allow_remote=allow_remote)
        body = await media.put_in(body, found)
    except InvalidArgument as error:
        raise _named(error, pictures) from None
    (carrier,) = msgspec.json.decode(body)["messages"]
    for picture, part in zip(pictures, carrier["content"], strict=True):
        head, _, data = part["image_url"]["url"].partition(";base64,")
        picture.block["source"] = {"type": "base64", "media_type": head.removeprefix("data:"), "data": data}


def _named(error: InvalidArgument, pictures: list[_Picture]) -> InvalidArgument:
    """The refusal of a picture with the place that the client knows."""
    for number, picture in enumerate(pictures):
        place = f"messages[0].content[{number}]"
        if error.param == place:
            return InvalidArgument(error.message.replace(f"'{place}'", f"'{picture.place}'"), param=picture.place)
    return error


def _refusal(place: str, problem: str) -> InvalidArgument:
    return InvalidArgument(f"'{place}' {problem}", param=place)


class _Reply(msgspec.Struct):
    content: list[msgspec.Raw]
    role: str
    model: str = ""
    usage: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    """The engine's whole answer with the model's name as it was asked for, and its figures.

    Raises:
        msgspec.MsgspecError: it is no message.
    """
    reply = _reply_decoder.decode(body)
    figures = measured(reply.usage)
    if reply.model == asked:
        return body, figures
    return msgspec.json.encode({**msgspec.json.decode(body), "model": asked}), figures


def check_passed_on(body: bytes, asked: str) -> tuple[bytes, None]:
    """A provider's whole answer, as it is.

    Raises:
        msgspec.MsgspecError: it is no message.
    """
    _reply_decoder.decode(body)
    return body, None


class MessageEvents(InFront):
    """Streams in this format end with `message_stop` and nothing after it."""

    async def end(self, data: bytes = b"") -> None:
        await super().end(data.removesuffix(DONE))
