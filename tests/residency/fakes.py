"""Processes and a loader in memory, for tests of the order of things without real processes."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from typing import Any

from lemonade.engines.engine import Launch
from lemonade.errors import EngineLost, InvalidArgument, ModelLoadError
from lemonade.model import Model
from lemonade.settings import Layer, Settings


def model(name: str, label: str = "chat", recipe: str = "llamacpp", **more: Any) -> Model:
    return Model(name=name, recipe=recipe, labels=(label,), checkpoints={"main": f"org/{name}"}, **more)


def settings(**values: Any) -> Settings:
    return Settings([Layer("test", values)])


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class FakeProcess:
    """Becomes ready when `gate` is set (at once unless the world holds it), and ends when told or killed."""

    def __init__(self, launch: Launch, gate: asyncio.Event, pid: int, world: World) -> None:
        self.launch, self.gate, self.pid, self.world = launch, gate, pid, world
        self.returncode: int | None = None
        self.exited = asyncio.Event()
        self.healthy = True
        self.sleeping = False
        self.probes = 0
        self.lines = ["loading", "the last line"]

    async def wait_ready(self, timeout: float) -> None:
        waits = [asyncio.ensure_future(self.gate.wait()), asyncio.ensure_future(self.exited.wait())]
        try:
            done, _ = await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()
        if not done:
            raise ModelLoadError(f"fake was not ready after {timeout:g} s")
        if self.exited.is_set():
            raise ModelLoadError("fake exited with code 1; its last log lines:\n" + "\n".join(self.lines))
        if reason := self.world.broken.get(self.launch.name):
            self.end(1)
            raise ModelLoadError(reason)

    async def probe(self, timeout: float = 2.0) -> bool:
        self.probes += 1
        return self.healthy and not self.exited.is_set()

    async def stop(self, grace: float = 5.0) -> None:
        await asyncio.sleep(0)
        self.end(-15)

    def end(self, code: int) -> None:
        if not self.exited.is_set():
            self.returncode = code
            self.exited.set()

    def tail(self) -> list[str]:
        return self.lines

    def epitaph(self) -> str:
        return f"fake exited with code {self.returncode}"


class FakeConnection:
    def __init__(self, process: FakeProcess) -> None:
        self.process = process
        self.verdict: str | None = None
        self.closed = False

    async def request(self, method: str, path: str, body: bytes | None = None) -> FakeReply:
        self.process.world.requests.append(f"{self.process.launch.name} {method} {path}")
        await asyncio.sleep(0)
        if self.process.exited.is_set():
            raise EngineLost("gone")
        if path == "/props":
            return FakeReply(b'{"is_sleeping": %s}' % (b"true" if self.process.sleeping else b"false"))
        return FakeReply()

    async def close(self) -> None:
        self.closed = True


class FakeReply:
    status = 200

    def __init__(self, body: bytes = b'[{"id": 0}, {"id": 1}]') -> None:
        self.body = body

    async def read(self) -> bytes:
        return self.body


class World:
    """A loader, and all that it started.

    Attributes:
        started: every process ever started, in order.
        broken: model name to the reason for which its starts fail.
        refused: arguments to the reason for which no process can have them.
        held: names of models whose processes become ready only when their gate is set.
        fetches: names whose files are fetched until the event is set.
        fetched, gave_up: names whose fetch began, and whose fetch was cancelled.
        context: what an automatic context size comes to.
        requests: what the engines were asked.
    """

    def __init__(self) -> None:
        self.started: list[FakeProcess] = []
        self.broken: dict[str, str] = {}
        self.held: set[str] = set()
        self.fetches: dict[str, asyncio.Event] = {}
        self.fetched: list[str] = []
        self.gave_up: list[str] = []
        self.defaults: dict[str, dict[str, Any]] = {}
        self.devices: dict[str, str] = {}
        self.slots: dict[str, int] = {}
        self.refused: dict[str, str] = {}
        self.context = 4096
        self.requests: list[str] = []
        self._pids = itertools.count(100)

    async def fetch(self, model: Model, options: Mapping[str, Any]) -> None:
        self.fetched.append(model.name)
        if event := self.fetches.get(model.name):
            try:
                await event.wait()
            except asyncio.CancelledError:
                self.gave_up.append(model.name)
                raise

    def options(self, model: Model, request: Mapping[str, Any]) -> dict[str, Any]:
        layers = {"ctx_size": -1, "llamacpp_args": "", "pinned": False, **self.defaults.get(model.name, {})}
        return {**layers, **{key: value for key, value in request.items() if value is not None}}

    def device(self, model: Model, options: Mapping[str, Any]) -> str:
        return self.devices.get(model.name, "cpu")

    def check(self, model: Model, options: Mapping[str, Any]) -> None:
        pass

    def sized(self, model: Model, options: Mapping[str, Any]) -> dict[str, Any]:
        return {**options, "ctx_size": self.context if options["ctx_size"] == -1 else options["ctx_size"]}

    def launch(self, model: Model, options: Mapping[str, Any], port: int) -> Launch:
        if reason := self.refused.get(options.get("llamacpp_args", "")):
            raise InvalidArgument(reason, param="llamacpp_args")
        device, slots = self.devices.get(model.name, "cpu"), self.slots.get(model.name, 1)
        return Launch(name=model.name, argv=("fake",), port=port, device=device, slots=slots)

    async def start(self, launch: Launch) -> FakeProcess:
        from lemonade.engines.ports import release_port

        release_port(launch.port)
        gate = asyncio.Event()
        if launch.name not in self.held:
            gate.set()
        process = FakeProcess(launch, gate, next(self._pids), self)
        self.started.append(process)
        return process

    def running(self) -> list[str]:
        return [process.launch.name for process in self.started if not process.exited.is_set()]

    def starts(self, name: str) -> int:
        return sum(process.launch.name == name for process in self.started)


async def settle(rounds: int = 30) -> None:
    """Lets everything run that can."""
    for _ in range(rounds):
        await asyncio.sleep(0)
