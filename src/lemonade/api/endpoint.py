"""One declaration per endpoint.

Routing, validation, `/openapi.json`, the page at `/docs` and the files under `docs/api/` are all read from it, so that
a field which stands in no declaration does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lemonade.api.render import OPENAI, Dialect
from lemonade.errors import InvalidArgument, InvalidJSON, MissingArgument, RequestError

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange

#: Every OpenAI and Lemonade route exists under these; clients of all ages differ in the one they use.
PREFIXES = ("/v1", "/v0", "/api/v1", "/api/v0")
ROOT = ("",)

Handler = Callable[["Exchange", Any], Awaitable[None]]


class Support(StrEnum):
    """How much of what the specification says of an endpoint is there."""

    FULL = "fully_available"
    PARTIAL = "partially_available"


@dataclass(frozen=True, slots=True)
class ErrorRow:
    """One line of an endpoint's table of errors."""

    status: int
    code: str | None
    when: str


INVALID_JSON = ErrorRow(400, "invalid_json", "The body is not a JSON object.")
MISSING_ARGUMENT = ErrorRow(400, "missing_argument", "A required argument is missing.")
INVALID_ARGUMENT = ErrorRow(
    400, "invalid_argument", "An argument, or a value nested in it, has the wrong type or value."
)
INVALID_FORM = ErrorRow(400, "invalid_form", "The body is not a form, or a broken one.")
BODY_ERRORS = (INVALID_JSON, MISSING_ARGUMENT, INVALID_ARGUMENT)
FORM_ERRORS = (INVALID_FORM, MISSING_ARGUMENT, INVALID_ARGUMENT)
NAME_ERRORS = (
    ErrorRow(404, "model_not_found", "No model has that name."),
    ErrorRow(404, "model_not_supported", "This machine cannot run the model; the message says why."),
)
LOAD_ERRORS = (
    *NAME_ERRORS,
    ErrorRow(400, "model_load_refused", "The engine refuses the model before it starts anything."),
    ErrorRow(409, "slots_pinned_error", "Every loaded model of this type is pinned."),
    ErrorRow(409, "router_residency_conflict", "Loading would evict a model that a router needs."),
    ErrorRow(500, "model_load_error", "The download failed, or the engine did not start."),
    ErrorRow(503, "unavailable", "The daemon is stopping."),
)
ENGINE_ERRORS = (
    ErrorRow(429, "queue_full", "Too many requests wait for this model; `Retry-After` says when to come back."),
    ErrorRow(500, None, "The engine reports an error; its own status replaces this one when it sends one."),
    ErrorRow(501, None, "The engine was not started for this kind of request."),
    ErrorRow(502, "backend_unavailable", "The engine went away twice with the request inside."),
    ErrorRow(
        503,
        "context_shared",
        "Requests that the model answered at once outgrew the context that its slots share; `Retry-After` says when to "
        "come back.",
    ),
)
#: What the guard in front of every endpoint may answer.
GUARD_ERRORS = (
    ErrorRow(401, "invalid_api_key", "A key is set and the request does not carry it."),
    ErrorRow(403, None, "The `Host` or `Origin` header names a site that may not call this daemon."),
)
BODY_GUARD_ERRORS = (
    ErrorRow(413, None, "The body is larger than the limit."),
    ErrorRow(415, None, "The body is compressed, or of a type that the endpoint does not take."),
)


class Empty(msgspec.Struct):
    """A body or query without fields."""


@dataclass(frozen=True, kw_only=True)
class Endpoint:
    """What one method of one path takes and gives.

    Attributes:
        id: `family.name`; families are the pages of the reference.
        path: below a prefix; `{id}` takes everything up to the rest of the path, slashes included.
        body: the struct that the JSON body is decoded into, or None when the endpoint takes none.
        body_optional: an empty body, or one that is no JSON, counts as `{}`.
        form: the struct that a `multipart/form-data` body is decoded into; files are of the type `form.Upload`.
        query: the struct that the query string is decoded into.
        response: the struct of the answer, for the reference; the handler writes the bytes.
        response_is_array: the answer is an array of such structs.
        streams: also answers `text/event-stream`.
        errors: beside those of the guard and of body decoding, which every endpoint has.
        changes: changes state, so that a browser page must not be able to send it as a plain form.
        dialect: how failures are told.
    """

    id: str
    method: str
    path: str
    summary: str
    handler: Handler
    description: str = ""
    prefixes: tuple[str, ...] = PREFIXES
    body: type[msgspec.Struct] | None = None
    body_optional: bool = False
    form: type[msgspec.Struct] | None = None
    query: type[msgspec.Struct] = Empty
    response: type[msgspec.Struct] | None = None
    response_is_array: bool = False
    media_type: str = "application/json"
    streams: bool = False
    status: int = 200
    errors: tuple[ErrorRow, ...] = ()
    support: Support = Support.FULL
    changes: bool = False
    dialect: Dialect = OPENAI
    decoder: msgspec.json.Decoder[Any] | None = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "decoder", msgspec.json.Decoder(self.body) if self.body else None)

    @property
    def family(self) -> str:
        return self.id.partition(".")[0]

    @property
    def paths(self) -> tuple[str, ...]:
        """All paths under which the endpoint answers, the one to show first."""
        return tuple(prefix + self.path for prefix in self.prefixes)

    @property
    def all_errors(self) -> tuple[ErrorRow, ...]:
        body: tuple[ErrorRow, ...] = ()
        if self.body or self.form:
            body = (*(BODY_ERRORS if self.body else FORM_ERRORS), *BODY_GUARD_ERRORS)
        query = () if self.query is Empty else (INVALID_ARGUMENT,)
        open_path = self.path in ("/live", "/openapi.json", "/docs")
        return (*body, *query, *self.errors, *(GUARD_ERRORS[1:] if open_path else GUARD_ERRORS))

    def decode(self, raw: bytes) -> Any:
        """The body as the endpoint's struct.

        Raises:
            InvalidJSON, MissingArgument, InvalidArgument: told apart, and naming the field.
        """
        assert self.decoder is not None
        try:
            return self._decode(raw)
        except RequestError:
            if self.body_optional and not _is_object(raw):
                return self.decoder.decode(b"{}")
            raise

    def _decode(self, raw: bytes) -> Any:
        assert self.decoder is not None
        try:
            # The decoder checks only the strings that it keeps; the rest goes to an engine as it came.
            if not raw.isascii():
                raw.decode()
            return self.decoder.decode(raw)
        except msgspec.ValidationError as error:
            if not _is_json(raw):
                # It stopped at the first wrong field, before it came to what is no JSON at all.
                raise InvalidJSON("The request body is not valid JSON.") from None
            raise explain(str(error), self.body) from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InvalidJSON(f"The request body is not valid JSON: {error}.") from None
        except RecursionError:
            raise InvalidJSON("The request body is nested too deeply.") from None

    def cause(self, error: Exception, raw: bytes) -> Exception:
        """What is to be told of a handler's failure, which may have come upon a number that `decode` passes over.

        `decode` looks at the fields that the endpoint has. To look at all of every body first would cost more.
        """
        if self.body is not None and isinstance(error, msgspec.ValidationError):
            try:
                msgspec.json.decode(raw)
            except msgspec.ValidationError:
                return InvalidArgument("The request body holds a number that is too large for any use.")
        return error


def _is_json(raw: bytes) -> bool:
    try:
        msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return False
    return True


def _is_object(raw: bytes) -> bool:
    try:
        return isinstance(msgspec.json.decode(raw), dict)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False


_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$\.?(?P<path>.*)`)?$", re.DOTALL)
_MISSING = re.compile(r"missing required field `(?P<name>[^`]+)`")
_JSON_NAMES = {"int": "an integer", "float": "a number", "str": "a string", "bool": "true or false"}
_JSON_NAMES |= {"array": "an array", "object": "an object", "null": "null"}


def explain(message: str, body: type[msgspec.Struct] | None = None) -> RequestError:
    """The decoder's message as an error that names the field in the client's words.

    Args:
        body: what was decoded into, whose fields say which words can stand there.
    """
    match = _AT.match(message)
    assert match is not None
    what, path = match["what"], match["path"] or ""
    if missing := _MISSING.search(what):
        name = f"{path}.{missing['name']}" if path else missing["name"]
        return MissingArgument(name)
    if not path:
        return InvalidJSON("The request body must be a JSON object.") if "`object`" in what else InvalidArgument(what)
    if kinds := re.match(r"Expected `(?P<want>[^`]+)`, got `(?P<got>[^`]+)`", what):
        want = [_JSON_NAMES.get(kind, kind) for kind in kinds["want"].split(" | ") if kind != "null"]
        got = _JSON_NAMES.get(kinds["got"], kinds["got"])
        what = f"must be {' or '.join(want)}, not {got}"
    elif wanted := re.match(r"Expected `(?P<kind>\w+)` (?P<bound>.*)$", what):
        what = f"must be {_JSON_NAMES.get(wanted['kind'], wanted['kind'])} {wanted['bound']}"
    elif wrong := re.match(r"Invalid enum value (?P<value>.*)$", what):
        words = _words(body, path)
        what = f"must be one of {', '.join(words)}, not {wrong['value']}" if words else f"cannot be {wrong['value']}"
    else:
        what = f"is not valid: {what[:1].lower()}{what[1:]}"
    return InvalidArgument(f"'{path}' {what}.", param=path)


class Queried(Protocol):
    """An endpoint of any kind that has a query."""

    @property
    def query(self) -> type[msgspec.Struct]: ...


def _words(body: type[msgspec.Struct] | None, path: str) -> list[str]:
    """The words that a field of a body takes, or an item of it, as far as they can be told."""
    if body is None:
        return []
    name = re.sub(r"\[\d+\]$", "", path)
    info = msgspec.inspect.type_info(body)
    assert isinstance(info, msgspec.inspect.StructType)
    kinds = [field.type for field in info.fields if field.encode_name == name]
    found: list[str] = []
    while kinds:
        kind = kinds.pop()
        if isinstance(kind, msgspec.inspect.LiteralType):
            found += [str(value) for value in kind.values]
        elif isinstance(kind, msgspec.inspect.UnionType):
            kinds += kind.types
        elif isinstance(kind, msgspec.inspect.Metadata):
            kinds.append(kind.type)
        elif isinstance(kind, msgspec.inspect.ListType):
            kinds.append(kind.item_type)
    return sorted(found)


def decode_query(endpoint: Queried, query: bytes) -> Any:
    """The query string as the endpoint's struct. Of a key that is given twice the first value counts."""
    if not query:
        return endpoint.query()
    from urllib.parse import parse_qsl

    values: dict[str, str] = {}
    for key, value in parse_qsl(query.decode("latin-1"), keep_blank_values=True):
        values.setdefault(key, value)
    try:
        return msgspec.convert(values, endpoint.query, strict=False)
    except msgspec.ValidationError as error:
        raise explain(str(error)) from None
