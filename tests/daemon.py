"""A real daemon in a process of its own, for tests that look at it from outside."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent
FAKE_ENGINE = ROOT / "engines" / "fake_engine.py"


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        error = self.json()["error"]
        assert isinstance(error, dict)
        return error


@dataclass
class Daemon:
    """`lemonade serve` with directories of its own. `switches` go to every fake engine that it starts."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)
    switches: dict[str, Any] = field(default_factory=dict)
    fake_engine: bool = True
    port: int = 0
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.port = self.port or free_port()
        for name in ("cache", "config", "models", "hub"):
            (self.folder / name).mkdir(parents=True, exist_ok=True)
        self.models = self.folder / "models"
        settings: dict[str, Any] = {"extra_models_dir": str(self.models)}
        if self.fake_engine:
            settings["llamacpp"] = {"backend": "system"}
        (self.folder / "config" / "config.json").write_text(json.dumps(settings | self.config))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return (self.folder / "stderr.txt").read_text(errors="replace")

    @property
    def starts(self) -> list[int]:
        """The processes of all fake engines that were ever started to run a model."""
        try:
            lines = (self.folder / "starts.txt").read_text().splitlines()
        except FileNotFoundError:
            return []
        return [int(line.split()[0]) for line in lines if "--port" in line]

    def environment(self) -> dict[str, str]:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("LEMONADE_", "HF_"))}
        env |= {
            "LEMONADE_CACHE_DIR": str(self.folder / "cache"),
            "LEMONADE_CONFIG_DIR": str(self.folder / "config"),
            "HF_HUB_CACHE": str(self.folder / "hub"),
            "PYTHONWARNINGS": "error",
        }
        if self.fake_engine:
            env["PATH"] = f"{self._shim()}{os.pathsep}{env['PATH']}"
            env["FAKE_ENGINE"] = json.dumps(self.switches)
        return env | self.env

    def _shim(self) -> Path:
        """A folder with a `llama-server` that is the fake engine."""
        folder = self.folder / "bin"
        folder.mkdir(exist_ok=True)
        program = folder / "llama-server"
        note = f'echo "$$ $*" >> "{self.folder}/starts.txt"'
        program.write_text(f'#!/bin/sh\n{note}\nexec "{sys.executable}" "{FAKE_ENGINE}" "$@"\n')
        program.chmod(0o755)
        return folder

    def start(self, *, wait: bool = True) -> Daemon:
        with (self.folder / "stderr.txt").open("ab") as errors, (self.folder / "stdout.txt").open("ab") as output:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "lemonade.cli.main", "serve", "--port", str(self.port)],
                env=self.environment(),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
            )
        if wait:
            self.wait_live()
        return self

    def wait_live(self, seconds: float = 20) -> None:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            assert self.process is not None
            if self.process.poll() is not None:
                raise AssertionError(f"the daemon ended with {self.process.returncode}:\n{self.log}")
            try:
                if self.get("/live").status == 200:
                    return
            except OSError:
                time.sleep(0.02)
        raise AssertionError(f"the daemon did not come up:\n{self.log}")

    def stop(self, sig: int = signal.SIGTERM, seconds: float = 15) -> int:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.send_signal(sig)
        return self.process.wait(seconds)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Daemon:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    # Requests

    def ask(
        self, method: str, path: str, body: Any = None, headers: dict[str, str] | None = None, timeout: float = 60
    ) -> Answer:
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data=data, method=method)
        if data is not None:
            request.add_header("Content-Type", "application/json")
        for name, value in (headers or {}).items():
            request.add_header(name, value)
        try:
            with urllib.request.urlopen(request, timeout=timeout) as answer:
                return Answer(answer.status, dict(answer.headers.items()), answer.read())
        except urllib.error.HTTPError as error:
            with error:
                return Answer(error.code, dict(error.headers.items()), error.read())

    def get(self, path: str, **more: Any) -> Answer:
        return self.ask("GET", path, **more)

    def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return self.ask("POST", path, body, **more)

    def chat(self, model: str, text: str = "hi", **more: Any) -> Answer:
        return self.post(
            "/v1/chat/completions", {"model": model, "messages": [{"role": "user", "content": text}], **more}
        )

    def loaded(self) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.get("/v1/health").json()["all_models_loaded"]
        return entries

    def entry(self, model: str) -> dict[str, Any]:
        """What `/health` says of a model that is loaded."""
        (entry,) = (one for one in self.loaded() if one["model_name"] == model)
        return entry

    def switch(self, model: str, **switches: Any) -> None:
        """Replaces the switches of the fake engine that runs the model; its successor has the daemon's again."""
        address = str(self.entry(model)["backend_url"]).removesuffix("/v1")
        body = json.dumps(switches).encode()
        urllib.request.urlopen(f"{address}/fake/switches", data=body, timeout=10).close()

    def seen(self, model: str) -> dict[str, Any]:
        """What the fake engine that runs the model has seen."""
        address = str(self.entry(model)["backend_url"]).removesuffix("/v1")
        with urllib.request.urlopen(f"{address}/fake/record", timeout=10) as answer:
            record: dict[str, Any] = json.load(answer)
            return record

    def engine(self, index: int = 0) -> str:
        """The address of a loaded engine."""
        return str(self.loaded()[index]["backend_url"]).removesuffix("/v1")

    def record(self, index: int = 0) -> dict[str, Any]:
        """What a fake engine has seen."""
        with urllib.request.urlopen(self.engine(index) + "/fake/record", timeout=10) as answer:
            record: dict[str, Any] = json.load(answer)
            return record

    def add_model(self, name: str, **metadata: Any) -> str:
        """A GGUF file with a header and nothing else; the fake engine does not mind. The public id."""
        (self.models / f"{name}.gguf").write_bytes(gguf({"general.architecture": "llama", **metadata}))
        return name


def gguf(metadata: dict[str, Any]) -> bytes:
    """A GGUF file of version 3 without tensors; values are strings or unsigned 32-bit numbers."""

    def text(value: str) -> bytes:
        data = value.encode()
        return struct.pack("<Q", len(data)) + data

    parts = [b"GGUF", struct.pack("<IQQ", 3, 0, len(metadata))]
    for key, value in metadata.items():
        parts.append(text(key))
        parts.append(struct.pack("<I", 8) + text(value) if isinstance(value, str) else struct.pack("<II", 4, value))
    return b"".join(parts)


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def events(body: bytes) -> list[str]:
    """The `data` of every event of a stream, comments left out."""
    return [
        line.removeprefix("data: ")
        for block in body.decode().split("\n\n")
        for line in block.split("\n")
        if line.startswith("data: ")
    ]


def wait_for(condition: Any, seconds: float = 10, every: float = 0.02) -> Any:
    """The first true value of `condition()`."""
    deadline = time.monotonic() + seconds
    while True:
        if value := condition():
            return value
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(every)


def alive(pid: int) -> bool:
    """Whether the process is there and no zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"
