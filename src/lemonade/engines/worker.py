"""The program of engines that are Python libraries: `python -m lemonade.engines.worker MODULE --port N CONFIG`.

MODULE has a function `operations(config)` that loads everything and gives the operations by path; the port is listened
on when it returns. CONFIG is a JSON object. The process ends with its standard input, which the daemon holds.

It is a plain server with a thread per connection, because all that it does is wait for one computation at a time; and
whether a client is still there is asked of its socket, without a loop that would have to run beside the computation.
"""

from __future__ import annotations

import hmac
import importlib
import json
import os
import select
import socket
import socketserver
import sys
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any
from urllib.parse import parse_qsl

from lemonade.engines.engine import ABANDONED, PROGRESS
from lemonade.engines.worker_launch import KEY_HEADER, KEY_VARIABLE
from lemonade.errors import EngineError, LemonadeError

#: Seconds between two looks at whether the client of a waiting or unstoppable job is still there.
LOOK = 0.1


class Cancelled(Exception):
    """The client of a job has left."""


@dataclass(slots=True)
class Reply:
    """An answer that is not JSON.

    Attributes:
        body: an iterator is sent piece by piece as it yields; a failure before its first piece is answered as one.
    """

    body: bytes | Iterator[bytes]
    media_type: str = "application/octet-stream"
    headers: Mapping[str, str] = field(default_factory=dict)


class Job:
    """One request to an operation.

    Attributes:
        headers: names in lower case.
    """

    def __init__(self, query: dict[str, str], headers: dict[str, str], body: bytes, client: socket.socket) -> None:
        self.query = query
        self.headers = headers
        self.body = body
        self._client = client

    def json(self) -> Any:
        """The body, decoded. Raises ValueError."""
        return json.loads(self.body)

    @property
    def cancelled(self) -> bool:
        """Whether the client has left. Cheap enough to be asked at every step of a computation."""
        try:
            readable, _, _ = select.select([self._client], [], [], 0)
            return bool(readable) and self._client.recv(1, socket.MSG_PEEK) == b""
        except (OSError, ValueError):
            return True

    def check(self) -> None:
        """Raises Cancelled if the client has left."""
        if self.cancelled:
            raise Cancelled

    @contextmanager
    def unstoppable(self, grace: float = 0.0) -> Iterator[None]:
        """Around a call into a library that cannot be stopped: the process ends when the client leaves during it,
        and is started anew for the next request.

        Args:
            grace: seconds that the call may still take when the client has left, as it may be about to return.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK):
                if self.cancelled and not over.wait(grace):
                    self.abandon()

        watcher = threading.Thread(target=watch, daemon=True)
        watcher.start()
        try:
            yield
        finally:
            over.set()
            watcher.join()

    def abandon(self) -> None:
        """Ends the process, as nothing else stops its work."""
        print("the work was given up with the process: its client has left", file=sys.stderr, flush=True)
        os._exit(ABANDONED)


def progress(text: str) -> None:
    """Tells in the daemon's log how far the work is."""
    print(f"{PROGRESS}{text}", file=sys.stderr, flush=True)


Operation = Callable[[Job], Any]


def concurrent(operation: Operation) -> Operation:
    """Marks an operation that need not wait for the others."""
    operation.concurrent = True  # type: ignore[attr-defined]
    return operation


class Turns:
    """Lets one in at a time, in the order in which they came."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._line: deque[object] = deque()

    @contextmanager
    def take(self, job: Job) -> Iterator[None]:
        """Raises Cancelled when the client leaves the line."""
        place = object()
        with self._changed:
            self._line.append(place)
        try:
            with self._changed:
                while self._line[0] is not place:
                    self._changed.wait(LOOK)
                    job.check()
            yield
        finally:
            with self._changed:
                self._line.remove(place)
                self._changed.notify_all()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    """Listens on loopback. The port is taken at once, so that it is known to be free before a model is loaded."""

    allow_reuse_address = os.name != "nt"
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, port: int, key: str) -> None:
        super().__init__(("127.0.0.1", port), Handler, bind_and_activate=False)
        self.server_bind()
        self.key = key
        self.turns = Turns()
        self.operations: Mapping[str, Operation] = {}

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that left is no news."""
        if not isinstance(sys.exception(), ConnectionError):
            traceback.print_exc()


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: Server

    def do_GET(self) -> None:
        self.do_POST()

    def log_message(self, *args: Any) -> None:
        """The daemon has its own log of requests."""

    def do_POST(self) -> None:
        if not hmac.compare_digest(self.headers.get(KEY_HEADER, "").encode(), self.server.key.encode()):
            # A body of any size may follow; it is not read.
            self.close_connection = True
            self._fail(403, LemonadeError("This process answers its daemon only."))
            return
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        path, _, query = self.path.partition("?")
        operation = self.server.operations.get(path)
        if path == "/health":
            self._send(200, b'{"status":"ok"}', "application/json")
            return
        if operation is None:
            self._fail(404, LemonadeError(f"The engine has no operation {path}."))
            return
        headers = {name.lower(): value for name, value in self.headers.items()}
        job = Job(dict(parse_qsl(query, keep_blank_values=True)), headers, body, self.connection)
        try:
            if getattr(operation, "concurrent", False):
                self._answer(operation, job)
            else:
                with self.server.turns.take(job):
                    self._answer(operation, job)
        except (Cancelled, ConnectionError):
            self.close_connection = True

    def _answer(self, operation: Operation, job: Job) -> None:
        try:
            answer = operation(job)
            if not isinstance(answer, Reply):
                answer = Reply(json.dumps(answer, ensure_ascii=False).encode(), "application/json")
            if isinstance(answer.body, bytes):
                self._send(200, answer.body, answer.media_type, answer.headers)
                return
            first = next(answer.body, b"")
        except (Cancelled, ConnectionError):
            raise
        except LemonadeError as error:
            self._fail(error.status, error)
            return
        except Exception as error:  # noqa: BLE001 - whatever a library raises ends the job, not the engine
            traceback.print_exc()
            self._fail(500, EngineError(str(error) or type(error).__name__))
            return
        self._stream(first, answer.body, answer.media_type, answer.headers)

    def _stream(self, first: bytes, rest: Iterator[bytes], media_type: str, headers: Mapping[str, str]) -> None:
        self._head(200, media_type, {**headers, "Transfer-Encoding": "chunked"})
        try:
            self._chunk(first)
            for piece in rest:
                self._chunk(piece)
        except (Cancelled, ConnectionError):
            raise
        except Exception:  # noqa: BLE001 - as above; the missing end of the body tells the daemon
            traceback.print_exc()
            self.close_connection = True
            return
        finally:
            if isinstance(rest, Generator):
                rest.close()
        self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, piece: bytes) -> None:
        if piece:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))

    def _fail(self, status: int, error: LemonadeError) -> None:
        self._send(status, json.dumps({"error": error.body()}).encode(), "application/json")

    def _send(self, status: int, body: bytes, media_type: str, headers: Mapping[str, str] = {}) -> None:
        self._head(status, media_type, {**headers, "Content-Length": str(len(body))})
        self.wfile.write(body)

    def _head(self, status: int, media_type: str, headers: Mapping[str, str]) -> None:
        self.send_response_only(status)
        self.send_header("Content-Type", media_type)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()


def main(words: list[str]) -> int:
    module, _, port, config = words
    key = os.environ.pop(KEY_VARIABLE, "")
    _end_with_input()
    with Server(int(port), key) as server:
        try:
            server.operations = importlib.import_module(module).operations(json.loads(config))
        except LemonadeError as error:
            print(f"error: {error.message}", file=sys.stderr, flush=True)
            return 1
        server.server_activate()
        print(f"serving on port {port}", file=sys.stderr, flush=True)
        server.serve_forever()
    return 0


def _end_with_input() -> None:
    def wait() -> None:
        while os.read(0, 4096):
            pass
        # The operating system frees everything at once.
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


if __name__ == "__main__":
    # Under its own name: the engine's module imports it, and `Reply` has to be one class.
    from lemonade.engines.worker import main as run

    sys.exit(run(sys.argv[1:]))
