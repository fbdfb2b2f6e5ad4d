"""The way of a request to a cloud provider, and of its answer back.

No model is loaded and no slot is held. What the client sent goes on as it came, but for the model's name and what a
provider would stumble over; a stream comes back byte for byte, but for the model's name, so that it is the one that
was asked for, and for figures that were not.
"""

from __future__ import annotations

import asyncio
import dataclasses
import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from lemonade.engines.cloud.failures import ProviderUnreachable
from lemonade.errors import EngineError, EngineReplied, EngineSilent, ModelNotSupported, UnsupportedOperation
from lemonade.inference.cloud_failure import MAX_ERROR, provider_failure, redirect
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.events import Assembler
from lemonade.inference.measurement import measured_stream
from lemonade.inference.relay import DONE, Heartbeat, Sink
from lemonade.system.logs import secrets

if TYPE_CHECKING:
    from lemonade.engines.cloud.connection import CloudConnection, CloudReply
    from lemonade.engines.cloud.provider import Provider
    from lemonade.engines.cloud.providers import Providers
    from lemonade.model import Model
    from lemonade.system.metrics import Measurement, Metrics

#: Most bytes of a whole answer.
MAX_ANSWER = 64 * 1024 * 1024
#: Most bytes of one event of a stream.
MAX_EVENT = 16 * 1024 * 1024
#: Seconds that a provider has for the head of a stream before comments keep the client waiting: until then, a failure
#: can still have a status of its own.
PATIENCE = 15.0
#: Seconds for the last bytes of a stream that has said that it is done.
DRAIN = 0.5
#: Shorter keys are words that servers without keys are given, and may well stand in an answer.
MIN_KEY = 8

#: What many providers do not have.
_OPTIONAL = {"responses": "Responses API", "messages": "Messages API; ask through POST /v1/chat/completions"}
#: Headers of a provider's answer that mean something to its clients; `Retry-After` goes with the failure itself.
_TOLD = re.compile(r"(x-)?request-id|(x-ratelimit|anthropic)-[\w-]+")

_FIELD = re.compile(rb"\s*(?:data|event|id|retry)?:")
#: The model's name in an event, and the rest of its line: what else has that key comes from the client.
_MODEL = re.compile(rb'("model"\s*:\s*)"(?:[^"\\]|\\.)+"(.*)')
_DONE = re.compile(rb"data:\s*\[DONE\]\s*\Z")
_ERROR = re.compile(rb'data:\s*(\{\s*"error".*)', re.DOTALL)
_FIGURES = re.compile(rb'"usage"\s*:\s*\{')
#: What a stream holds that came to its end, by the paths of the APIs.
_ENDS = {
    "chat/completions": re.compile(rb'"finish_reason"\s*:\s*"'),
    "completions": re.compile(rb'"finish_reason"\s*:\s*"'),
    "responses": re.compile(rb'"type"\s*:\s*"response\.(?:completed|incomplete|failed|cancelled)"'),
    "messages": re.compile(rb'"type"\s*:\s*"(?:message_stop|error)"'),
}

Tell = Callable[[bytes, bytes], None]


async def forward_cloud(
    providers: Providers,
    model: Model,
    request: CloudRequest,
    sink: Sink,
    metrics: Metrics | None,
    *,
    tell: Tell = lambda name, value: None,
) -> None:
    """Asks the provider of `model` and gives the answer to `sink`.

    Args:
        metrics: where the answer is counted; None for what is not.
        tell: takes headers for the answer, before it begins.

    Raises:
        LemonadeError: to be told to the client, by an event if the answer has begun.
    """
    name = model.extras.get("cloud_provider")
    if not isinstance(name, str):
        raise ModelNotSupported(f"'{request.asked}' names no `cloud_provider` that runs it.", requested=request.asked)
    connection = providers.connection(name)
    _check_wire(connection.provider, request)
    relay = CloudRelay(connection, model, request, sink, tell, key=providers.key(name))
    try:
        await (relay.stream() if request.stream else relay.answer())
    except EngineError:
        if metrics is not None:
            metrics.failed(model, "cloud")
        raise
    if metrics is not None:
        metrics.answered(model, "cloud", relay.measurement)


def _check_wire(provider: Provider, request: CloudRequest) -> None:
    if provider.wire_format == "anthropic" and not request.is_anthropic:
        raise UnsupportedOperation(
            f"The cloud provider '{provider.name}' speaks the 'anthropic' wire format. Ask '{request.asked}' through "
            "POST /v1/messages.",
            param="model",
        )


class CloudRelay:
    """One request and its answer."""

    def __init__(
        self,
        connection: CloudConnection,
        model: Model,
        request: CloudRequest,
        sink: Sink,
        tell: Tell,
        *,
        key: str | None,
    ) -> None:
        self._connection = connection
        self._provider = connection.provider.name
        self._model = model
        self._request = request
        self._sink = sink
        self._tell = tell
        self._has_key = key is not None
        self._key = key.encode() if key and len(key) >= MIN_KEY else None
        self._ends = _ENDS.get(request.path, _ENDS["messages"])
        self._says_done = not request.is_anthropic
        #: The model's name in the events.
        self._asked = msgspec.json.encode(request.asked)
        self._drops_figures = request.drops_figures
        self._figures = b""
        #: The figures of the answer, once it is complete.
        self.measurement: Measurement | None = None

    async def answer(self) -> None:
        """An answer in one piece."""
        reply = await self._ask()
        try:
            body = await reply.read(MAX_ANSWER)
        finally:
            await reply.close()
        try:
            body, self.measurement = self._request.check(self._hidden(body), self._request.asked)
        except (msgspec.MsgspecError, KeyError, TypeError, AttributeError, RecursionError):
            raise self._of_no_use(reply) from None
        self._tell_headers(reply)
        await self._sink.reply(body)

    async def stream(self) -> None:
        """A stream of events."""
        loop = asyncio.get_running_loop()
        begun = loop.time()
        with Heartbeat(self._sink, first=PATIENCE) as heart:
            reply = await self._ask()
            try:
                if "event-stream" not in reply.headers.get("content-type", ""):
                    # It may be an error that came with the status of a success.
                    raise provider_failure(self._provider, 200, await reply.read(MAX_ERROR), reply.headers)
                if not self._sink.started:
                    self._tell_headers(reply)
                heart.reset()
                await self._pass_on(reply, heart, begun)
            finally:
                await reply.close()

    async def _pass_on(self, reply: CloudReply, heart: Heartbeat, begun: float) -> None:
        loop = asyncio.get_running_loop()
        sink = self._sink
        events = Assembler()
        first = 0.0
        ended = failed = passed_on = False
        while chunk := await reply.chunk():
            data = events.feed(chunk)
            if len(events) > MAX_EVENT:
                raise self._of_no_use(reply)
            if not data:
                continue
            if not passed_on and not _FIELD.match(data):
                raise self._of_no_use(reply)
            if not passed_on and (error := _ERROR.match(data)):
                raise provider_failure(self._provider, 500, error[1].strip(), reply.headers)
            failed = failed or _ERROR.search(data) is not None
            ended = ended or failed or self._ends.search(data) is not None
            data = self._edited(data)
            if heart.beating:
                await heart.settle()
            heart.reset()
            if not data:
                continue
            if not sink.started:
                await sink.start()
            first = first or loop.time()
            passed_on = True
            await sink.write(data)
            if self._says_done and _DONE.search(data):
                break
        else:
            if heart.beating:
                await heart.settle()
            held = events.rest
            if not passed_on and held.strip() and not _FIELD.match(held):
                raise self._of_no_use(reply)
            await self._close(held, ended=ended, passed_on=passed_on, done=not self._says_done or failed)
            self._measure(begun, first or loop.time(), loop.time())
            return
        await sink.end()
        self._measure(begun, first, loop.time())
        await self._drain(reply)

    @staticmethod
    async def _drain(reply: CloudReply) -> None:
        """Reads the end of the body, so that the connection can carry the next request."""
        try:
            async with asyncio.timeout(DRAIN):
                while await reply.chunk():
                    pass
        except (TimeoutError, ProviderUnreachable):
            pass

    async def _close(self, held: bytes, *, ended: bool, passed_on: bool, done: bool) -> None:
        """The connection was closed in good order, though the stream did not say that it is done.

        Args:
            ended: there was an event that tells of an end.
            done: nothing has to be added.
        """
        if held.strip():
            ended = ended or self._ends.search(held) is not None
            held = self._edited(held.rstrip() + b"\n\n")
        elif not passed_on:
            raise EngineSilent(f"cloud ({self._provider}) request failed: the stream was closed without an answer.")
        if not ended:
            raise ProviderUnreachable(f"cloud ({self._provider}) request failed: the stream was closed before its end.")
        if not self._sink.started:
            await self._sink.start()
        await self._sink.end(held if done or _DONE.search(held) else held + DONE)

    async def _ask(self) -> CloudReply:
        """The head of a success. What a provider refuses for a reason that is ours is asked again without it."""
        while True:
            body = await self._request.outgoing(self._model.checkpoint, self._connection.learned)
            reply = await self._connection.request(
                "POST", self._request.path + self._request.query, body, self._request.headers
            )
            if reply.status == 200:
                return reply
            try:
                text = await reply.read(MAX_ERROR)
            finally:
                await reply.close()
            if 300 <= reply.status < 400:
                raise redirect(self._provider, reply.headers)
            if not self._request.learns(reply.status, text, self._connection.learned):
                self._tell_headers(reply)
                raise self._refusal(reply, text)

    def _refusal(self, reply: CloudReply, text: bytes) -> Exception:
        if reply.status in (401, 403) and not self._has_key:
            provider = self._connection.provider
            return EngineReplied(
                f"No API key for cloud provider '{provider.name}'. Set the {provider.variable} environment variable or "
                "POST /v1/cloud/auth.",
                status=reply.status,
                type="authentication_error",
                details={"status_code": reply.status},
            )
        error = provider_failure(self._provider, reply.status, text, reply.headers)
        api = _OPTIONAL.get(self._request.path.partition("/")[0])
        if api and reply.status in (404, 405, 501) and self._connection.provider.wire_format == "openai":
            return UnsupportedOperation(f"{error.message} It may have no {api}.", param="model")
        return error

    def _edited(self, data: bytes) -> bytes:
        """Whole events as the client gets them."""
        if not self._request.is_anthropic:
            data = _MODEL.sub(lambda found: found[1] + self._asked + found[2], data)
            if _FIGURES.search(data):
                data = self._without_figures(data)
        return self._hidden(data)

    def _hidden(self, data: bytes) -> bytes:
        """Without the key, should the provider repeat it."""
        return data.replace(self._key, b"***") if self._key and self._key in data else data

    def _without_figures(self, data: bytes) -> bytes:
        """The events but for one that has nothing but figures, if nobody asked for it."""
        self._figures = data
        if not self._drops_figures:
            return data
        kept = [event for event in re.split(rb"(?<=\n\n)|(?<=\n\r\n)", data) if not _is_figures_alone(event)]
        return b"".join(kept)

    def _measure(self, begun: float, first: float, now: float) -> None:
        figures = measured_stream(self._figures)
        if figures is not None:
            speed = figures.output_tokens / (now - first) if now > first else 0.0
            figures = dataclasses.replace(figures, time_to_first_token=first - begun, tokens_per_second=speed)
        self.measurement = figures

    def _tell_headers(self, reply: CloudReply) -> None:
        for name, value in reply.headers.items():
            if _TOLD.fullmatch(name) and value.isascii() and value.isprintable() and len(value) < 512:
                self._tell(name.encode(), secrets.hide(value).encode())

    def _of_no_use(self, reply: CloudReply) -> EngineReplied:
        kind = reply.headers.get("content-type", "")[:80]
        return EngineReplied(
            f"cloud ({self._provider}) request failed: it answered something that is no answer of this API "
            f"({kind or 'of no type'}). Is its base_url right?",
            status=502,
        )


def _is_figures_alone(event: bytes) -> bool:
    """Whether it is the event after the last choice, which has figures and no choice."""
    if not _FIGURES.search(event):
        return False
    try:
        chunk = msgspec.json.decode(event[event.index(b"data:") + 5 :])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
