"""A request to a cloud provider: what the client sent, but for what a provider would stumble over."""

from __future__ import annotations

import asyncio
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

import msgspec

from lemonade.inference.media import LARGE
from lemonade.inference.relay import Check

#: What only this daemon knows.
_OWN = frozenset({"ctx_size", "route_trace"})
#: The APIs whose streams have figures at their end if one asks for them.
_CHATTING = frozenset({"chat/completions", "completions"})
#: What a provider may be found not to understand.
NO_STREAM_OPTIONS = "no_stream_options"
ONE_LIMIT = "one_limit"


class _Body(msgspec.Struct):
    stream_options: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(_Body)


@dataclass(slots=True, kw_only=True)
class CloudRequest:
    """What a provider is asked.

    Attributes:
        path: below the provider's address.
        body: as the client sent it, a JSON object.
        asked: the model's name as the client wrote it.
        check: as of an `EngineRequest`.
        headers: that go along.
        query: with its question mark.
    """

    path: str
    body: bytes
    asked: str
    stream: bool = False
    check: Check = lambda body, asked: (body, None)
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""

    @property
    def is_anthropic(self) -> bool:
        """Whether it is in Anthropic's format, which is passed on untouched."""
        return self.path.startswith("messages")

    @property
    def drops_figures(self) -> bool:
        """Whether the figures at the end of a stream are ours alone: the client did not ask for them."""
        return self.stream and self.path in _CHATTING and self._options.get("include_usage") is not True

    @property
    def _options(self) -> dict[str, Any]:
        options = _decoder.decode(self.body).stream_options
        return options if isinstance(options, dict) else {}

    async def outgoing(self, model: str, learned: Container[str]) -> bytes:
        """The body for the provider.

        Args:
            model: as the provider calls it.
            learned: what it was found not to understand.
        """
        if len(self.body) < LARGE:
            return self._shaped(model, learned)
        return await asyncio.to_thread(self._shaped, model, learned)

    def _shaped(self, model: str, learned: Container[str]) -> bytes:
        body: dict[str, Any] = msgspec.json.decode(self.body)
        if not self.is_anthropic:
            body = {key: value for key, value in body.items() if value is not None and key not in _OWN}
            if body.get("store") is not True:
                # It is for routers here; a provider takes it with what it keeps.
                body.pop("metadata", None)
        body["model"] = model
        limit = body.get("max_tokens", body.get("max_completion_tokens"))
        if self.path == "chat/completions" and limit is not None:
            # Some know only the older name, some only the newer one.
            body["max_tokens"] = body["max_completion_tokens"] = limit
            if ONE_LIMIT in learned:
                del body["max_tokens"]
        if self.stream and self.path in _CHATTING and NO_STREAM_OPTIONS not in learned:
            body["stream_options"] = {**self._options, "include_usage": True}
        return msgspec.json.encode(body)

    def learns(self, status: int, text: bytes, learned: set[str]) -> bool:
        """Whether a provider's refusal is of what we added, so that it is to be asked again without that."""
        lesson = ""
        if status in (400, 422):
            if self.drops_figures and b"stream_options" in text:
                lesson = NO_STREAM_OPTIONS
            elif self.path == "chat/completions" and b"max_completion_tokens" in text and b"max_tokens" in text:
                lesson = ONE_LIMIT
        if not lesson or lesson in learned:
            return False
        learned.add(lesson)
        return True
