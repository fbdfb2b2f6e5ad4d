"""A request in OpenAI's Responses format: what it may hold, and what llama.cpp is sent for it.

llama.cpp refuses some inputs that OpenAI's own clients send, and leaves the form of the answer (`text.format`) and the
numbers of events out; both are made good here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference.chat import TOOL_CHOICES, without_explosions
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.sampling import Alternatives, Choosing, Count
from lemonade.model import Model
from lemonade.system.metrics import Measurement

Tree = dict[str, Any]


class ResponsesRequest(Choosing):
    """Arguments that are not listed go to the engine untouched; `null` counts as absent."""

    input: Annotated[
        Annotated[str, Meta(min_length=1)] | Annotated[list[dict[str, Any]], Meta(min_length=1)],
        Meta(description="The input: a text, or an array of items: messages, function calls and their outputs."),
    ]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
    instructions: Annotated[
        str | UnsetType | None, Meta(description="A system message that goes before the input.")
    ] = UNSET
    stream: Annotated[
        bool | UnsetType | None, Meta(description="`true` sends the answer as server-sent events while it is made.")
    ] = UNSET
    max_output_tokens: Annotated[Count | UnsetType | None, Meta(description="Most tokens to generate.")] = UNSET
    top_logprobs: Annotated[
        Alternatives | UnsetType | None,
        Meta(description="Alternatives per token, 0 to 20; llama.cpp tells none in this format, chats have them."),
    ] = UNSET
    tools: Annotated[
        list[dict[str, Any]] | UnsetType | None,
        Meta(description="Functions that the model may call. Tools that OpenAI itself runs are not offered to it."),
    ] = UNSET
    tool_choice: Annotated[
        str | dict[str, Any] | UnsetType | None,
        Meta(description='`auto`, `none`, `required`, or `{"type": "function", "name": …}`.'),
    ] = UNSET
    text: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description='The form of the answer: `{"format": {"type": "json_schema", …}}`.'),
    ] = UNSET
    reasoning: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description='`{"effort": "none"}` turns reasoning off on models that reason.'),
    ] = UNSET
    previous_response_id: Annotated[
        str | UnsetType | None, Meta(description="Refused: answers are not kept. Send the conversation in `input`.")
    ] = UNSET
    conversation: Annotated[
        str | dict[str, Any] | UnsetType | None, Meta(description="Refused, for the same reason.")
    ] = UNSET
    prompt: Annotated[dict[str, Any] | UnsetType | None, Meta(description="Refused: prompts are not kept.")] = UNSET
    background: Annotated[
        bool | UnsetType | None, Meta(description="`true` is refused: an answer is made while its client waits.")
    ] = UNSET
    store: Annotated[
        bool | UnsetType | None, Meta(description="Answers are never kept; every answer says `false`.")
    ] = UNSET
    truncation: Annotated[
        Literal["auto", "disabled"] | UnsetType | None,
        Meta(description="Nothing is ever dropped: what does not fit into the context is refused."),
    ] = UNSET
    include: Annotated[
        list[str] | UnsetType | None, Meta(description="Taken, and without effect: there is nothing more to give.")
    ] = UNSET
    parallel_tool_calls: Annotated[
        bool | UnsetType | None, Meta(description="Whether one answer may hold several tool calls.")
    ] = UNSET
    max_tool_calls: Annotated[
        Count | UnsetType | None, Meta(description="Limits tools that the server runs; here the client runs them all.")
    ] = UNSET


def check_model(model: Model) -> None:
    """Raises UnsupportedOperation unless `model` is an LLM; asked before it is loaded."""
    if model.mode != "chat" and not model.is_collection:
        error = UnsupportedOperation(
            "This model does not support responses. Only LLM models support this endpoint.", param="model"
        )
        error.code = "model_not_applicable"
        raise error


def shape(request: ResponsesRequest, raw: bytes) -> Tree:
    """The body for llama.cpp.

    Raises:
        InvalidArgument: the request leans on something that is kept nowhere, or names a tool that it does not offer.
    """
    _refuse_what_is_kept(request)
    body: Tree = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    if isinstance(body["input"], list):
        items = [_item(item, number) for number, item in enumerate(body["input"])]
        body["input"] = [item for item in items if item is not None]
    if isinstance(request.tools, list):
        body["tools"] = [_tool(tool, number) for number, tool in enumerate(body["tools"])]
    _check_choice(request.tool_choice, body)
    if body.get("top_logprobs"):
        body["logprobs"] = True
    else:
        body.pop("top_logprobs", None)  # llama.cpp refuses 0 without `logprobs`
    form = body.get("text", {}).get("format")
    if isinstance(form, dict) and "response_format" not in body:
        body["response_format"] = _format(form)
    _apply_reasoning(body)
    return body


#: What items of these types must have. There are no others but messages and thoughts.
_NEEDED = {"function_call": ("call_id", "name", "arguments"), "function_call_output": ("call_id", "output")}
_ROLES = ("user", "assistant", "system", "developer")


def _item(item: Tree, number: int) -> Tree | None:
    """An item as llama.cpp takes it, or None for one that says nothing."""
    where = f"input[{number}]"
    kind = item.get("type")
    if kind == "item_reference":
        raise InvalidArgument(
            f"'{where}' refers to an item that is not kept here; send the item itself.", param=f"{where}.type"
        )
    if kind is not None and not isinstance(kind, str):
        raise InvalidArgument(f"'{where}.type' must be a string.", param=f"{where}.type")
    if kind == "reasoning":
        # Clients hand back what they were given; llama.cpp wants the thoughts themselves.
        thoughts = isinstance(item.get("content"), list) and item["content"]
        return {**item, "summary": item.get("summary") or []} if thoughts else None
    if kind is None and "role" not in item:
        raise InvalidArgument(
            f"'{where}' must have a 'role' (a message) or a 'type' such as `function_call_output`.", param=where
        )
    if kind not in (None, "message"):
        if kind not in _NEEDED:
            raise InvalidArgument(
                f"'{where}.type' must be one of: message, reasoning, {', '.join(_NEEDED)}, not {kind[:80]!r}.",
                param=f"{where}.type",
            )
        for name in _NEEDED[kind]:
            if item.get(name) is None:
                raise InvalidArgument(f"'{where}' must have '{name}', as every `{kind}` has.", param=f"{where}.{name}")
        return {key: value for key, value in item.items() if value is not None}
    role, content = item.get("role"), item.get("content")
    if role not in _ROLES:
        raise InvalidArgument(f"'{where}.role' must be one of: {', '.join(_ROLES)}.", param=f"{where}.role")
    if not isinstance(content, str | list):
        raise InvalidArgument(f"'{where}.content' must be a string or an array.", param=f"{where}.content")
    if role == "assistant":
        parts = [{"type": "output_text", "text": content}] if isinstance(content, str) else content
        return {**item, "type": "message", "content": [_said(part) for part in parts]}
    if isinstance(content, list):
        content = [_asked(part) for part in content]
    return {**item, "type": "message", "content": content}


def _said(part: Any) -> Any:
    """A part of an assistant's message; a refusal was a text, too."""
    if isinstance(part, dict) and part.get("type") in ("text", "input_text", "refusal"):
        text = part.get("refusal") if part["type"] == "refusal" else part.get("text")
        return {"type": "output_text", "text": text or ""}
    return part


def _asked(part: Any) -> Any:
    """A part of anybody else's message; some clients use the word of chats."""
    return {**part, "type": "input_text"} if isinstance(part, dict) and part.get("type") == "text" else part


def _tool(tool: Tree, number: int) -> Tree:
    if not isinstance(tool.get("type"), str):
        raise InvalidArgument(
            f"'tools[{number}].type' must be a string, such as `function`.", param=f"tools[{number}].type"
        )
    if tool.get("type") == "function" and not isinstance(tool.get("name"), str):
        raise InvalidArgument(f"'tools[{number}].name' must be a string.", param=f"tools[{number}].name")
    cleaned: Tree = without_explosions(tool)
    return cleaned


def _refuse_what_is_kept(request: ResponsesRequest) -> None:
    for name in ("previous_response_id", "conversation", "prompt"):
        if isinstance(getattr(request, name), str | dict):
            raise InvalidArgument(
                f"'{name}' cannot be followed, since nothing is kept here; send all of it in 'input'.", param=name
            )
    if request.background is True:
        raise InvalidArgument(
            "'background' cannot be true: answers are not kept, so nobody could fetch it; leave it out.",
            param="background",
        )


def _check_choice(choice: str | Tree | UnsetType | None, body: Tree) -> None:
    """Refuses a choice of what is not offered."""
    if isinstance(choice, str):
        if choice not in TOOL_CHOICES:
            raise InvalidArgument(
                f"'tool_choice' must be one of: {', '.join(TOOL_CHOICES)}, or an object that names a function.",
                param="tool_choice",
            )
        if choice == "required" and not body.get("tools"):
            raise InvalidArgument("'tool_choice' is `required`, but 'tools' offers none.", param="tool_choice")
    if not isinstance(choice, dict):
        return
    name = choice.get("name")
    if choice.get("type") != "function" or not isinstance(name, str):
        raise InvalidArgument("'tool_choice' must name a function.", param="tool_choice")
    tools = [tool for tool in body.get("tools", []) if tool.get("name") == name]
    if not tools:
        raise InvalidArgument(
            f"'tool_choice' names the function '{name}', which 'tools' does not offer.", param="tool_choice"
        )


def _format(form: Tree) -> Tree:
    """`text.format` in the words of chats."""
    kind = form.get("type")
    if kind not in ("text", "json_object", "json_schema"):
        raise InvalidArgument(
            "'text.format.type' must be one of: text, json_object, json_schema.", param="text.format.type"
        )
    if kind != "json_schema":
        return {"type": kind}
    if not isinstance(form.get("schema"), dict):
        raise InvalidArgument("'text.format.schema' must be an object.", param="text.format.schema")
    return {"type": kind, "json_schema": {key: value for key, value in form.items() if key != "type"}}


def _apply_reasoning(body: Tree) -> None:
    effort = body.get("reasoning", {}).get("effort")
    if not isinstance(effort, str):
        return
    body.setdefault("reasoning_effort", effort)
    if effort == "none":
        arguments = body.setdefault("chat_template_kwargs", {})
        if isinstance(arguments, dict):
            arguments.setdefault("enable_thinking", False)


class _Reply(msgspec.Struct):
    output: list[msgspec.Raw]
    model: str = ""
    usage: msgspec.Raw = NO_FIGURES
    timings: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    """The engine's whole answer with the model's name as it was asked for, and its figures.

    Raises:
        msgspec.MsgspecError: the answer is no response.
    """
    reply = _reply_decoder.decode(body)
    figures = measured(reply.usage, reply.timings)
    if reply.model == asked:
        return body, figures
    return msgspec.json.encode({**msgspec.json.decode(body), "model": asked}), figures
