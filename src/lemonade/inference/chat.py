"""A chat request: what it may hold, and the bytes that llama.cpp is sent for it.

Most requests go to the engine as they came. The body is decoded whole and encoded again only when something has to
change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference import history
from lemonade.inference.choices import copies
from lemonade.inference.forced_call import force
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.media import Part
from lemonade.inference.sampling import Alternatives, Choices, Count, Sampling, Stop
from lemonade.model import Model
from lemonade.system.metrics import Measurement

#: Bounds in a tool's JSON schema from which llama.cpp's grammar explodes (it unrolls repetitions); dropped at or above.
MAX_SCHEMA_LENGTH = 2000
MAX_SCHEMA_ITEMS = 2001

TOOL_CHOICES = ("auto", "none", "required")
FORMATS = ("text", "json_object", "json_schema")


class Message(msgspec.Struct):
    """One message of a conversation."""

    role: Annotated[str, Meta(description="`system`, `developer`, `user`, `assistant` or `tool`.", min_length=1)]
    content: Annotated[
        str | list[Part] | None, Meta(description="The text, or an array of parts: texts, pictures and sounds.")
    ] = None
    tool_calls: Annotated[
        list[dict[str, Any]] | None, Meta(description="Calls that the assistant made in this turn.")
    ] = None


class FunctionChoice(msgspec.Struct):
    """The function that must be called."""

    name: str


class ToolChoice(msgspec.Struct):
    """A tool that must be called."""

    function: FunctionChoice
    type: str = "function"


class Thinking(msgspec.Struct):
    """Whether to reason, in the words of other APIs; `adaptive` and `auto` leave it to the model."""

    type: Literal["enabled", "disabled", "adaptive", "auto"]


class ChatRequest(Sampling):
    """Arguments that are not listed go to the engine untouched; `null` counts as absent."""

    messages: Annotated[
        list[Message],
        Meta(min_length=1, description="The conversation so far: each message has a `role` and `content`."),
    ]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.")]
    stream: Annotated[
        bool | UnsetType | None, Meta(description="`true` sends the answer as server-sent events while it is made.")
    ] = UNSET
    stream_options: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description='`{"include_usage": true}` adds a last chunk with the token counts.'),
    ] = UNSET
    stop: Annotated[
        Stop | UnsetType | None,
        Meta(description="Text that ends the answer, as a string or an array; it is left out of the answer."),
    ] = UNSET
    logprobs: Annotated[
        bool | UnsetType | None, Meta(description="`true` returns the log probability of each output token.")
    ] = UNSET
    top_logprobs: Annotated[
        Alternatives | UnsetType | None, Meta(description="How many alternatives to return per token, 0 to 20.")
    ] = UNSET
    n: Annotated[Choices | UnsetType | None, Meta(description="How many answers to make, 1 to 128.")] = UNSET
    tools: Annotated[list[dict[str, Any]] | UnsetType | None, Meta(description="Tools that the model may call.")] = (
        UNSET
    )
    tool_choice: Annotated[
        str | ToolChoice | UnsetType | None,
        Meta(description="`auto`, `none`, `required`, or an object that names the one function to call."),
    ] = UNSET
    parallel_tool_calls: Annotated[
        bool | UnsetType | None, Meta(description="Whether one answer may hold several tool calls.")
    ] = UNSET
    response_format: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description='The form of the answer, such as `{"type": "json_object"}` or a `json_schema`.'),
    ] = UNSET
    max_tokens: Annotated[Count | UnsetType | None, Meta(description="Most tokens to generate.")] = UNSET
    max_completion_tokens: Annotated[
        Count | UnsetType | None,
        Meta(description="OpenAI's newer name for `max_tokens`; send one of the two."),
    ] = UNSET
    enable_thinking: Annotated[
        bool | UnsetType | None, Meta(description="Extension: `false` turns reasoning off on models that reason.")
    ] = UNSET
    thinking: Annotated[
        bool | Thinking | UnsetType | None,
        Meta(description='Extension: `false` or `{"type": "disabled"}`, as `enable_thinking`, which wins over it.'),
    ] = UNSET

    @property
    def thinks(self) -> bool | None:
        """Whether reasoning was asked for or refused; None when nothing was said."""
        if isinstance(self.enable_thinking, bool):
            return self.enable_thinking
        if isinstance(self.thinking, bool):
            return self.thinking
        if isinstance(self.thinking, Thinking):
            return {"enabled": True, "disabled": False}.get(self.thinking.type)
        return None


def check_model(model: Model) -> None:
    """Raises UnsupportedOperation unless `model` is an LLM; asked before it is loaded."""
    if model.mode != "chat" and not model.is_collection:
        error = UnsupportedOperation(
            "This model does not support chat completion. Only LLM models support this endpoint.", param="model"
        )
        error.type = "invalid_request_error"
        raise error


def check(request: ChatRequest, *, beside: Sequence[dict[str, Any]] = ()) -> None:
    """What can be said of a request without its model.

    Args:
        beside: tools that the model is offered beside those of the request.

    Raises:
        InvalidArgument: arguments do not fit together, or one has a value that means nothing.
    """
    if request.top_logprobs and request.logprobs is not True:
        raise InvalidArgument("'top_logprobs' needs 'logprobs' to be true.", param="top_logprobs")
    choice = request.tool_choice
    if isinstance(choice, str) and choice not in TOOL_CHOICES:
        raise InvalidArgument(
            f"'tool_choice' must be one of: {', '.join(TOOL_CHOICES)}, or an object that names a function.",
            param="tool_choice",
        )
    if isinstance(request.response_format, dict):
        _check_format(request.response_format)
    tools = request.tools if isinstance(request.tools, list) else []
    for number, tool in enumerate(tools):
        function = tool.get("function")
        name = function.get("name") if isinstance(function, dict) else None
        if not isinstance(name, str) or not name:
            raise InvalidArgument(
                f"'tools[{number}].function.name' must be a string: a tool is a function with a name.",
                param=f"tools[{number}].function.name",
            )
    tools = [*beside, *tools]
    if choice == "required" and not tools:
        raise InvalidArgument("'tool_choice' is `required`, but 'tools' offers none.", param="tool_choice")
    if isinstance(choice, ToolChoice) and choice.function.name not in [tool["function"]["name"] for tool in tools]:
        raise InvalidArgument(
            f"'tool_choice' names the function '{choice.function.name}', which 'tools' does not offer.",
            param="tool_choice",
        )


def _check_format(form: dict[str, Any]) -> None:
    kind = form.get("type")
    if kind not in FORMATS:
        raise InvalidArgument(
            f"'response_format.type' must be one of: {', '.join(FORMATS)}.", param="response_format.type"
        )
    if kind == "json_schema":
        schema = form.get("json_schema")
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), dict | bool):
            raise InvalidArgument(
                "'response_format.json_schema.schema' must be an object.", param="response_format.json_schema.schema"
            )


def must_call(request: ChatRequest) -> list[str]:
    """The functions of which one has to be called; empty when none has to."""
    if isinstance(request.tool_choice, ToolChoice):
        return [request.tool_choice.function.name]
    if request.tool_choice == "required" and isinstance(request.tools, list):
        return [tool["function"]["name"] for tool in request.tools]
    return []


def shape(request: ChatRequest, raw: bytes, template: Callable[[], str | None]) -> list[bytes]:
    """One body for llama.cpp per answer that is wanted: `raw` itself when nothing has to change.

    Args:
        template: gives the model's chat template, None when it is not known; asked only if need be.
    """
    if not _must_change(request):
        return [raw]
    body: dict[str, Any] = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    _apply_thinking(request, body)
    if request.top_logprobs == 0 and request.logprobs is not True:
        del body["top_logprobs"]  # no alternatives to what is not wanted either: llama.cpp refuses the mere name
    if "max_completion_tokens" in body:
        # llama.cpp would let the newer name win; the specification says that the older one does.
        body.setdefault("max_tokens", body["max_completion_tokens"])
        body["max_completion_tokens"] = body["max_tokens"]
    if "tools" in body:
        body["tools"] = [without_explosions(tool) for tool in body["tools"]]
    if names := must_call(request):
        force(body, names)
    body["messages"] = history.normal(body["messages"], template())
    count = request.n if isinstance(request.n, int) else 1
    return [msgspec.json.encode(one) for one in copies(body, count)]


def _must_change(request: ChatRequest) -> bool:
    for name in request.__struct_fields__:
        if getattr(request, name) is None:
            return True
    return (
        request.enable_thinking is not UNSET
        or request.thinking is not UNSET
        or request.max_completion_tokens is not UNSET
        or request.n is not UNSET
        or request.top_logprobs == 0
        or bool(must_call(request))
        or (isinstance(request.tools, list) and any(_explodes(tool) for tool in request.tools))
        or any(history.is_odd(message, position) for position, message in enumerate(request.messages))
    )


def _apply_thinking(request: ChatRequest, body: dict[str, Any]) -> None:
    body.pop("enable_thinking", None)
    body.pop("thinking", None)
    if request.thinks is not False:
        return
    body["reasoning_effort"] = "none"
    arguments = body.setdefault("chat_template_kwargs", {})
    if isinstance(arguments, dict):
        arguments["enable_thinking"] = False
    # Models of the Qwen 3 family obey the switch inside the text where their template has none.
    for message in reversed(body["messages"]):
        if message.get("role") == "user" and isinstance(message.get("content"), str):
            message["content"] = f"/no_think\n{message['content']}"
            break


def _explodes(node: Any) -> bool:
    if isinstance(node, dict):
        return any(_is_explosion(key, value) or _explodes(value) for key, value in node.items())
    return isinstance(node, list) and any(_explodes(item) for item in node)


def without_explosions(node: Any) -> Any:
    """A JSON schema, or anything that holds some, without the bounds that llama.cpp's grammars cannot take."""
    if isinstance(node, dict):
        return {key: without_explosions(value) for key, value in node.items() if not _is_explosion(key, value)}
    if isinstance(node, list):
        return [without_explosions(item) for item in node]
    return node


def _is_explosion(key: str, value: Any) -> bool:
    if not isinstance(value, int) or isinstance(value, bool):
        return False
    if key in ("minLength", "maxLength"):
        return value >= MAX_SCHEMA_LENGTH
    return key in ("minItems", "maxItems") and value >= MAX_SCHEMA_ITEMS


class _ReplyMessage(msgspec.Struct):
    role: str
    content: str | UnsetType | None = UNSET
    tool_calls: list[msgspec.Raw] | None = None


class _Choice(msgspec.Struct):
    message: _ReplyMessage


class _Reply(msgspec.Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    model: str = ""
    usage: msgspec.Raw = NO_FIGURES
    timings: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    """The engine's whole answer as a client may see it, and its figures: at least one choice with a role and a content,
    and the model's name as it was asked for. The bytes are the engine's own when that holds already.

    Raises:
        msgspec.MsgspecError: the answer is no chat completion.
    """
    reply = _reply_decoder.decode(body)
    figures = measured(reply.usage, reply.timings)
    complete = all(choice.message.content or choice.message.tool_calls for choice in reply.choices)
    if complete and reply.model == asked:
        return body, figures
    tree = msgspec.json.decode(body)
    tree["model"] = asked
    for choice in tree["choices"]:
        message = choice["message"]
        if message.get("content") is None:
            message["content"] = None if message.get("tool_calls") else ""
    return msgspec.json.encode(tree), figures
