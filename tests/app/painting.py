"""How tests ask for pictures."""

from __future__ import annotations

from typing import Any

from tests.daemon import Answer, Daemon
from tests.tiny_diffusion import TinyDiffusion

#: Threads that wait for each other are slow beside other tests.
ONE_THREAD = {"args": "--threads 1"}
#: Little for the engine to do: most of the time goes into the encoder of texts.
SMALL = {"steps": 1, "cfg_scale": 1.0, "width": 32, "height": 32}


def register(daemon: Daemon, name: str, weights: TinyDiffusion, **more: Any) -> None:
    definition = {
        "model_name": f"user.{name}",
        "recipe": "sd-cpp",
        "checkpoints": weights.checkpoints,
        "image_defaults": SMALL,
    }
    answer = daemon.post("/v1/models/register", {**definition, **more})
    assert answer.status == 200, answer.body


def paint(daemon: Daemon, prompt: str = "a red apple", model: str = "Tiny", **more: Any) -> Answer:
    return daemon.post("/v1/images/generations", {"model": model, "prompt": prompt, **more})


def pictures(answer: Answer) -> list[str]:
    """In base64."""
    assert answer.status == 200, answer.body[:1000]
    body = answer.json()
    assert body["output_format"] == "png"
    return [entry["b64_json"] for entry in body["data"]]


def form(daemon: Daemon, path: str, *parts: tuple[str, Any]) -> Answer:
    """A form; a value of bytes is a file."""
    body = b""
    for name, value in parts:
        extra = f'; filename="{name}"' if isinstance(value, bytes) else ""
        data = value if isinstance(value, bytes) else str(value).encode()
        body += f'--cut\r\nContent-Disposition: form-data; name="{name}"{extra}\r\n\r\n'.encode() + data + b"\r\n"
    return daemon.post(path, body + b"--cut--\r\n", headers={"Content-Type": "multipart/form-data; boundary=cut"})


def edit(daemon: Daemon, *parts: tuple[str, Any], model: str = "Tiny") -> Answer:
    return form(daemon, "/v1/images/edits", ("model", model), ("prompt", "make it green"), *parts)
