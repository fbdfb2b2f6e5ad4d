"""The tools that a collection's planner is offered, and what it may ask of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import InvalidArgument
from lemonade.model import Model

Tree = dict[str, Any]

#: What a picture has when the planner names no size. Source: the specification's omni tools.
DEFAULT_SIZE = "512x256"
#: Engines draw in blocks of so many pixels, and no picture of a chat is wider or higher than this.
SIZE_STEP = 8
MAX_SIDE = 2048
#: Of Kokoro, when the planner names no voice. Source: the same.
DEFAULT_VOICE = "af_heart"

_SIZE = re.compile(r"\s*(\d{1,5})\s*(?:x|\u00d7|by)\s*(\d{1,5})\s*", re.IGNORECASE)


class PictureArguments(msgspec.Struct):
    """What `generate_image` and `edit_image` are called with."""

    prompt: Annotated[str, Meta(min_length=1, description="What the picture shows, in detail.")]
    size: Annotated[str | UnsetType | None, Meta(description="Width and height in pixels, such as 512x256.")] = UNSET
    steps: Annotated[
        Annotated[int, Meta(ge=1, le=100)] | UnsetType | None, Meta(description="Sampling steps; more are slower.")
    ] = UNSET
    cfg_scale: Annotated[
        Annotated[float, Meta(ge=0)] | UnsetType | None, Meta(description="How closely to follow the prompt.")
    ] = UNSET
    seed: Annotated[int | UnsetType | None, Meta(description="The same seed draws the same picture.")] = UNSET
    sample_method: Annotated[str | UnsetType | None, Meta(description="Name of the sampler.")] = UNSET
    flow_shift: Annotated[
        Annotated[float, Meta(ge=0)] | UnsetType | None, Meta(description="Shift of flow models.")
    ] = UNSET

    def request(self, *, default_size: str | None) -> Tree:
        """The fields of a request for a picture."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        request = {name: value for name, value in given.items() if value not in (UNSET, None)}
        size = request.pop("size", None) or default_size
        if size is not None:
            request["size"] = picture_size(size)
        return request


class SpeechArguments(msgspec.Struct):
    """What `text_to_speech` is called with."""

    input: Annotated[str, Meta(min_length=1, description="The text to speak.")]
    voice: Annotated[str | UnsetType | None, Meta(description="Name of the voice; leave it out for the usual one.")] = (
        UNSET
    )

    def request(self) -> Tree:
        """The fields of a request for speech."""
        voice = {"voice": self.voice} if isinstance(self.voice, str) and self.voice else {}
        return {"input": self.input, "response_format": "mp3", **voice}


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool.

    Attributes:
        label: a component that carries it does the work.
        guidance: when to use it, for the system prompt.
        done: what the planner is told when it is done; it never sees the media.
    """

    name: str
    label: str
    description: str
    guidance: str
    done: str
    arguments: type[PictureArguments] | type[SpeechArguments]

    def definition(self) -> Tree:
        """As the `tools` of a chat have it."""
        schema = _closed(msgspec.json.schema_components([self.arguments])[1][self.arguments.__name__])
        return {
            "type": "function",
            "function": {"name": self.name, "description": self.description, "parameters": schema},
        }

    def read(self, arguments: str) -> PictureArguments | SpeechArguments:
        """A call's arguments.

        Raises:
            InvalidArgument: in words that the planner can act on.
        """
        try:
            return msgspec.json.decode(arguments or "{}", type=self.arguments, strict=False)
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvalidArgument(f"the arguments of {self.name} are not valid: {error}") from None


def _closed(schema: Tree) -> Tree:
    """A schema as planners take it: no choice between null and a value, and no other properties."""
    properties = {}
    for name, field in schema["properties"].items():
        kinds = [kind for kind in field.pop("anyOf", ()) if kind.get("type") != "null"]
        field.pop("default", None)
        properties[name] = {**(kinds[0] if kinds else {}), **field}
    return {
        "type": "object",
        "properties": properties,
        "required": schema["required"],
        "additionalProperties": False,
    }


GENERATE = Tool(
    name="generate_image",
    label="image",
    description="Draws a new picture from a description.",
    guidance="When the user wants a picture, call generate_image with a detailed description of it.",
    done="Image generated successfully.",
    arguments=PictureArguments,
)
EDIT = Tool(
    name="edit_image",
    label="edit",
    description="Changes the newest picture of the conversation as described.",
    guidance="When the user wants a picture changed that is already there, call edit_image.",
    done="Image edited successfully.",
    arguments=PictureArguments,
)
SPEAK = Tool(
    name="text_to_speech",
    label="tts",
    description="Speaks a text.",
    guidance="When the user wants to hear something, call text_to_speech with the words to speak.",
    done="Audio generated successfully.",
    arguments=SpeechArguments,
)
TOOLS = (GENERATE, EDIT, SPEAK)


def offered(components: Iterable[Model]) -> Mapping[str, tuple[Tool, Model]]:
    """Tool name to the tool and the first component that can do its work; without those that none can."""
    # Models that make pictures larger have the label `image`, too, and make none.
    components = tuple(model for model in components if "upscaling" not in model.labels)
    found = {}
    for tool in TOOLS:
        worker = next((model for model in components if tool.label in model.labels), None)
        if worker is not None:
            found[tool.name] = (tool, worker)
    return found


def picture_size(text: str) -> str:
    """Width and height with `x`, a multiplication sign or `by` in between, as a size that engines can draw.

    Raises:
        InvalidArgument: it is none of these.
    """
    match = _SIZE.fullmatch(text)
    if match is None:
        raise InvalidArgument(f"'size' must be WIDTHxHEIGHT, such as {DEFAULT_SIZE}, not {text[:40]!r}")
    width, height = (min(MAX_SIDE, max(SIZE_STEP, round(int(side) / SIZE_STEP) * SIZE_STEP)) for side in match.groups())
    return f"{width}x{height}"
