"""The API's description, made from the endpoint declarations: OpenAPI 3.1, the page at `/docs`, and `docs/api/`.

python -m lemonade.api.reference docs/api      writes the pages anew
"""

from __future__ import annotations

import html
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import msgspec

from lemonade import __version__
from lemonade.api.endpoint import Empty, Endpoint, ErrorRow
from lemonade.api.form import Upload
from lemonade.api.websocket import WebSocketEndpoint

FAMILIES = {
    "openai": "OpenAI-compatible API",
    "anthropic": "Anthropic-compatible API",
    "lemonade": "Lemonade API",
    "internal": "Administration",
    "meta": "Description of the API",
}


class Field(msgspec.Struct, frozen=True):
    """One documented field of a struct."""

    name: str
    required: bool
    about: str


def fields(struct: type[msgspec.Struct]) -> Iterator[Field]:
    """The fields of a struct with what their declarations say of them."""
    hints = get_type_hints(struct, include_extras=True)
    for field in msgspec.structs.fields(struct):
        about = ""
        if get_origin(hints[field.name]) is Annotated:
            about = next(
                (m.description or "" for m in get_args(hints[field.name])[1:] if isinstance(m, msgspec.Meta)), ""
            )
        yield Field(field.encode_name, field.required, about)


# OpenAPI


def openapi(endpoints: Iterable[Endpoint]) -> dict[str, Any]:
    """The OpenAPI 3.1 document. Each operation stands once, under its first path; the others are said in words."""
    endpoints = list(endpoints)
    structs = {
        part
        for one in endpoints
        for part in (one.body, one.form, one.response, one.query)
        if part and part is not Empty
    }
    ordered = sorted(structs, key=lambda struct: struct.__name__)
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}", schema_hook=_schema
    )
    references = dict(zip(ordered, schemas, strict=True))
    components["Error"] = _ERROR_SCHEMA
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.paths[0], {})[endpoint.method.lower()] = _operation(endpoint, references, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Lemonade",
            "version": __version__,
            "description": "Every path under `/v1` also answers under `/v0`, `/api/v1` and `/api/v0`.",
        },
        "paths": paths,
        "components": {"schemas": components, "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}}},
        "security": [{}, {"key": []}],
    }


_ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "code": {"type": "string"},
                "param": {"type": "string"},
            },
        }
    },
}


def _schema(kind: type) -> dict[str, Any]:
    """Of what JSON cannot hold."""
    if kind is not Upload:
        raise NotImplementedError
    return {"type": "string", "format": "binary"}


def _operation(endpoint: Endpoint, references: dict[Any, Any], components: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {"operationId": endpoint.id, "summary": endpoint.summary, "tags": [endpoint.family]}
    if endpoint.description:
        operation["description"] = endpoint.description
    parameters = []
    if "{id}" in endpoint.path:
        parameters.append({"name": "id", "in": "path", "required": True, "schema": {"type": "string", "minLength": 1}})
    if endpoint.query is not Empty:
        schema = components[endpoint.query.__name__]
        for field in fields(endpoint.query):
            # A value is said to be false as often as it is left out.
            kind = {key: value for key, value in schema["properties"][field.name].items() if key != "description"}
            parameters.append({"name": field.name, "in": "query", "description": field.about, "schema": kind})
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        schema = references.get(endpoint.body, {"type": "object"})
        operation["requestBody"] = {
            "required": not endpoint.body_optional,
            "content": {"application/json": {"schema": schema}},
        }
    if endpoint.form is not None:
        content = {"multipart/form-data": {"schema": references[endpoint.form]}}
        operation["requestBody"] = {"required": True, "content": content}
    answer: dict[str, Any] = {}
    if endpoint.media_type != "application/json":
        answer[endpoint.media_type] = {"schema": {"type": "string"}}
    else:
        schema = references.get(endpoint.response, {"type": "object"})
        answer["application/json"] = {
            "schema": {"type": "array", "items": schema} if endpoint.response_is_array else schema
        }
    if endpoint.streams:
        # No type: some tools hold the whole stream to it, others each event.
        answer["text/event-stream"] = {"schema": {"description": "Server-sent events."}}
    operation["responses"] = {str(endpoint.status): {"description": "OK", "content": answer}}
    for status, rows in _by_status(endpoint.all_errors).items():
        operation["responses"][str(status)] = {
            "description": " ".join(f"`{row.code}`: {row.when}" if row.code else row.when for row in rows),
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
        }
    return operation


def _by_status(rows: Iterable[ErrorRow]) -> dict[int, list[ErrorRow]]:
    grouped: dict[int, list[ErrorRow]] = {}
    for row in sorted(set(rows), key=lambda row: (row.status, row.code or "", row.when)):
        grouped.setdefault(row.status, []).append(row)
    return grouped


# Markdown


def markdown(family: str, endpoints: Iterable[Endpoint], sockets: Iterable[WebSocketEndpoint] = ()) -> str:
    """One page of the reference."""
    lines = [f"# {FAMILIES[family]}", "", "Generated from the endpoint declarations; do not edit.", ""]
    for endpoint in endpoints:
        if endpoint.family == family:
            lines += _section(endpoint)
    for socket in sockets:
        if socket.family == family:
            lines += _socket_section(socket)
    return "\n".join(lines).rstrip() + "\n"


def _section(endpoint: Endpoint) -> list[str]:
    lines = [f"## `{endpoint.method} {endpoint.paths[0]}`", "", f"{endpoint.summary}.", ""]
    if endpoint.description:
        lines += [endpoint.description, ""]
    for title, body in (("Body", endpoint.body), ("Form (`multipart/form-data`)", endpoint.form)):
        if body is not None and body is not Empty:
            lines += [f"### {title}", ""]
            if body.__doc__:
                lines += [inspect.cleandoc(body.__doc__), ""]
            lines += _table(body)
    if endpoint.query is not Empty:
        lines += ["### Query", "", *_table(endpoint.query)]
    if endpoint.response is not None:
        lines += ["### Response", ""]
        if endpoint.streams:
            lines += ["As JSON, or with `stream` as `text/event-stream`.", ""]
        if endpoint.response_is_array:
            lines += ["An array of objects with these keys:", ""]
        lines += [f"- `{field.name}`: {field.about}" for field in fields(endpoint.response)] + [""]
    return [*lines, *_errors("Errors", endpoint.all_errors)]


def _socket_section(socket: WebSocketEndpoint) -> list[str]:
    lines = [f"## `WS {socket.paths[0]}`", "", f"{socket.summary}.", "", socket.description, ""]
    if socket.query is not Empty:
        lines += ["### Query", "", *_table(socket.query)]
    for title, structs in (("From the client", socket.receives), ("From the daemon", socket.sends)):
        lines += [f"### {title}", ""]
        for struct in structs:
            lines += [f"`{struct.__struct_config__.tag}`: {_about(struct)}", ""]
            lines += [f"- `{field.name}`: {field.about}" for field in fields(struct)]
            lines += [""]
    return [*lines, *_errors("Refusals of the handshake", socket.all_errors)]


def _about(struct: type[msgspec.Struct]) -> str:
    return " ".join((inspect.getdoc(struct) or "").split())


def _errors(title: str, errors: Iterable[ErrorRow]) -> list[str]:
    lines = [f"### {title}", "", "| Status | Code | When |", "| --- | --- | --- |"]
    for status, rows in _by_status(errors).items():
        lines += [f"| {status} | {f'`{row.code}`' if row.code else ''} | {row.when} |" for row in rows]
    return [*lines, ""]


def _table(struct: type[msgspec.Struct]) -> list[str]:
    lines = ["| Name | Required | Meaning |", "| --- | --- | --- |"]
    for field in fields(struct):
        lines.append(f"| `{field.name}` | {'yes' if field.required else 'no'} | {field.about} |")
    return [*lines, ""]


def pages(endpoints: Iterable[Endpoint], sockets: Iterable[WebSocketEndpoint] = ()) -> dict[str, str]:
    """File name to text of every page under `docs/api/`."""
    endpoints, sockets = list(endpoints), list(sockets)
    return {f"{family}.md": markdown(family, endpoints, sockets) for family in FAMILIES}


# The page at /docs


def page(endpoints: Iterable[Endpoint], sockets: Iterable[WebSocketEndpoint] = ()) -> str:
    """The reference as one HTML page that loads nothing from anywhere."""
    parts = [_PAGE_HEAD]
    endpoints, sockets = list(endpoints), list(sockets)
    for family, title in FAMILIES.items():
        parts.append(f"<h1>{title}</h1>")
        parts += [_html_section(one) for one in endpoints if one.family == family]
        parts += [_html_socket(one) for one in sockets if one.family == family]
    return "".join(parts)


_PAGE_HEAD = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Lemonade API</title>
<meta name="viewport" content="width=device-width,initial-scale=1"><style>
body{font:16px/1.5 system-ui,sans-serif;max-width:52rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}
code{font:0.9em ui-monospace,monospace}summary{cursor:pointer;padding:.3rem 0}table{border-collapse:collapse}
td,th{text-align:left;vertical-align:top;padding:.2rem .8rem .2rem 0}</style>
<p>Machine-readable: <a href="/openapi.json">/openapi.json</a>.</p>"""


def _html_section(endpoint: Endpoint) -> str:
    escape = html.escape
    head = f"<code>{endpoint.method} {escape(endpoint.paths[0])}</code> {escape(endpoint.summary)}"
    parts = [f"<details><summary>{head}</summary><p>{escape(endpoint.description)}</p>"]
    parts_of_it = (
        ("Body", endpoint.body),
        ("Form", endpoint.form),
        ("Query", endpoint.query),
        ("Response", endpoint.response),
    )
    for title, struct in parts_of_it:
        if struct is not None and struct is not Empty:
            parts.append(f"<h3>{title}</h3>{_html_fields(struct)}")
    return "".join(parts) + _html_errors(endpoint.all_errors)


def _html_socket(socket: WebSocketEndpoint) -> str:
    escape = html.escape
    head = f"<code>WS {escape(socket.paths[0])}</code> {escape(socket.summary)}"
    parts = [f"<details><summary>{head}</summary><p>{escape(socket.description)}</p>"]
    if socket.query is not Empty:
        parts.append(f"<h3>Query</h3>{_html_fields(socket.query)}")
    for title, structs in (("From the client", socket.receives), ("From the daemon", socket.sends)):
        parts.append(f"<h3>{title}</h3>")
        for struct in structs:
            parts.append(
                f"<p><code>{struct.__struct_config__.tag}</code> {escape(_about(struct))}{_html_fields(struct)}"
            )
    return "".join(parts) + _html_errors(socket.all_errors)


def _html_fields(struct: type[msgspec.Struct]) -> str:
    rows = (
        f"<tr><td><code>{html.escape(field.name)}</code><td>{'required' if field.required else ''}"
        f"<td>{html.escape(field.about)}"
        for field in fields(struct)
    )
    return f"<table>{''.join(rows)}</table>"


def _html_errors(errors: Iterable[ErrorRow]) -> str:
    rows = (
        f"<tr><td>{row.status}<td><code>{row.code or ''}</code><td>{html.escape(row.when)}"
        for group in _by_status(errors).values()
        for row in group
    )
    return f"<h3>Errors</h3><table>{''.join(rows)}</table></details>"


def main() -> None:
    from lemonade.api.table import ENDPOINTS, SOCKETS

    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages(ENDPOINTS, SOCKETS).items():
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
