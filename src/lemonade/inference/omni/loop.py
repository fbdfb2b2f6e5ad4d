"""The loop in which a planner uses the other models of its collection as tools."""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from lemonade.errors import InvalidArgument, LemonadeError
from lemonade.inference.media import hears, sees
from lemonade.inference.omni.conversation import for_planner, newest_picture, system_prompt
from lemonade.inference.omni.tools import DEFAULT_SIZE, EDIT, PictureArguments, SpeechArguments, Tool
from lemonade.model import Model

Tree = dict[str, Any]

logger = logging.getLogger("lemonade.inference")

#: Times that the planner is asked for one answer. Source: the specification's server-side tools.
MAX_TURNS = 5
#: Tools that one answer may use: a planner that asks for fifty pictures at once has lost its way.
MAX_CALLS = 12
GAVE_UP = "Sorry, I was unable to complete that request."
NO_SOURCE = "Image edit requested, but no previous image is available as a source."


class Hands(Protocol):
    """What does the work of the loop."""

    async def plan(self, body: Tree) -> Tree:
        """The planner's whole answer to a chat body. Raises LemonadeError."""
        ...

    async def draw(self, model: Model, request: Tree) -> bytes:
        """A PNG file, from the fields of a request for a picture. Raises LemonadeError."""
        ...

    async def edit(self, model: Model, request: Tree, picture: bytes) -> bytes:
        """A PNG file, from the same and the file of the picture to change. Raises LemonadeError."""
        ...

    async def speak(self, model: Model, request: Tree) -> bytes:
        """An MP3 or WAV file, from the fields of a request for speech. Raises LemonadeError."""
        ...


#: Told of every picture and sound as soon as it is there, in the form in which the answer's content holds it.
Show = Callable[[str], Awaitable[None]]


class Loop:
    """One answer of a collection.

    Args:
        tools: as `tools.offered` gives them.
        template: the collection's own system prompt, or `""`.

    Attributes:
        reply: the planner's last answer.
        text: what it says at the end.
        media: pictures and sounds in the form in which the content holds them.
        calls: to tools of the client, which has to go on.
    """

    def __init__(
        self, planner: Model, tools: Mapping[str, tuple[Tool, Model]], template: str, hands: Hands, show: Show
    ) -> None:
        self._planner = planner
        self._tools = tools
        self._template = template
        self._hands = hands
        self._show = show
        self._drawn: list[PictureArguments] = []
        self._picture: bytes | None = None
        self._picture_at: int | None = None
        self._used = 0
        self.reply: Tree = {}
        self.text = ""
        self.media: list[str] = []
        self.calls: list[Tree] = []

    async def run(self, body: Tree) -> None:
        """Answers a chat's body.

        Raises:
            LemonadeError: the planner failed. A tool's failure is told to the planner.
        """
        self._picture = newest_picture(body["messages"])
        body = self._planners(body)
        for _ in range(MAX_TURNS):
            self.reply = await self._hands.plan(body)
            message = self.reply["choices"][0]["message"]
            calls = message.get("tool_calls") or []
            self.text = message.get("content") or ""
            if not calls:
                break
            self.calls = [call for call in calls if self._is_clients(call, body)]
            if self.calls:
                return
            answers = [await self._answer(call) for call in calls]
            body["messages"] += [{"role": "assistant", "content": self.text, "tool_calls": calls}, *answers]
            # It has been obeyed; the planner would have to call for ever.
            if body.get("tool_choice") not in (None, "none"):
                body["tool_choice"] = "auto"
        was_cut = self.reply["choices"][0].get("finish_reason") == "length"
        if not self.text.strip() and not self.media and not was_cut:
            self.text = GAVE_UP

    def _planners(self, body: Tree) -> Tree:
        """The client's body as the planner gets it."""
        body = {key: value for key, value in body.items() if key not in ("stream", "stream_options", "n")}
        prompt = system_prompt(self._template, [tool for tool, _ in self._tools.values()])
        body["model"] = self._planner.name
        body["messages"] = for_planner(body["messages"], prompt, sees=sees(self._planner), hears=hears(self._planner))
        own = [tool.definition() for tool, _ in self._tools.values()]
        clients = [tool for tool in body.pop("tools", ()) if tool["function"]["name"] not in self._tools]
        if own or clients:
            body["tools"] = own + clients
        return body

    def _is_clients(self, call: Tree, body: Tree) -> bool:
        name = call["function"]["name"]
        return name not in self._tools and any(tool["function"]["name"] == name for tool in body.get("tools", ()))

    async def _answer(self, call: Tree) -> Tree:
        """Does what a call asks for, and tells the planner of it."""
        name, arguments = call["function"]["name"], call["function"].get("arguments") or ""
        logger.debug("'%s' calls %s with %.300s", self._planner.name, name, arguments)
        try:
            told = await self._do(name, arguments)
        except LemonadeError as error:
            logger.info("A tool of '%s' failed: %s", self._planner.name, error.message)
            told = f"Error: {error.message}"
        return {"role": "tool", "tool_call_id": call.get("id", ""), "content": told}

    async def _do(self, name: str, arguments: str) -> str:
        if name not in self._tools:
            raise InvalidArgument(f"there is no tool {name}; there is: {', '.join(self._tools) or 'none'}")
        if self._used >= MAX_CALLS:
            raise InvalidArgument(f"no more than {MAX_CALLS} tools can be used for one answer")
        tool, model = self._tools[name]
        asked = tool.read(arguments)
        if isinstance(asked, SpeechArguments):
            self._used += 1
            sound = await self._hands.speak(model, asked.request())
            kind = "wav" if sound.startswith(b"RIFF") else "mpeg"
            await self._add(f"<audio>data:audio/{kind};base64,{base64.b64encode(sound).decode()}</audio>")
        elif tool is EDIT:
            await self._edit(model, asked)
        elif asked not in self._drawn:
            self._used += 1
            self._picture = await self._hands.draw(model, asked.request(default_size=DEFAULT_SIZE))
            self._drawn.append(asked)
            self._picture_at = len(self.media)
            await self._add(_markdown(self._picture))
        return tool.done

    async def _edit(self, model: Model, asked: PictureArguments) -> None:
        if self._picture is None:
            raise InvalidArgument(NO_SOURCE)
        self._used += 1
        self._picture = await self._hands.edit(model, asked.request(default_size=None), self._picture)
        if self._picture_at is None:
            self._picture_at = len(self.media)
            await self._add(_markdown(self._picture))
        else:
            # The picture that it was made from was a step on the way.
            self.media[self._picture_at] = _markdown(self._picture)
            await self._show(self.media[self._picture_at])

    async def _add(self, media: str) -> None:
        self.media.append(media)
        await self._show(media)


def _markdown(picture: bytes) -> str:
    return f"![generated image](data:image/png;base64,{base64.b64encode(picture).decode()})"
