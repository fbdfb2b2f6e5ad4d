"""A cloud provider for tests: strict about what it is sent, and it misbehaves by the name of the model.

    python tests/engines/fake_provider.py PORT [--wire anthropic] [--key KEY]

good            answers "Hello from afar." in four pieces           split       the same, one byte at a time
calls           calls the function `weather`                        long        pieces that never end
slow            waits half a second before the head                 stalls      two pieces, and then nothing
cut             two pieces, then the socket breaks                  unended     two pieces, then an orderly end
no-done         all pieces, but no [DONE]                           silent      the head of a stream, then its end
error-first     an error as the first event                         error-later an error after two pieces
html            a page with status 200                              text-stream a stream that is no stream of events
whole           a whole answer where a stream is asked for          half        a whole answer that is cut off
moved           a redirect to `elsewhere`                           hangs-up    closes without an answer
busy            429 with Retry-After: 7                             down        503 with a page of a proxy
denied          403 that repeats the key                            tells       repeats the key in its text
newer           refuses `max_tokens`                                older       refuses `stream_options`
cookies         sets one                                            crlf        events that end with CRLF
overloaded      503 in JSON                                         azure       begins with an event that names no model
changes         is another model from one event to the next         nested      JSON that no decoder gets to the end of

Whatever the model, a wrong key, a field that it does not know, a cookie, another content type or a forgotten version
of the API is an error, so that a daemon that sends such things fails its tests.
"""

from __future__ import annotations

import argparse
import itertools
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

MODELS = [
    *("good", "split", "calls", "long", "slow", "stalls", "cut", "unended", "no-done", "silent", "error-first"),
    *("error-later", "html", "text-stream", "whole", "half", "moved", "hangs-up", "busy", "down", "denied", "tells"),
    *("newer", "older", "cookies", "crlf", "overloaded", "azure", "changes", "nested"),
]
TEXT = ["Hello", " from", " afar", "."]
#: What OpenAI's API knows of a chat, as far as clients in tests send it.
KNOWN = {
    *("model", "messages", "stream", "stream_options", "max_tokens", "max_completion_tokens", "temperature", "tools"),
    *(
        "tool_choice",
        "stop",
        "seed",
        "top_p",
        "n",
        "prompt",
        "response_format",
        "user",
        "parallel_tool_calls",
        "logprobs",
    ),
    *(
        "input",
        "dimensions",
        "encoding_format",
        "metadata",
        "store",
        "presence_penalty",
        "frequency_penalty",
        "max_output_tokens",
        "reasoning_effort",
    ),
}
NESTED = b'{"choices": ' + b"[" * 60_000 + b"]" * 60_000 + b"}"
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13, "prompt_tokens_details": {"cached_tokens": 3}}


class FakeProvider(ThreadingHTTPServer):
    """Serves in a thread of its own; a context manager.

    Attributes:
        requests: of all requests, in order: method, path, headers (names in lower case), body, and whether the client
            left before the answer was complete.
        rows: what it lists; None for a list of `MODELS`.
        listing: what `GET /models` does instead of answering well: `fail`, `page`, `moved`, `hang`, `nested`.
        elsewhere: where redirects lead.
    """

    daemon_threads = True
    request_queue_size = 64

    def __init__(
        self,
        key: str | None = "ck-right-key",
        *,
        wire: str = "openai",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
        header: tuple[str, str] | None = None,
    ) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key = key
        self.wire = wire
        self.header = header or (("x-api-key", "") if wire == "anthropic" else ("authorization", "Bearer "))
        self.requests: list[dict[str, Any]] = []
        self.rows: Any = None
        self.listing = ""
        self.elsewhere = ""
        self.scheme = "https" if tls else "http"
        if tls:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> FakeProvider:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error here."""

    def asked(self, path: str = "/v1/chat/completions") -> list[dict[str, Any]]:
        """The requests to a path."""
        return [one for one in self.requests if urlsplit(one["path"]).path == path]

    @property
    def last(self) -> dict[str, Any]:
        return self.requests[-1]


class Refused(Exception):
    def __init__(self, status: int, message: str, **more: Any) -> None:
        super().__init__(message)
        self.status, self.more = status, more


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeProvider

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        self._answer(self.rfile.read(int(self.headers.get("Content-Length", 0))))

    def log_message(self, *args: Any) -> None:
        pass

    def _answer(self, raw: bytes | None) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self._seen: dict[str, Any] = {"method": self.command, "path": self.path, "headers": headers, "hung_up": False}
        self._seen["body"] = json.loads(raw) if raw else None
        self.server.requests.append(self._seen)
        try:
            self._check(headers)
            path = urlsplit(self.path).path
            if path == "/v1/models" and self.command == "GET":
                self._models()
            elif path in ("/v1/chat/completions", "/v1/completions", "/v1/responses"):
                if self.server.wire != "openai":
                    raise Refused(404, "no such path")
                self._misbehave() or self._speak(path.removeprefix("/v1/"))
            elif path == "/v1/embeddings" and self.server.wire == "openai":
                self._misbehave() or self._embed()
            elif path == "/v1/messages/count_tokens" and self.server.wire == "anthropic":
                self._json(200, {"input_tokens": 9})
            elif path == "/v1/messages" and self.server.wire == "anthropic":
                self._misbehave() or self._speak("messages")
            else:
                raise Refused(404, "no such path")
        except Refused as error:
            self._fail(error.status, str(error), **error.more)
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError):
            self._seen["hung_up"] = True
            self.close_connection = True

    def _check(self, headers: dict[str, str]) -> None:
        server = self.server
        name, prefix = server.header
        given = headers.get(name, "")
        if server.key is not None and given != f"{prefix}{server.key}":
            raise Refused(401, f"Incorrect API key provided: {given}", type="authentication_error")
        if "cookie" in headers:
            raise Refused(400, "a cookie of somebody else's conversation")
        if server.wire == "anthropic" and "anthropic-version" not in headers:
            raise Refused(400, "anthropic-version: header is required")
        if self._seen["body"] is None:
            return
        if headers.get("content-type") != "application/json":
            raise Refused(415, "send application/json")
        if server.wire == "openai":
            if unknown := self._seen["body"].keys() - KNOWN:
                raise Refused(400, f"Unrecognized request argument supplied: {', '.join(sorted(unknown))}")
            if any(value is None for value in self._seen["body"].values()):
                raise Refused(400, "null is not of type 'string'")
        if self._model not in MODELS:
            raise Refused(404, f"The model `{self._model}` does not exist", code="model_not_found", param="model")

    @property
    def _model(self) -> str:
        return str(self._seen["body"]["model"]).rpartition("/")[2]

    def _models(self) -> None:
        listing = self.server.listing
        if listing == "fail":
            raise Refused(500, "the list is broken")
        if listing == "page":
            self._send(200, b"<html>welcome</html>", "text/html")
        elif listing == "nested":
            self._send(200, NESTED, "application/json")
        elif listing == "moved":
            self._redirect()
        elif listing == "hang":
            time.sleep(30)
        else:
            rows = self.server.rows
            self._json(200, {"object": "list", "data": [{"id": name} for name in MODELS]} if rows is None else rows)

    def _misbehave(self) -> bool:
        """Does what comes instead of an answer; whether there was such a thing."""
        model, body = self._model, self._seen["body"]
        if model == "slow":
            time.sleep(0.5)
        elif model == "moved":
            self._redirect()
            return True
        elif model == "hangs-up":
            self._break()
            return True
        elif model == "busy":
            self._fail(429, "Rate limit reached", headers={"Retry-After": "7"}, type="rate_limit_error")
            return True
        elif model == "overloaded":
            self._fail(503, "The model is overloaded")
            return True
        elif model == "down":
            self._send(503, b"<html><h1>Service Unavailable</h1></html>", "text/html")
            return True
        elif model == "denied":
            self._fail(403, f"The key {self.server.key} may not do this", code=f"no-{self.server.key}")
            return True
        elif model == "html":
            self._send(200, b"<html>Buy our API</html>", "text/html")
            return True
        elif model == "nested":
            self._send(200, NESTED, "application/json")
            return True
        elif model == "whole" or (model == "text-stream" and body.get("stream")):
            self._send(200, b'{"choices": []}' if model == "whole" else b"Hello", "text/plain")
            return True
        elif model == "newer" and "max_tokens" in body:
            message = "Unsupported parameter: 'max_tokens' is not supported. Use 'max_completion_tokens' instead."
            raise Refused(400, message, code="unsupported_parameter", param="max_tokens")
        elif model == "older" and "stream_options" in body:
            raise Refused(422, "extra fields not permitted: stream_options")
        return False

    def _speak(self, kind: str) -> None:
        body = self._seen["body"]
        if not body.get("stream") and self._model == "stalls":
            self._wait_for_end()
            return
        if not body.get("stream"):
            whole = json.dumps(WHOLE[kind](self)).encode()
            if self._model == "half":
                self._head(200, "application/json", len(whole))
                self.wfile.write(whole[:20])
                self._break()
                return
            self._send(200, whole, "application/json", {"x-request-id": "req-1", "x-ratelimit-remaining-requests": "9"})
            return
        more = {"Set-Cookie": "who=somebody"} if self._model == "cookies" else {}
        self._head(200, "text/event-stream; charset=utf-8", None, {"x-request-id": "req-1", **more})
        model = self._model
        if model == "silent":
            self._chunk(b"")
            return
        for number, event in enumerate(EVENTS[kind](self)):
            if number == 2:
                if model == "stalls":
                    self._wait_for_end()
                    return
                if model == "cut":
                    self._break()
                    return
                if model == "unended":
                    break
                if model == "error-later":
                    self._write(data({"error": {"message": "it broke", "type": "server_error"}}))
                    break
            if model == "error-first":
                self._write(data({"error": {"message": "too much at once", "type": "overloaded", "code": 529}}))
                break
            if model == "split":
                for byte in event:
                    self._write(bytes([byte]))
            else:
                self._write(event.replace(b"\n", b"\r\n") if model == "crlf" else event)
        self._chunk(b"")

    def _embed(self) -> None:
        texts = self._seen["body"]["input"]
        count = len(texts) if isinstance(texts, list) else 1
        rows = [{"object": "embedding", "index": number, "embedding": [float(number), 0.5]} for number in range(count)]
        usage = {"prompt_tokens": 5, "total_tokens": 5}
        self._json(200, {"object": "list", "data": rows[::-1], "model": self.snapshot, "usage": usage})

    def _write(self, piece: bytes) -> None:
        self._chunk(piece)

    def _chunk(self, piece: bytes) -> None:
        self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))

    def _wait_for_end(self) -> None:
        """Until the client closes."""
        self.connection.settimeout(20)
        try:
            if not self.connection.recv(1):
                self._seen["hung_up"] = True
        except OSError:
            self._seen["hung_up"] = True
        self.close_connection = True

    def _break(self) -> None:
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_RDWR)
        self.close_connection = True

    def _redirect(self) -> None:
        self._send(307, b"", "text/plain", {"Location": self.server.elsewhere + self.path.removeprefix("/v1")})

    def _fail(self, status: int, message: str, headers: dict[str, str] | None = None, **more: Any) -> None:
        error = {"message": message, **({"type": "invalid_request_error"} | more)}
        told = {"type": "error", "error": error} if self.server.wire == "anthropic" else {"error": error}
        self._json(status, told, {"request-id": "req-2", **(headers or {})})

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        self._send(status, json.dumps(value).encode(), "application/json", headers)

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self._head(status, kind, len(body), headers)
        self.wfile.write(body)

    def _head(self, status: int, kind: str, length: int | None, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if length is None:
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    # What it says.

    def pieces(self) -> Iterator[str]:
        if self._model == "long":
            number = 0
            while True:
                yield f"w{number} "
                number += 1
                time.sleep(0.01)
        elif self._model == "tells":
            yield f"your key is {self.server.key}"
        else:
            yield from TEXT

    @property
    def snapshot(self) -> str:
        """The model's name as providers put it into answers."""
        if self._model == "changes":
            self._seen["named"] = self._seen.get("named", 0) + 1
            return f"changes-{self._seen['named']}"
        return f"{self._model}-2026-01-01"


def data(value: Any) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def chat_chunk(one: Handler, choices: list[dict[str, Any]], **more: Any) -> bytes:
    head = {"id": "chatcmpl-afar", "object": "chat.completion.chunk", "created": 1, "model": one.snapshot}
    return data({**head, "choices": choices, "usage": None, **more})


def chat_events(one: Handler) -> Iterator[bytes]:
    body = one._seen["body"]
    if one._model == "azure":
        yield data({"id": "", "object": "", "created": 0, "model": "", "choices": [], "prompt_filter_results": []})
    if one._model == "calls":
        call = {"index": 0, "id": "call_1", "type": "function", "function": {"name": "weather", "arguments": ""}}
        yield chat_chunk(
            one, [{"index": 0, "delta": {"role": "assistant", "tool_calls": [call]}, "finish_reason": None}]
        )
        part = {"index": 0, "function": {"arguments": '{"place":"Paris"}'}}
        yield chat_chunk(one, [{"index": 0, "delta": {"tool_calls": [part]}, "finish_reason": None}])
        yield chat_chunk(one, [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}])
    else:
        yield chat_chunk(one, [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
        for piece in one.pieces():
            yield chat_chunk(one, [{"index": 0, "delta": {"content": piece}, "finish_reason": None}])
        yield chat_chunk(one, [{"index": 0, "delta": {}, "finish_reason": "stop"}])
    if body.get("stream_options", {}).get("include_usage"):
        yield chat_chunk(one, [], usage=USAGE)
    if one._model != "no-done":
        yield b"data: [DONE]\n\n"


def whole_chat(one: Handler) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": "".join(one.pieces())}
    reason = "stop"
    if one._model == "calls":
        call = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": '{"place":"Paris"}'}}
        message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
    head = {"id": "chatcmpl-afar", "object": "chat.completion", "created": 1, "model": one.snapshot}
    return {**head, "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": USAGE}


def completion_events(one: Handler) -> Iterator[bytes]:
    head = {"id": "cmpl-afar", "object": "text_completion", "created": 1, "model": one.snapshot}
    for piece in one.pieces():
        yield data({**head, "choices": [{"index": 0, "text": piece, "finish_reason": None}]})
    yield data({**head, "choices": [{"index": 0, "text": "", "finish_reason": "stop"}]})
    yield b"data: [DONE]\n\n"


def whole_completion(one: Handler) -> dict[str, Any]:
    head = {"id": "cmpl-afar", "object": "text_completion", "created": 1, "model": one.snapshot}
    return {**head, "choices": [{"index": 0, "text": "".join(one.pieces()), "finish_reason": "stop"}], "usage": USAGE}


def whole_response(one: Handler) -> dict[str, Any]:
    part = {"type": "output_text", "text": "".join(one.pieces()), "annotations": []}
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
    usage = {"input_tokens": 9, "output_tokens": 4, "total_tokens": 13}
    head = {"id": "resp_1", "object": "response", "created_at": 1, "model": one.snapshot, "status": "completed"}
    return {**head, "output": [item], "usage": usage}


def response_events(one: Handler) -> Iterator[bytes]:
    numbers = itertools.count()

    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\n".encode() + data({"type": kind, "sequence_number": next(numbers), **more})

    def place(**more: Any) -> dict[str, Any]:
        return {"item_id": "msg_1", "output_index": 0, "content_index": 0, "logprobs": [], **more}

    whole = whole_response(one)
    (item,) = whole["output"]
    (part,) = item["content"]
    yield event("response.created", response={**whole, "status": "in_progress", "output": []})
    yield event("response.output_item.added", output_index=0, item={**item, "status": "in_progress", "content": []})
    yield event("response.content_part.added", **place(part={**part, "text": ""}))
    for piece in one.pieces():
        yield event("response.output_text.delta", **place(delta=piece))
    yield event("response.output_text.done", **place(text=part["text"]))
    yield event("response.content_part.done", **place(part=part))
    yield event("response.output_item.done", output_index=0, item=item)
    yield event("response.completed", response=whole)


def whole_message(one: Handler) -> dict[str, Any]:
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "".join(one.pieces())}]
    reason = "end_turn"
    if one._model == "calls":
        blocks = [{"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"place": "Paris"}}]
        reason = "tool_use"
    usage = {"input_tokens": 9, "output_tokens": 4}
    head = {"id": "msg_afar", "type": "message", "role": "assistant", "model": one.snapshot, "content": blocks}
    return {**head, "stop_reason": reason, "stop_sequence": None, "usage": usage}


def message_events(one: Handler) -> Iterator[bytes]:
    def event(kind: str, **more: Any) -> bytes:
        return f"event: {kind}\n".encode() + data({"type": kind, **more})

    start = {**whole_message(one), "content": [], "stop_reason": None}
    yield event("message_start", message=start)
    yield event("content_block_start", index=0, content_block={"type": "text", "text": ""})
    yield event("ping")
    for piece in one.pieces():
        yield event("content_block_delta", index=0, delta={"type": "text_delta", "text": piece})
    yield event("content_block_stop", index=0)
    yield event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 4})
    yield event("message_stop")


EVENTS = {
    "chat/completions": chat_events,
    "completions": completion_events,
    "responses": response_events,
    "messages": message_events,
}
WHOLE = {
    "chat/completions": whole_chat,
    "completions": whole_completion,
    "responses": whole_response,
    "messages": whole_message,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("port", type=int)
    parser.add_argument("--wire", default="openai", choices=("openai", "anthropic"))
    parser.add_argument("--key", default=None)
    given = parser.parse_args()
    with FakeProvider(given.key, wire=given.wire, port=given.port):
        threading.Event().wait()


if __name__ == "__main__":
    main()
