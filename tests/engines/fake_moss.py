"""A moss-tts-server for tests: the protocol, and tones instead of speech.

    python tests/engines/fake_moss.py --model FILE --host HOST --port PORT --no-webui

The pitch tells which voice is heard: 220 Hz is the model's own, 330 Hz that of an instruction, 440 Hz that of a
recording. What it was asked is at `GET /fake/record`. An `input` that begins with one of these does something wrong:

FAIL          500 with a line of plain text            BAD      400 with a line of plain text
NOTHING       200 without a byte                       NOISE    200 with what is no WAV
DIE           ends, with the answer begun if it streams
"""

from __future__ import annotations

import argparse
import base64
import json
import math
import os
import struct
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

RATE, CHANNELS = 48_000, 2
FRAMES = 9_600
WORDS = ("FAIL", "BAD", "NOTHING", "NOISE", "DIE")


def tone(hertz: int) -> bytes:
    """A fifth of a second on both channels."""
    samples = (round(8000 * math.sin(2 * math.pi * hertz * number / RATE)) for number in range(FRAMES))
    return b"".join(struct.pack("<hh", sample, sample) for sample in samples)


def wav(data: bytes) -> bytes:
    form = struct.pack("<HHIIHH", 1, CHANNELS, RATE, RATE * CHANNELS * 2, CHANNELS * 2, 16)
    # A chunk that nobody needs stands before the samples, as many writers put one there.
    chunks = b"fmt " + struct.pack("<I", 16) + form + b"LIST\x03\0\0\0abc\0" + b"data" + struct.pack("<I", len(data))
    return b"RIFF" + struct.pack("<I", len(chunks) + len(data) + 4) + b"WAVE" + chunks + data


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    asked: ClassVar[list[Any]] = []
    argv: ClassVar[list[str]] = []

    def log_message(self, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send(200, b"ok\n", "text/plain")
        elif self.path == "/fake/record":
            self._send(200, json.dumps({"asked": self.asked, "argv": self.argv}).encode(), "application/json")
        else:
            self._send(404, b"no\n", "text/plain")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        form, stream = body.get("response_format", "wav"), body.get("stream", False)
        word = next((word for word in WORDS if body["input"].startswith(word)), "")
        if self.path != "/v1/audio/speech" or form not in ("wav", "pcm") or (stream and form != "pcm"):
            self._send(400, b"unsupported\n", "text/plain")
        elif word in ("FAIL", "BAD"):
            self._send(500 if word == "FAIL" else 400, f"generation failed: {word}\n".encode(), "text/plain")
        elif word == "NOTHING":
            self._send(200, b"", "audio/wav")
        elif word == "NOISE":
            self._send(200, b"this is no sound", "audio/wav")
        elif word == "DIE" and not stream:
            os._exit(1)
        else:
            self._speak(body, form, stream, word)

    def _speak(self, body: Any, form: str, stream: bool, word: str) -> None:
        reference = body.get("reference_wav_b64")
        if reference is not None:
            assert base64.b64decode(reference)[:4] == b"RIFF"
        data = tone(440 if reference else 330 if body.get("voice") else 220)
        if not stream:
            self._send(200, wav(data) if form == "wav" else data, f"audio/{form}", {"X-MOSS-Channels": str(CHANNELS)})
            return
        self.send_response_only(200)
        self.send_header("Content-Type", "audio/pcm")
        self.send_header("X-MOSS-Sample-Rate", str(RATE))
        self.send_header("X-MOSS-Channels", str(CHANNELS))
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for _ in range(3):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            if word == "DIE":
                self.wfile.flush()
                os._exit(1)
        self.wfile.write(b"0\r\n\r\n")

    def _send(self, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None) -> None:
        self.send_response_only(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--no-webui", action="store_true", required=True)
    words = parser.parse_args()
    Handler.argv = ["--model", words.model, "--host", words.host]
    with open(words.model, "rb"):
        pass
    ThreadingHTTPServer((words.host, words.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
