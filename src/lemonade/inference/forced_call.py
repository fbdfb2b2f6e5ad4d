"""A call that a model must make, by `tool_choice`.

llama.cpp reads a named choice as `auto`, and enforces `required` for some chat templates only. But a JSON schema binds
every model: so the arguments themselves are asked for as a JSON answer, and what comes is told as the call that it is.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from typing import Any

import msgspec

from lemonade.inference.choices import Untouched

Tree = dict[str, Any]

_ANY: Tree = {"type": "object", "properties": {}}
#: The beginning of an answer that says which function it calls.
_HEAD = re.compile(r'\s*\{\s*"name"\s*:\s*("(?:[^"\\]|\\.)*")\s*,\s*"arguments"\s*:\s*')


def force(body: Tree, names: Sequence[str]) -> None:
    """Makes a chat's body ask for the arguments of a call.

    Args:
        body: has `tools` with functions; changed.
        names: of the functions, one of which has to be called.
    """
    functions = [tool["function"] for tool in body["tools"] if tool["function"]["name"] in names]
    ask_for_call(body, functions)


def ask_for_call(body: Tree, functions: Sequence[Tree]) -> None:
    """Makes a body ask for the arguments of a call to one of these functions, or, of several, for its name and them.

    Args:
        body: of a chat or a response; changed.
        functions: each with `name` and perhaps `parameters`, a JSON schema.
    """
    schema = functions[0].get("parameters") or _ANY if len(functions) == 1 else _one_of(functions)
    body["tool_choice"] = "none"
    body["response_format"] = {"type": "json_schema", "json_schema": {"name": "call", "schema": schema}}


def _one_of(functions: Sequence[Tree]) -> Tree:
    """The schema of a call to any of them."""
    calls = []
    roots = {}
    for number, function in enumerate(functions):
        parameters = function.get("parameters") or _ANY
        moved = _moved(parameters, f"#/$defs/{number}")
        if moved != parameters:
            # What references lead to must be found from the root of the whole schema.
            roots[str(number)] = moved
            moved = {"$ref": f"#/$defs/{number}"}
        properties = {"name": {"const": function["name"]}, "arguments": moved}
        calls.append({"type": "object", "properties": properties, "required": ["name", "arguments"]})
    return {"anyOf": calls, **({"$defs": roots} if roots else {})}


def _moved(schema: Any, root: str) -> Any:
    """A schema whose references to itself (`#…`) start at `root`."""
    if isinstance(schema, list):
        return [_moved(item, root) for item in schema]
    if not isinstance(schema, dict):
        return schema
    moved = {key: _moved(value, root) for key, value in schema.items()}
    if isinstance(reference := schema.get("$ref"), str) and reference.startswith("#"):
        moved["$ref"] = root + reference[1:]
    return moved


class ForcedCall(Untouched):
    """Tells the content of each choice as a call.

    Args:
        names: as for `force`. Of several, the content says which it is.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._name = names[0] if len(names) == 1 else None
        self._calls: dict[int, CallReader] = {}

    def edit(self, number: int, choice: Tree) -> None:
        call = self._calls.setdefault(number, CallReader(self._name))
        if isinstance(message := choice.get("message"), dict):
            parts = [*call.feed(message.get("content") or ""), *call.end()]
            message["content"] = None
            message["tool_calls"] = [call.told("".join(parts))]
        elif isinstance(delta := choice.get("delta"), dict):
            parts = call.feed(delta.pop("content", None) or "")
            if choice.get("finish_reason"):
                parts += call.end()
            if call.is_open and (parts or not call.is_told):
                delta["tool_calls"] = [{"index": 0, **call.told("".join(parts))}]
            elif "role" in delta:
                delta["content"] = None
        if choice.get("finish_reason") == "stop":
            choice["finish_reason"] = "tool_calls"


class CallReader:
    """One call, read piece by piece.

    Args:
        name: of the function; None when the content says which it is.

    Attributes:
        name: of the function, as soon as it is known.
    """

    def __init__(self, name: str | None) -> None:
        self.name = name
        self._whole = name is None
        self._held = ""
        self._begun = False
        self._id = f"call_{secrets.token_hex(12)}"
        self.is_open = False
        self.is_told = False

    def feed(self, text: str) -> list[str]:
        """The arguments in the next piece of the content."""
        if not text:
            return []
        if not self._whole:
            self.is_open = True
            return [text]
        self._held += text
        if not self.is_open:
            head = _HEAD.match(self._held)
            if head is None:
                return []
            self.name = msgspec.json.decode(head[1])
            self._held = self._held[head.end() :]
            self.is_open = True
        if not self._begun:
            # However the text is cut, the arguments begin at the same place.
            self._held = self._held.lstrip()
            self._begun = bool(self._held)
        # The last brace may be that of the whole answer.
        cut = self._held.rfind("}")
        ready, self._held = (self._held, "") if cut < 0 else (self._held[:cut], self._held[cut:])
        return [ready] if ready else []

    def end(self) -> list[str]:
        """What is left of the arguments at the end: never the brace that closes the whole answer."""
        self._held = ""
        self.is_open = True
        return []

    def told(self, arguments: str) -> Tree:
        """The call as OpenAI tells it; from the second time on only what was added."""
        if self.is_told:
            return {"function": {"arguments": arguments}}
        self.is_told = True
        return {"id": self._id, "type": "function", "function": {"name": self.name or "", "arguments": arguments}}
