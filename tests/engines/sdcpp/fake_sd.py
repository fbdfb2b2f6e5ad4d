"""Stands in for `sd-server` and `sd-cli`: speaks their protocols as strictly as they do, and paints squares of one
colour.

    python fake_sd.py server --listen-port N -m FILE …      python fake_sd.py cli -M upscale -i IN -o OUT …

`FAKE_SD` in the environment is a JSON object of switches: `error` (a text that every request gets with status 500),
`fail` (the exit status of `cli`). A prompt that begins with SLOW takes one and a half seconds, with HANG a minute, with
FAIL it fails, and with THROW it fails in the way of an exception. A server whose command line says `broken` ends at
once, as one does that has a flag which it does not know. It makes one request's pictures at a time, whoever waits for
them, and goes on when nobody does.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import multipart
from PIL import Image

SWITCHES: dict[str, Any] = json.loads(os.environ.get("FAKE_SD", "{}"))
EXTRA = re.compile(r"<sd_cpp_extra_args>(.*?)</sd_cpp_extra_args>", re.DOTALL)

#: Flags of sd-server that take a word, and those that take none. Source: its help.
VALUED = """
-l --listen-ip --listen-port --serve-html-path -m --model --diffusion-model --high-noise-diffusion-model --vae --taesd
--tae --clip_l --clip_g --clip_vision --t5xxl --llm --llm_vision --control-net --embd-dir --lora-model-dir -t --threads
--type --rng --prediction --steps --cfg-scale --guidance --strength --sampling-method --scheduler -W --width -H --height
-s --seed --flow-shift --vae-tile-size --vae-tile-overlap
"""
BARE = "-v --verbose --color --vae-tiling --fa --diffusion-fa --offload-to-cpu --mmap"
#: Pictures and steps of one request; what is beyond is left out without a word.
MOST_PICTURES, MOST_STEPS = 8, 100

seen: list[dict[str, Any]] = []
turn = threading.Lock()


def loras() -> list[str]:
    """As it calls the files of its folder: with their endings."""
    words = dict(zip(sys.argv[2::2], sys.argv[3::2], strict=False))
    folder = words.get("--lora-model-dir")
    return [path.name for path in Path(folder).iterdir()] if folder else []


def painted(size: str, seed: int, steps: int) -> str:
    """The seed is the red, the number of steps the green."""
    width, height = (int(side) for side in size.split("x"))
    made = io.BytesIO()
    Image.new("RGB", (width, height), (seed % 256, steps, 0)).save(made, "PNG")
    return base64.b64encode(made.getvalue()).decode()


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None: ...

    def do_GET(self) -> None:
        if self.path == "/fake/record":
            self.answer(200, {"argv": sys.argv[2:], "seen": seen})
        else:
            self.answer(200 if self.path == "/" else 404, {"fake": "sd-server"})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        fields, files = self.read(body)
        prompt = str(fields["prompt"])
        found = EXTRA.search(prompt)
        extra = json.loads(found[1]) if found else {}
        record = {
            "path": self.path,
            "prompt": EXTRA.sub("", prompt),
            "extra": extra,
            "n": int(fields["n"]),
            "size": fields["size"],
            "files": files,
        }
        seen.append(record)
        if not record["prompt"].strip():
            self.answer(400, {"error": "prompt required"})
        elif self.path == "/v1/images/edits" and not any(name == "image[]" for name, *_ in files):
            self.answer(400, {"error": "at least one image[] required"})
        elif any(each["path"] not in loras() for each in extra.get("lora", ())):
            self.answer(400, {"error": "invalid sd_cpp_extra_args"})
        else:
            with turn:
                self.paint(prompt, extra, record)

    def paint(self, prompt: str, extra: dict[str, Any], record: dict[str, Any]) -> None:
        time.sleep(1.5 if prompt.startswith("SLOW") else 60 if prompt.startswith("HANG") else 0)
        if "error" in SWITCHES or prompt.startswith("FAIL"):
            self.answer(500, {"error": SWITCHES.get("error", "out of paint")})
            return
        if prompt.startswith("THROW"):
            self.answer(500, {"error": "server_error", "message": "the brush broke"})
            return
        steps = min(extra["sample_params"]["sample_steps"], MOST_STEPS)
        shades = [extra.get("seed", 42) + number for number in range(min(record["n"], MOST_PICTURES))]
        data = [{"b64_json": painted(record["size"], shade, steps)} for shade in shades]
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
    valued, bare = VALUED.split(), BARE.split()
    rest = sys.argv[:1:-1]
    while rest:
        word = rest.pop()
        if word in valued and rest:
            rest.pop()
        elif word not in bare:
            sys.exit(f"error: unknown argument: {word}")
    port = int(sys.argv[sys.argv.index("--listen-port") + 1])
    ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
