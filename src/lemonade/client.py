"""The HTTP client of the command line: one daemon, JSON calls, and streams of events.

It is made of the standard library, because `lemonade` starts anew for every command and the larger clients cost more
time to import than a whole command takes.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

from lemonade.errors import LemonadeError

if TYPE_CHECKING:
    from lemonade.address import Address

#: Seconds to reach the daemon. It is on this machine or in this house.
CONNECT_TIMEOUT = 5.0
#: Seconds for an answer that no model has to be loaded for.
QUICK = 30.0

Payload = Mapping[str, Any] | Iterator[bytes] | None


class RemoteError(LemonadeError):
    """What the daemon answered instead of success; `status`, `type` and `code` are the daemon's."""

    def __init__(self, message: str, *, status: int, type: str = "api_error", code: str | None = None) -> None:  # noqa: A002 - the wire's name
        super().__init__(message)
        self.status = status
        self.type = type
        self.code = code


class NoDaemon(LemonadeError):
    """Nothing accepts connections at the address."""

    code = "no_daemon"


class BadAnswer(LemonadeError):
    """Something answers at the address, but not as the daemon does."""

    code = "bad_answer"


class StreamCut(LemonadeError):
    """The connection closed before the answer was complete."""

    code = "stream_cut"


class Client:
    """Talks to one daemon. Each call has a connection of its own, so closing one call disturbs no other."""

    def __init__(self, address: Address, *, key: str | None = None, admin_key: str | None = None) -> None:
        self.address = address
        self._key = key
        self._admin_key = admin_key

    def get(self, path: str, *, timeout: float | None = QUICK) -> Any:
        """The JSON answer of `GET path`. Raises RemoteError, NoDaemon, BadAnswer."""
        return self._call("GET", path, None, timeout)

    def post(self, path: str, body: Mapping[str, Any], *, timeout: float | None = None) -> Any:
        """The JSON answer of `POST path`; waits without end by default, for a load may take minutes."""
        return self._call("POST", path, body, timeout)

    def delete(self, path: str, *, timeout: float | None = QUICK) -> Any:
        """The JSON answer of `DELETE path`."""
        return self._call("DELETE", path, None, timeout)

    def is_alive(self) -> bool:
        """Whether a daemon answers at the address. Raises BadAnswer when something else does."""
        try:
            answer = self.get("/live", timeout=CONNECT_TIMEOUT)
        except NoDaemon:
            return False
        except RemoteError as error:
            raise BadAnswer(f"What answers at {self.address} is not Lemonade ({error.message}).") from error
        if not isinstance(answer, dict) or "status" not in answer:
            raise BadAnswer(f"What answers at {self.address} is not Lemonade.")
        return True

    def stream(self, path: str, body: Payload, headers: Mapping[str, str] = {}) -> EventStream:
        """Opens the event stream that `POST path` answers with. Raises what `post` raises. A body in pieces is sent as
        it is, with headers that say what it is."""
        connection, response = self._send("POST", path, body, None, headers)
        if response.getheader("Content-Type", "").split(";")[0].strip() != "text/event-stream":
            try:
                _json(response, self.address)
            finally:
                connection.close()
            raise BadAnswer(f"{self.address} answered {path} without a stream of events.")
        return EventStream(connection, response)

    def download(self, path: str, body: Payload, headers: Mapping[str, str] = {}) -> Download:
        """Opens the answer of `POST path` that is no JSON, such as a sound. Takes and raises what `stream` does."""
        connection, response = self._send("POST", path, body, None, headers)
        if response.status >= 400:
            try:
                _json(response, self.address)
            finally:
                connection.close()
        return Download(connection, response)

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float | None) -> Any:
        connection, response = self._send(method, path, body, timeout)
        try:
            return _json(response, self.address)
        finally:
            connection.close()

    def _send(
        self, method: str, path: str, body: Payload, timeout: float | None, more: Mapping[str, str] = {}
    ) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
        kind = http.client.HTTPSConnection if self.address.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.address.host, self.address.port, timeout=CONNECT_TIMEOUT)
        headers = {"Accept": "application/json, text/event-stream", **more}
        if key := (self._admin_key or self._key) if path.startswith("/internal/") else (self._key or self._admin_key):
            headers["Authorization"] = f"Bearer {key}"
        payload: bytes | Iterator[bytes] | None = body if isinstance(body, Iterator) else None
        if isinstance(body, Mapping):
            headers["Content-Type"] = "application/json"
            payload = json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        try:
            connection.connect()
        except OSError as error:
            connection.close()
            raise NoDaemon(_unreachable(self.address, error)) from error
        try:
            assert connection.sock is not None
            connection.sock.settimeout(timeout)
            connection.request(method, path, payload, headers)
            response = connection.getresponse()
        except BaseException as error:
            connection.close()
            if isinstance(error, TimeoutError):
                raise BadAnswer(f"{self.address} gave no answer within {timeout:g} seconds.") from error
            if isinstance(error, http.client.RemoteDisconnected | ConnectionError):
                raise StreamCut(f"{self.address} closed the connection without an answer.") from error
            if isinstance(error, http.client.HTTPException):
                raise BadAnswer(f"What answers at {self.address} does not speak HTTP.") from error
            raise
        return connection, response


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event: its name (`message` when it has none) and its data."""

    name: str
    data: str

    def json(self) -> Any:
        """The data as JSON. Raises BadAnswer."""
        try:
            return json.loads(self.data)
        except ValueError as error:
            raise BadAnswer(f"An event of the stream is no JSON: {self.data[:80]!r}") from error


class Body:
    """One answer that is read while it comes; a context manager. Closing it early cancels the request at the daemon."""

    def __init__(self, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self._connection = connection
        self._response = response

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._response.close()
        self._connection.close()

    def _chunks(self) -> Iterator[bytes]:
        while True:
            try:
                chunk = self._response.read1(65536)
            except (http.client.HTTPException, OSError) as error:
                raise StreamCut("The connection broke before the answer was complete.") from error
            if not chunk:
                if self._response.length:
                    raise StreamCut("The connection broke before the answer was complete.")
                return
            yield chunk


class Download(Body):
    """The bytes of one answer, as they come. Iterating raises StreamCut when the connection breaks before the end."""

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks()


class EventStream(Body):
    """The events of one answer, in order.

    Only whole events come out: what stands after the last blank line when the connection closes was cut off.
    Iterating raises RemoteError for an event that carries an error, and StreamCut when the connection breaks.
    """

    def __iter__(self) -> Iterator[Event]:
        for event in events(self._chunks()):
            if failure := _failure(event):
                raise failure
            yield event


def events(chunks: Iterator[bytes]) -> Iterator[Event]:
    """Server-sent events in a byte stream that is cut anywhere. Comments (`: ping`) are passed over, lines may end in
    LF, CRLF or CR, and an event without its closing blank line never appears."""
    name, data = "", list[str]()
    for line in _lines(chunks):
        if not line:
            if data:
                yield Event(name or "message", "\n".join(data))
            name, data = "", []
            continue
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "data":
            data.append(value)
        elif field == "event":
            name = value


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    pending = b""
    # A picture is one line in many chunks: only what is new is looked at.
    long = bytearray()
    for chunk in chunks:
        if b"\n" not in chunk and b"\r" not in chunk and not pending.endswith(b"\r"):
            long += chunk
            continue
        pending = (pending + bytes(long) + chunk).replace(b"\r\n", b"\n")
        long.clear()
        # A CR at the very end may be the first half of a CRLF.
        held = b"\r" if pending.endswith(b"\r") else b""
        *whole, rest = pending.removesuffix(held).replace(b"\r", b"\n").split(b"\n")
        pending = rest + held
        for line in whole:
            yield line.decode("utf-8", "replace")
    if pending.endswith(b"\r"):
        yield pending[:-1].decode("utf-8", "replace")


def path_of(model: str, *rest: str) -> str:
    """`/v1/models/{model}/…`; a model's name may hold slashes and colons, which stay as they are."""
    return "/".join(["/v1/models", quote(model, safe="/:", errors="replace"), *rest])


def _failure(event: Event) -> RemoteError | None:
    if event.name != "error" and '"error"' not in event.data:
        return None
    body = event.json()
    if event.name == "error" or (isinstance(body, dict) and body.get("error")):
        return remote_error(body, 200)
    return None


def remote_error(body: Any, status: int) -> RemoteError:
    """The failure in an answer's body, in whichever of the shapes in use it is written."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if isinstance(error, dict):
        message = error.get("message")
        text = message if isinstance(message, str) and message else json.dumps(error)
        code, kind = error.get("code"), error.get("type")
    else:
        text = error if isinstance(error, str) and error else f"The daemon answered with status {status}."
        code, kind = (body.get("code") if isinstance(body, dict) else None), None
    return RemoteError(text, status=status, type=str(kind or "api_error"), code=str(code) if code is not None else None)


def _json(response: http.client.HTTPResponse, address: Address) -> Any:
    try:
        raw = response.read()
    except TimeoutError as error:
        raise BadAnswer(f"{address} stopped in the middle of its answer.") from error
    except (http.client.HTTPException, OSError) as error:
        raise StreamCut(f"{address} closed the connection in the middle of its answer.") from error
    try:
        body = json.loads(raw) if raw.strip() else {}
    except ValueError as error:
        if response.status >= 400:
            raise RemoteError(f"{address} answered with status {response.status}.", status=response.status) from error
        raise BadAnswer(f"{address} answered, but not with JSON; is another program using that port?") from error
    if response.status >= 400:
        raise remote_error(body, response.status)
    return body


def _unreachable(address: Address, error: OSError) -> str:
    if isinstance(error, socket.gaierror):
        return f"There is no host named {address.host!r}."
    if isinstance(error, TimeoutError):
        return f"Nothing answers at {address} ({CONNECT_TIMEOUT:g} seconds without a connection)."
    if isinstance(error, ConnectionRefusedError):
        return f"No daemon runs at {address}."
    return f"{address} cannot be reached: {error.strerror or error}."
