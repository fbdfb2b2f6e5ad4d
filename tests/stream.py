"""A request whose answer is read piece by piece, and that may be hung up at any moment."""

from __future__ import annotations

import http.client
import json
import socket
import time
from collections.abc import Iterator
from typing import Any

from tests.daemon import Answer, Daemon


class Stream:
    """One `POST` on a connection of its own; `body` gets a message if it has none.

    Attributes:
        times: `time.monotonic()` of each event, in order.
        comments: how many comments came between the events.
        whole: whether the answer ended as HTTP says it must, and was not cut off.
    """

    def __init__(
        self,
        daemon: Daemon,
        body: dict[str, Any],
        *,
        path: str = "/v1/chat/completions",
        headers: dict[str, str] | None = None,
        host: str = "127.0.0.1",
        timeout: float = 30,
    ) -> None:
        body = {"messages": [{"role": "user", "content": "hi"}], "stream": True, **body}
        self._connection = http.client.HTTPConnection(host, daemon.port, timeout=timeout)
        self._connection.connect()
        assert isinstance(self._connection.sock, socket.socket)
        self._socket = self._connection.sock
        self._response: http.client.HTTPResponse | None = None
        self._events: Iterator[str] | None = None
        self.times: list[float] = []
        self.comments = 0
        self.whole = False
        self._connection.request(
            "POST", path, json.dumps(body), {"Content-Type": "application/json", **(headers or {})}
        )

    @property
    def response(self) -> http.client.HTTPResponse:
        """The head of the answer; waits for it."""
        if self._response is None:
            self._response = self._connection.getresponse()
        return self._response

    @property
    def status(self) -> int:
        return self.response.status

    def events(self) -> Iterator[str]:
        """The `data` of the events that are left."""
        if self._events is None:
            self._events = self._read()
        return self._events

    def take(self, count: int) -> list[str]:
        return [next(self.events()) for _ in range(count)]

    def rest(self) -> list[str]:
        """All events that are left. The connection is closed afterwards."""
        try:
            return list(self.events())
        finally:
            self.close()

    def answer(self) -> Answer:
        """The answer in one piece."""
        try:
            response = self.response
            return Answer(response.status, dict(response.headers.items()), response.read())
        finally:
            self.close()

    def hang_up(self) -> float:
        """Closes the connection without a word; answers `time.time()` of that moment."""
        self._socket.shutdown(socket.SHUT_RDWR)
        self.close()
        return time.time()

    def close(self) -> None:
        if self._response is not None:
            self._response.close()
        self._connection.close()

    def _read(self) -> Iterator[str]:
        data: list[str] = []
        try:
            while line := self.response.readline():
                text = line.decode().rstrip("\r\n")
                if text.startswith("data: "):
                    data.append(text.removeprefix("data: "))
                elif text.startswith(":"):
                    self.comments += 1
                elif not text and data:
                    self.times.append(time.monotonic())
                    yield "\n".join(data)
                    data = []
        except (http.client.HTTPException, ConnectionError):
            return
        assert not data, "an event without its end"
        # Of a body in chunks that was cut off, `readline` says nothing; a read of the rest does.
        self.whole = self.response.isclosed()


def text_of(events: list[str]) -> str:
    """What the chunks of a chat say together."""
    parts = []
    for event in events:
        if event != "[DONE]":
            for choice in json.loads(event).get("choices", []):
                parts.append(choice["delta"].get("content") or "")
    return "".join(parts)
