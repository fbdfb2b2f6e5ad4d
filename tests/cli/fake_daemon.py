"""A daemon for the tests of the command line: real HTTP, no models. What it does follows from the model's name.

    python tests/cli/fake_daemon.py [--port PORT] [--key KEY] [--admin-key KEY]

good          answers "Hello, world." in pieces        long       the same, ended by the limit of tokens
cut           closes in the middle                     unended    all pieces, then closes without saying it is the end
fails         an error event in the middle             broken     an event that is no JSON
thinks        reasons before it answers                silent     reasons and answers nothing
endless       answers until the client hangs up        absent     is downloaded on pull
gone          pulled, fails with an error event        lost       pulled, the stream is cut
huge          pulled, never complete
speaks        says SOUND; with the voice "cut", half of it and no more
echo          answers with the messages it was sent    controls   answers with control characters
draws         answers with PICTURE in the text
"""

from __future__ import annotations

import argparse
import base64
import json
import threading
import time
from collections.abc import Iterator
from email.parser import BytesParser
from email.policy import HTTP
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

from lemonade.settings import flatten

#: Models for which the registry has newer files.
OUTDATED = {"long"}
MODELS = [
    *("good", "long", "cut", "unended", "fails", "broken", "thinks", "silent", "endless"),
    *("absent", "gone", "lost", "huge", "echo", "controls", "draws", "owner/deep", "speaks", "kokoro-v1"),
]
#: A PNG of 2x2 pixels.
PICTURE = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAIAAAACCAIAAAD91JpzAAAAFklEQVR4nGP8z8DAwMDAxMDAwMDAAAANHQEDasKb6QAAAABJRU5ErkJggg=="
)
SPEAKERS = {"speaks", "kokoro-v1"}
SOUND = b"ID3 this is a sound" * 1000
VOICES = [
    {"id": "af_heart", "name": "Heart", "language": "en-US", "gender": "female"},
    {"id": "ff_siwis", "name": "Siwis", "language": "fr", "gender": "female"},
    {"id": "shimmer", "name": "Shimmer", "language": "en-US", "gender": "female", "stands_for": "af_heart"},
]
MISSING = {"absent", "gone", "lost", "huge"}


#: What is said in every recording.
SAID = [{"start": 0.0, "end": 1.5, "text": "Guten"}, {"start": 1.5, "end": 62.25, "text": " Tag."}]


def fields(content_type: str, raw: bytes) -> dict[str, str]:
    """The fields of a form as text; a file as its bytes in Latin-1."""
    message = BytesParser(policy=HTTP).parsebytes(f"Content-Type: {content_type}\r\n\r\n".encode() + raw)
    return {
        str(part.get_param("name", header="content-disposition")): part.get_payload(decode=True).decode("latin-1")
        for part in message.iter_parts()
    }


def heard_events(body: dict[str, str]) -> Iterator[bytes]:
    """What comes of a recording. One that begins with "cut" breaks off, one with "bad" fails on the way."""
    for one in SAID:
        delta = {"type": "transcript.text.delta", "delta": one["text"], "start": one["start"], "end": one["end"]}
        yield b"data: " + json.dumps(delta).encode() + b"\n\n"
        if body["file"].startswith("cut"):
            raise Cut
        if body["file"].startswith("bad"):
            yield b'data: {"error": {"message": "The engine is lost.", "type": "backend_error"}}\n\n'
            return
    done = {
        "type": "transcript.text.done",
        "text": "Guten Tag.",
        "task": "transcribe",
        "language": "german",
        "duration": 62.5,
        "segments": SAID,
        "usage": {"type": "duration", "seconds": 62.5},
    }
    yield b"data: " + json.dumps(done).encode() + b"\n\ndata: [DONE]\n\n"


class FakeDaemon(ThreadingHTTPServer):
    """Serves in a thread of its own; a context manager.

    Attributes:
        requests: `(method, path, body)` of all requests, in order.
        keys: the `Authorization` header of each.
        labels: of models that are no chat models.
        hung_up: set when a client leaves in the middle of an answer.
    """

    daemon_threads = True

    def __init__(self, port: int = 0, key: str | None = None, admin_key: str | None = None) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.key = key
        self.admin_key = admin_key
        self.requests: list[tuple[str, str, Any]] = []
        self.keys: list[str | None] = []
        self.loaded: dict[str, dict[str, Any]] = {}
        self.downloaded = set(MODELS) - MISSING
        self.config = {"port": 13305, "ctx_size": 2048, "llamacpp": {"backend": "auto", "args": ""}}
        self.labels: dict[str, list[str]] = {}
        self.hung_up = threading.Event()

    @property
    def port(self) -> int:
        return int(self.server_address[1])

    def __enter__(self) -> FakeDaemon:
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is no error here."""

    def bodies(self, path: str) -> list[Any]:
        """What was posted to `path`."""
        return [body for _, where, body in self.requests if where == path]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: FakeDaemon

    def do_GET(self) -> None:
        self._answer(None)

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers.get("Content-Type", "").startswith("multipart/"):
            self._answer(fields(self.headers["Content-Type"], raw))
        else:
            self._answer(json.loads(raw))

    def log_message(self, *args: Any) -> None:
        pass

    def _answer(self, body: Any) -> None:
        daemon = self.server
        path = urlsplit(self.path).path
        daemon.requests.append((self.command, self.path, body))
        daemon.keys.append(self.headers.get("Authorization"))
        wanted = daemon.admin_key if path.startswith("/internal/") and daemon.admin_key else daemon.key
        if path != "/live" and wanted and self.headers.get("Authorization") != f"Bearer {wanted}":
            self._error(401, "Wrong or missing API key.", "authentication_error", "invalid_api_key")
        elif path == "/live":
            self._json({"status": "ok"})
        elif path == "/v1/models":
            names = MODELS if "show_all=true" in self.path else sorted(daemon.downloaded)
            self._json({"object": "list", "data": [self._model(name) for name in names]})
        elif path.startswith("/v1/models/"):
            name = unquote(path.removeprefix("/v1/models/"))
            self._json(self._model(name)) if name in MODELS else self._unknown(name)
        elif path == "/v1/health":
            self._json({"status": "ok", "version": "9.8.7", "all_models_loaded": list(daemon.loaded.values())})
        elif path == "/v1/chat/completions":
            self._chat(body)
        elif path == "/v1/audio/speech":
            self._speech(body)
        elif path == "/v1/audio/transcriptions":
            self._events(heard_events(body))
        elif path == "/v1/audio/translations":
            self._text("Good day.\n")
        elif path.startswith("/v1/images/"):
            self._events(picture_events(path, body))
        elif path == "/v1/audio/voices":
            self._json({"model": "speaks", "voices": VOICES})
        elif path == "/v1/pull":
            self._pull(body)
        elif path == "/v1/pull/variants":
            self._json(VARIANTS)
        elif path == "/v1/load":
            name = body["model_name"]
            daemon.loaded[name] = {"model_name": name, "type": "llm", "recipe": "llamacpp", "device": "cpu"}
            self._json({"status": "success", "model_name": name})
        elif path in ("/v1/unload", "/v1/delete", "/internal/pin", "/v1/downloads/control"):
            name = body.get("model_name")
            if name in (None, *MODELS):
                self._json({"status": "success", "model_name": name})
            else:
                self._unknown(name)
        elif path == "/internal/config" and "origin=true" in self.path:
            self._json({key: {"value": value, "origin": "LEMONADE_X"} for key, value in flatten(daemon.config)})
        elif path == "/internal/config":
            self._json(daemon.config)
        elif path == "/internal/set":
            if "nonsense" in body:
                self._error(400, "Unknown config key: 'nonsense'", "invalid_request_error", "invalid_config")
            else:
                self._json({"status": "success", "updated": body})
        else:
            self._error(404, f"No route {path}.", "not_found", None)

    def _model(self, name: str) -> dict[str, Any]:
        here = name in self.server.downloaded
        labels = self.server.labels.get(name) or (["tts"] if name in SPEAKERS else ["chat"])
        outdated = here and name in OUTDATED
        return {
            "id": name,
            "recipe": "llamacpp",
            "labels": labels,
            "downloaded": here,
            "update_available": outdated,
            "size": 0.5,
        }

    def _speech(self, body: Any) -> None:
        if body.get("voice") == "nobody":
            self._error(400, "'voice' must be one of the model's voices.", "invalid_request_error", "invalid_argument")
            return
        self.send_response(200)
        self.send_header("Content-Type", "audio/mpeg")
        if body.get("stream"):
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            self.wfile.write(b"%x\r\n%b\r\n" % (len(SOUND), SOUND))
            if body.get("voice") != "cut":
                self.wfile.write(b"0\r\n\r\n")
                return
        else:
            self.send_header("Content-Length", str(len(SOUND)))
            self.end_headers()
            self.wfile.write(SOUND[: len(SOUND) // 2] if body.get("voice") == "cut" else SOUND)
        self.close_connection = body.get("voice") == "cut"

    def _chat(self, body: dict[str, Any]) -> None:
        name = body["model"]
        if name not in MODELS:
            self._unknown(name)
        elif not body.get("stream"):
            self._json({"choices": [{"message": {"role": "assistant", "content": "Hello, world."}}]})
        else:
            self._events(chat_events(name, body))

    def _pull(self, body: dict[str, Any]) -> None:
        name = body["model_name"]
        if name not in MODELS and not name.startswith("user."):
            self._unknown(name)
            return
        self._events(pull_events(name))
        if name not in ("gone", "lost", "huge"):
            self.server.downloaded.add(name)

    def _text(self, text: str) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text.encode())))
        self.end_headers()
        self.wfile.write(text.encode())

    def _events(self, events: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for event in events:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
                self.wfile.flush()
        except OSError:
            self.server.hung_up.set()
            self.close_connection = True
        except Cut:
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _json(self, value: Any, status: int = 200) -> None:
        raw = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(raw)))
        self.end_headers()
        self.wfile.write(raw)

    def _error(self, status: int, message: str, kind: str, code: str | None) -> None:
        self._json({"error": {"message": message, "type": kind, "code": code}}, status)

    def _unknown(self, name: str) -> None:
        self._error(404, f"Model '{name}' was not found.", "model_not_found", "model_not_found")


class Cut(Exception):
    """The connection closes here, in the middle of the body."""


VARIANTS = {
    "checkpoint": "owner/Repo-GGUF",
    "recipe": "llamacpp",
    "suggested_name": "Repo-GGUF",
    "suggested_labels": ["vision"],
    "mmproj_files": ["mmproj-F16.gguf"],
    "draft_files": [],
    "variants": [{"name": "Q8_0", "size_bytes": 2_000_000_000}, {"name": "Q4_K_M", "size_bytes": 1_000_000_000}],
}


def chat_events(name: str, body: dict[str, Any]) -> Iterator[bytes]:
    yield b": ping\n\n"
    if name in ("thinks", "silent"):
        yield chunk({"reasoning_content": "Hmm, let me see."})
    if name == "silent":
        yield chunk({}, "length")
        yield b"data: [DONE]\n\n"
        return
    drawn = f"Here.\n\n![generated image](data:image/png;base64,{base64.b64encode(PICTURE).decode()})\n"
    texts = {"echo": json.dumps(body["messages"]), "controls": "a\x1b]0;title\x07b\n", "draws": drawn}
    text = texts.get(name, "Hello, wörld.")
    if name == "endless":
        while True:
            yield chunk({"content": "on and "})
            time.sleep(0.01)
    # The umlaut's bytes come in two pieces of the stream.
    whole = chunk({"content": text[: len(text) // 2 + 3]})
    middle = whole.find("ö".encode()) + 1
    yield from (part for part in (whole[:middle], whole[middle:]) if part)
    if name == "cut":
        raise Cut
    if name == "fails":
        yield b'data: {"error": {"message": "The engine died.", "type": "backend_error"}}\n\n'
        return
    if name == "broken":
        yield b"data: {oops\n\n"
    yield chunk({"content": text[len(text) // 2 + 3 :]})
    if name == "unended":
        return
    yield chunk({}, "length" if name == "long" else "stop")
    yield b"data: [DONE]\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    body = {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}
    return b"data: " + json.dumps(body, ensure_ascii=False).encode() + b"\n\n"


def pull_events(name: str) -> Iterator[bytes]:
    total = 4_000_000
    yield event("progress", {"file": "", "file_index": 0, "total_files": 2, "bytes_downloaded": 0, "bytes_total": 0})
    for file in (1, 2):
        for done in (0, total // 2, total):
            data = {"file": f"{name}-{file}.gguf", "file_index": file, "total_files": 2}
            speed = {"rate": 2e6, "remaining": (total - done) / 2e6 + (2 - file) * 100}
            yield event("progress", {**data, "bytes_downloaded": done, "bytes_total": total, **speed})
        if name == "gone":
            yield event("error", {"error": {"message": "The disk is full.", "type": "download_error"}})
            return
        if name == "lost":
            raise Cut
        while name == "huge":
            yield b": ping\n\n"
            time.sleep(0.01)
    yield event("complete", {"file": "", "file_index": 2, "total_files": 2, "percent": 100})


def picture_events(path: str, body: dict[str, Any]) -> Iterator[bytes]:
    """Three steps, and the pictures."""
    kind = {"generations": "image_generation", "upscale": "image_upscale"}[path.rpartition("/")[2]]
    for step in (1, 2, 3):
        yield event(f"{kind}.progress", {"step": step, "steps": 3})
    if body["model"] == "cut":
        raise Cut
    for _ in range(body.get("n", 1)):
        yield event(f"{kind}.completed", {"b64_json": base64.b64encode(PICTURE).decode()})


def event(name: str, data: dict[str, Any]) -> bytes:
    return f"event: {name}\ndata: {json.dumps(data)}\n\n".encode()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--key")
    parser.add_argument("--admin-key")
    options = parser.parse_args()
    with FakeDaemon(options.port, options.key, options.admin_key) as server:
        print(f"http://127.0.0.1:{server.port}", flush=True)
        threading.Event().wait()
