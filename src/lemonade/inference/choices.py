"""Several answers of an engine as the choices of one: `n`, and completions of several prompts.

llama.cpp makes no more choices at once than it has slots, counts the tokens of only one of several prompts, and puts
`data: null` between their streams. So each choice is a request of its own, all under one lease, and their answers are
put together here. What has to be changed inside an answer (`echo`, the shape of log probabilities) is changed on the
way, also when there is only one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from lemonade.errors import EngineError, EngineLost
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import DONE, PING, PING_AFTER, EngineRequest, Relay, Sink

if TYPE_CHECKING:
    from lemonade.model import Model
    from lemonade.residency.lease import Lease
    from lemonade.residency.manager import Residency
    from lemonade.system.metrics import Metrics

#: Requests that are inside the engine at once: the slots that llama-server has by default.
PARALLEL = 4

Tree = dict[str, Any]


class Editor(Protocol):
    """What is changed inside the answers; asked with the choice's number."""

    async def prepare(self, lease: Lease) -> None:
        """Asks the engine what has to be known beforehand."""
        ...

    def opening(self, number: int) -> Tree | None:
        """A choice to send before the first one of a stream."""
        ...

    def edit(self, number: int, choice: Tree) -> None:
        """Changes a choice, of a whole answer or of an event."""
        ...

    def whole(self, number: int, choice: Tree) -> None:
        """Changes a choice of a whole answer, after `edit`."""
        ...

    def count(self, usage: Tree) -> None:
        """Changes the token counts of one request."""
        ...


class Untouched:
    """Changes nothing."""

    async def prepare(self, lease: Lease) -> None:
        """There is nothing to ask."""

    def opening(self, number: int) -> Tree | None:
        return None

    def edit(self, number: int, choice: Tree) -> None:
        """There is nothing to change."""

    def whole(self, number: int, choice: Tree) -> None:
        """There is nothing to change."""

    def count(self, usage: Tree) -> None:
        """There is nothing to change."""


async def forward_choices(
    residency: Residency,
    model: Model,
    requests: Sequence[EngineRequest],
    sink: Sink,
    metrics: Metrics,
    editor: Editor,
    *,
    prompts: int = 1,
) -> None:
    """As `relay.forward`, for requests whose answers are the choices of one, in their order.

    Args:
        prompts: how many different prompts the requests have; each is counted once in `usage`.
    """
    first = requests[0]
    for attempt in (1, 2):
        choices = Choices(sink, len(requests), editor, prompts)
        try:
            async with residency.lease(model, options=first.options, streaming=first.stream) as lease:
                device = lease.resident.device
                relays = [Relay(one, Branch(number, choices)) for number, one in enumerate(requests)]
                try:
                    await editor.prepare(lease)
                    await _run(relays, lease, first.stream)
                    await choices.close(first.stream)
                except EngineError as error:
                    if attempt == 2 or not isinstance(error, EngineLost) or sink.started:
                        metrics.failed(model, device)
                    raise
                for relay in relays:
                    metrics.answered(model, device, relay.measurement)
                return
        except EngineLost:
            if attempt == 2 or sink.started:
                raise


async def _run(relays: Sequence[Relay], lease: Lease, stream: bool) -> None:
    """Runs all, some at once. The first failure ends the others, so that their slots are free at once."""
    turns = asyncio.Semaphore(PARALLEL)

    async def one(relay: Relay) -> None:
        async with turns:
            await (relay.stream(lease) if stream else relay.answer(lease))

    tasks = [asyncio.ensure_future(one(relay)) for relay in relays]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class Branch:
    """Where the answer to one of the requests goes; a sink for its relay."""

    def __init__(self, number: int, choices: Choices) -> None:
        self.started = False
        self._number = number
        self._choices = choices

    async def start(self) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        if data == PING:
            await self._choices.ping()
            return
        for payload in payloads(data):
            await self._choices.event(self._number, payload)

    async def end(self, data: bytes = b"") -> None:
        await self.write(data)

    async def reply(self, body: bytes) -> None:
        self._choices.answer(self._number, body)


class Choices:
    """The one answer that the client sees."""

    def __init__(self, sink: Sink, count: int, editor: Editor, prompts: int) -> None:
        self._sink = sink
        self._editor = editor
        self._count = count
        self._prompts = prompts
        self._answers: dict[int, Tree] = {}
        self._opened: set[int] = set()
        self._left = count
        self._usage: dict[int, Tree] = {}
        self._timings: dict[int, Tree] = {}
        self._head: Tree = {}
        self._usage_chunk = False
        self._written = asyncio.get_running_loop().time()
        self._writing = asyncio.Lock()

    def answer(self, number: int, body: bytes) -> None:
        """Takes the whole answer of one request."""
        self._answers[number] = msgspec.json.decode(body)

    async def event(self, number: int, payload: bytes) -> None:
        """Takes one event of one request.

        Raises:
            EngineError: the event is an error.
        """
        tree = msgspec.json.decode(payload)
        if not isinstance(tree, dict):
            return
        if "error" in tree:
            raise engine_failure(500, payload, "The engine")
        self._figures(number, tree)
        given = tree.pop("choices", None) or []
        self._head = self._head or tree
        if not given:
            self._usage_chunk = True
            return
        if number not in self._opened:
            self._opened.add(number)
            if opening := self._editor.opening(number):
                await self._send({**self._head, "choices": [{**opening, "index": number}]})
        for choice in given:
            choice["index"] = number
            self._editor.edit(number, choice)
        chunk = {**self._head, "choices": given}
        if any(choice.get("finish_reason") for choice in given):
            self._left -= 1
            if self._left == 0:
                chunk |= self._sums()
        await self._send(chunk)

    async def ping(self) -> None:
        """A comment, unless another choice made the stream move meanwhile."""
        if asyncio.get_running_loop().time() - self._written >= PING_AFTER / 2:
            await self._write(PING)

    async def close(self, stream: bool) -> None:
        """All requests are answered."""
        if stream:
            if self._usage_chunk:
                await self._send({**self._head, "choices": [], **self._sums()})
            await self._open()
            await self._sink.end(DONE)
            return
        made = []
        for number in range(self._count):
            tree = self._answers[number]
            self._figures(number, tree)
            choice = tree["choices"][0]
            choice["index"] = number
            self._editor.edit(number, choice)
            self._editor.whole(number, choice)
            made.append(choice)
        await self._sink.reply(msgspec.json.encode({**self._answers[0], "choices": made, **self._sums()}))

    def _figures(self, number: int, tree: Tree) -> None:
        for key, kept in (("usage", self._usage), ("timings", self._timings)):
            figures = tree.pop(key, None)
            if isinstance(figures, dict):
                kept[number] = figures
                if key == "usage":
                    self._editor.count(figures)

    def _sums(self) -> Tree:
        """The figures that all requests have told by now."""
        sums: Tree = {}
        if len(self._usage) == self._count:
            sums["usage"] = total_usage([self._usage[key] for key in sorted(self._usage)], self._prompts)
        if len(self._timings) == self._count:
            sums["timings"] = total_timings(list(self._timings.values()))
        return sums

    async def _send(self, tree: Tree) -> None:
        await self._write(b"data: " + msgspec.json.encode(tree) + b"\n\n")

    async def _write(self, data: bytes) -> None:
        async with self._writing:
            await self._open()
            self._written = asyncio.get_running_loop().time()
            await self._sink.write(data)

    async def _open(self) -> None:
        if not self._sink.started:
            await self._sink.start()


def payloads(data: bytes) -> Iterator[bytes]:
    """What the events in `data` carry, the closing `[DONE]` left out."""
    for line in data.splitlines():
        if line.startswith(b"data:"):
            payload = line[5:].strip()
            if payload and payload != b"[DONE]":
                yield payload


def total_usage(parts: Sequence[Tree], prompts: int) -> Tree:
    """Token counts of all parts; of parts with the same prompt, which follow each other, its tokens count once."""
    each = max(1, len(parts) // prompts)
    asked = sum(_number(part, "prompt_tokens") for part in parts[::each])
    made = sum(_number(part, "completion_tokens") for part in parts)
    total = {"prompt_tokens": asked, "completion_tokens": made, "total_tokens": asked + made}
    details = [part["prompt_tokens_details"] for part in parts[::each] if part.get("prompt_tokens_details")]
    if details:
        return {
            **total,
            "prompt_tokens_details": {"cached_tokens": sum(_number(one, "cached_tokens") for one in details)},
        }
    return total


def total_timings(parts: Sequence[Tree]) -> Tree:
    """llama.cpp's timings of all parts: counts and times added up, speeds made anew."""
    if len(parts) == 1:
        return parts[0]
    total: Tree = {"cache_n": sum(_number(part, "cache_n") for part in parts)}
    for phase in ("prompt", "predicted"):
        count = sum(_number(part, f"{phase}_n") for part in parts)
        spent = sum(_number(part, f"{phase}_ms") for part in parts)
        total |= {
            f"{phase}_n": count,
            f"{phase}_ms": spent,
            f"{phase}_per_token_ms": spent / count if count else 0.0,
            f"{phase}_per_second": 1000 * count / spent if spent else 0.0,
        }
    return total


def _number(tree: Tree, key: str) -> Any:
    value = tree.get(key)
    return value if isinstance(value, int | float) else 0


def copies(body: Tree, count: int) -> list[Tree]:
    """Bodies for `count` choices of one request: each asks for one, with a seed of its own if any was given."""
    body = {key: value for key, value in body.items() if key != "n"}
    seed = body.get("seed")
    if count == 1 or not isinstance(seed, int) or seed < 0:
        return [body] * count
    return [{**body, "seed": seed + number} for number in range(count)]
