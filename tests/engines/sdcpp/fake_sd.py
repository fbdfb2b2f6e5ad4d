"""Stands in for `sd-server` and `sd-cli`: speaks their protocols, and paints squares of one colour.

    python fake_sd.py server --listen-port N -m FILE …      python fake_sd.py cli -M upscale -i IN -o OUT …

`FAKE_SD` in the environment is a JSON object of switches: `error` (a text that every request gets with status 500),
`fail` (the exit status of `cli`). A prompt that begins with SLOW takes one and a half seconds, with HANG a minute, and
with FAIL it fails. A server whose command line says `broken` ends at once.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import multipart
from PIL import Image

SWITCHES: dict[str, Any] = json.loads(os.environ.get("FAKE_SD", "{}"))
EXTRA = re.compile(r"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>", re.DOTALL)

seen: list[dict[str, Any]] = []


def painted(size: str, number: int) -> str:
    width, height = (int(side) for side in size.split("x"))
    made = io.BytesIO()
    Image.new("RGB", (width, height), (number, 0, 0)).save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        self.answer(200, {"argv": sys.argv[2:], "seen": seen} if self.path == "/fake/record" else {"fake": "sd-server"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fields, files = self.read(body)
        prompt = str(fields["prompt"])
        extra = EXTRA.search(prompt)
        record = {
            "path": self.path,
            "prompt": EXTRA.sub("", prompt),
            "extra": json.loads(extra[1]) if extra else None,
            "n": int(fields["n"]),
            "size": fields["size"],
            "files": files,
        }
        seen.append(record)
        time.sleep(1.5 if prompt.startswith("SLOW") else 60 if prompt.startswith("HANG") else 0)
        if "error" in SWITCHES or prompt.startswith("FAIL"):
            self.answer(500, {"error": SWITCHES.get("error", "out of paint")})
            return
        data = [{"b64_json": painted(record["size"], number)} for number in range(record["n"])]
        self.answer(200, {"created": int(time.time()), "data": data, "output_format": "png"})

    def read(self, body: bytes) -> tuple[dict[str, Any], list[list[str]]]:
        if self.path == "/v1/images/generations":
            return json.loads(body), []
        _, options = multipart.parse_options_header(self.headers["Content-Type"])
        parts = multipart.MultipartParser(io.BytesIO(body), options["boundary"]).parts()
        files = [
            [part.name, part.filename, part.content_type, base64.b64encode(part.raw).decode()]
            for part in parts
            if part.filename
        ]
        return {part.name: part.value for part in parts if not part.filename}, files

    def answer(self, status: int, value: Any) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def upscale(words: list[str]) -> int:
    if "fail" in SWITCHES:
        print("upscale failed for a reason", file=sys.stderr)
        return int(SWITCHES["fail"])
    said = dict(zip(words[::2], words[1::2], strict=True))
    assert said["-M"] == "upscale"
    assert Path(said["--upscale-model"]).exists()
    with Image.open(said["-i"]) as picture:
        picture.resize((picture.width * 4, picture.height * 4)).save(said["-o"])
    return 0


if __name__ == "__main__":
    if sys.argv[1] == "cli":
        sys.exit(upscale(sys.argv[2:]))
    if "broken" in " ".join(sys.argv[2:]):
        sys.exit("the file is no model")
    port = int(sys.argv[sys.argv.index("--listen-port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
