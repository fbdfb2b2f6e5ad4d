"""WebSocket connections: uvicorn's protocol over the `websockets` library, with bounds. Imported with the first one."""

from __future__ import annotations

import json
import logging
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode
from websockets.server import ServerProtocol

if TYPE_CHECKING:
    from websockets.http11 import Response
    from websockets.typing import StatusLike

#: What uvicorn has to say is of clients that were refused, or sent what is no WebSocket; it would say it each time.
SILENT = logging.getLogger("uvicorn.silent")
SILENT.setLevel(logging.CRITICAL)
#: Seconds for the other side to answer when the daemon stops.
GOODBYE = 1.0
#: Seconds without a byte, and in all, after which a connection that failed is closed.
QUIET = 0.5
LINGER = 5.0


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """One connection after its upgrade. What is no WebSocket ends it, without a word in the log."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.logger = SILENT
        self._closes_at = 0.0
        # Messages are not compressed: on loopback it would cost time, and on each side memory for every connection.
        self.conn = Handshake(max_size=self.config.ws_max_size, logger=self.logger)

    def data_received(self, data: bytes) -> None:
        if self.conn.parser_exc is not None:
            # What comes after a failure is let go by; see `handle_parser_exception`.
            self._linger()
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            self._refuse_head()

    def _refuse_head(self) -> None:
        """Heads that the library does not read, such as one with hundreds of lines, are no matter of uvicorn's."""
        self.handshake_initiated = self.handshake_complete = self.close_sent = True
        refusal = self.conn.reject(HTTPStatus.BAD_REQUEST, "The head of this handshake is too large, or none at all.")
        self.transport.write(refusal.serialize())
        self.transport.close()

    def shutdown(self) -> None:
        """The daemon is stopping. The other side is told, and has a moment to say that it has heard."""
        if not self.handshake_complete or self.close_sent:
            super().shutdown()
            return
        self.stop_keepalive()
        self.queue.put_nowait({"type": "websocket.disconnect", "code": CloseCode.SERVICE_RESTART})
        self.conn.send_close(CloseCode.SERVICE_RESTART)
        self._end()
        self.close_timer = self.loop.call_later(GOODBYE, self.transport.close)

    def _end(self) -> None:
        """Sends what is left to say, and listens for what the other side says to it."""
        self.close_sent = True
        self.transport.write(b"".join(self.conn.data_to_send()))
        if self.read_paused:
            self.read_paused = False
            self.transport.resume_reading()

    def send_receive_event_to_app(self) -> None:
        if self.curr_msg_data_type == "text" and not _is_text(self.frames):
            self.conn.parser_exc = ValueError("a text that is not UTF-8")
            self.conn.fail(CloseCode.INVALID_DATA)
            self.handle_parser_exception()
            return
        super().send_receive_event_to_app()

    def handle_parser_exception(self) -> None:
        """Says what was wrong, and reads on until the other side closes: a socket that is closed while something lies
        unread in it is reset, and the client would never see why."""
        if self.conn.close_sent is None:
            self._refuse_head()
            return
        code, reason = self.conn.close_sent.code, self.conn.close_sent.reason
        self.queue.put_nowait({"type": "websocket.disconnect", "code": code, "reason": reason})
        self.stop_keepalive()
        self._end()
        self._closes_at = self.loop.time() + LINGER
        self._linger()

    def _linger(self) -> None:
        if self.close_timer is not None:
            self.close_timer.cancel()
        at = min(self.loop.time() + QUIET, self._closes_at)
        self.close_timer = self.loop.call_at(at, self.transport.close)

    def handle_ping(self) -> None:
        if self.writable.is_set():
            super().handle_ping()
        else:
            # Answers to a client that sends and does not read would pile up; it may be answered to the last ping only.
            self.conn.data_to_send()

    def keepalive_timeout(self) -> None:
        if self.read_paused:
            # Its answer may wait behind messages that are not taken yet.
            self.pong_timer = None
            self.pending_ping_payload = None
            self.schedule_ping()
        else:
            super().keepalive_timeout()


class Handshake(ServerProtocol):
    """Refuses in JSON, as all else is refused."""

    def reject(self, status: StatusLike, text: str) -> Response:
        error = {"message": text.strip().partition("\n")[0], "type": "invalid_request_error"}
        response = super().reject(status, json.dumps({"error": error}))
        del response.headers["Content-Type"]
        response.headers["Content-Type"] = "application/json"
        return response


def _is_text(frames: list[bytes]) -> bool:
    try:
        b"".join(frames).decode()
    except UnicodeDecodeError:
        return False
    return True
