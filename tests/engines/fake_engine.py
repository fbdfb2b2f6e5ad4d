"""An engine without a model: speaks llama.cpp's HTTP dialect and misbehaves on demand.

    python fake_engine.py -m FILE --port P [--alias NAME] [any further arguments of llama-server]

It answers /health, /props, /slots, /metrics, /tokenize, /detokenize, /v1/chat/completions, /v1/completions,
/v1/responses, /v1/embeddings, /v1/rerank, and /pcm as engines for speech have it.

Switches are a JSON object in the environment's FAKE_ENGINE, overlaid for one request by the body's key `fake`:

    at the start     exit_at_start: code            writes two lines and exits
                     slow_start: seconds            answers 503 until then
                     never_ready: true              answers 503 for ever
                     ignore_sigterm: true
                     fork_child: true               starts a child that sleeps; its number is in /fake/record
                     noise: N                       writes N lines, one of them very long, one with control characters
    the answer       text: "…"                      one word a piece, unless `tokens` says otherwise
                     tokens: N                      pieces "w0 ", "w1 ", … instead
                     interval: seconds              between two pieces
                     reasoning: "…"                 before the text; alone with `text: ""`
                     empty_choices, empty_message   what some engines answer when they have nothing to say
                     tool_call: {"name", "arguments"}
                     tool_calls: [{"name", "arguments"}, …]     several in one answer
                     turns: [switches, …]           more of them for an answer by its number since the last message of
                                                    the user; all later ones have those of the last
    misbehaviour     crash_before: true             dies by SIGKILL before the head of the answer
                     crash_after: N                 … after N events
                     exit_after: N                  exits with code 3 after N events
                     hang_up: true                  closes the socket without an answer
                     cut_after: N                   closes the socket after N events, and lives
                     stall: "headers" | N           says nothing more, before the head or after N events
                     split: 1                       one byte per write
                     no_done: true                  no `[DONE]`
                     silent200: true                head of a stream, then the end
                     err400: true                   llama.cpp's answer to a prompt beyond its context
                     error: {"status", "json" | "text"}     any other error; neither for an empty body
                     error_after: N                 an error event after N events

`GET /fake/record` tells what happened: `{"pid", "argv", "requests": [{"path", "headers", "body", "at", "hung_up"}],
"in_flight", "peak", "started", "child"}` with times as `time.time()`; `DELETE` forgets the requests. `record: FILE`
also writes the same to a file at every change. `POST /fake/switches` replaces the switches of the process.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from aiohttp import web

DEFAULT_TEXT = "The capital of France is Paris."
CONTEXT_ERROR = {
    "error": {
        "code": 400,
        "message": "the request exceeds the available context size, try increasing it",
        "type": "exceed_context_size_error",
        "n_prompt_tokens": 9001,
        "n_ctx": 4096,
    }
}
JSON = "application/json"


class State:
    def __init__(self, args: argparse.Namespace, switches: dict[str, Any]) -> None:
        self.args = args
        self.switches = switches
        self.started = time.time()
        self.requests: list[dict[str, Any]] = []
        self.in_flight = 0
        self.peak = 0
        self.child: int | None = None

    def record(self) -> dict[str, Any]:
        return {
            "pid": os.getpid(),
            "argv": sys.argv[1:],
            "requests": self.requests,
            "in_flight": self.in_flight,
            "peak": self.peak,
            "started": self.started,
            "child": self.child,
        }

    def save(self) -> None:
        if name := self.switches.get("record"):
            new = Path(f"{name}.{os.getpid()}")
            new.write_text(json.dumps(self.record()))
            new.replace(name)


class Answer:
    """The pieces of one answer in one of the dialects, and how each is written."""

    def __init__(self, kind: str, model: str, body: dict[str, Any], switches: dict[str, Any]) -> None:
        self.kind, self.model, self.body, self.switches = kind, model, body, switches
        if "tokens" in switches:
            self.pieces = [f"w{number} " for number in range(switches["tokens"])]
        else:
            text = switches.get("text", DEFAULT_TEXT)
            self.pieces = [word + " " for word in text.split(" ")] if text else []
            if self.pieces:
                self.pieces[-1] = self.pieces[-1][:-1]
        calls = switches.get("tool_calls") or [switches[key] for key in ("tool_call",) if key in switches]
        ids = ["call_fake", *(f"call_fake{number}" for number in range(1, len(calls)))]
        self.calls = [{"id": id_, "type": "function", "function": call} for id_, call in zip(ids, calls, strict=False)]
        self.reasoning = switches.get("reasoning", "")
        self.text = "".join(self.pieces)

    @property
    def usage(self) -> dict[str, Any]:
        made = len(self.pieces)
        return {
            "prompt_tokens": 7,
            "completion_tokens": made,
            "total_tokens": 7 + made,
            "prompt_tokens_details": {"cached_tokens": 2},
        }

    @property
    def timings(self) -> dict[str, Any]:
        made = len(self.pieces)
        return {
            "cache_n": 2,
            "prompt_n": 5,
            "prompt_ms": 10.0,
            "predicted_n": made,
            "predicted_ms": 20.0,
            "prompt_per_second": 500.0,
            "predicted_per_second": made / 0.02,
        }

    def common(self, object_: str) -> dict[str, Any]:
        return {
            "id": "chatcmpl-fake",
            "object": object_,
            "created": 1700000000,
            "model": self.model,
            "system_fingerprint": "fake",
        }

    def whole(self) -> dict[str, Any]:
        if self.kind == "responses":
            return self._response("completed")
        if self.kind == "completion":
            choice: dict[str, Any] = {"text": self.text, "index": 0, "logprobs": None, "finish_reason": "stop"}
            answer = self.common("text_completion")
        else:
            message: dict[str, Any] = {"role": "assistant", "content": self.text}
            if self.reasoning:
                message["reasoning_content"] = self.reasoning
            if self.calls:
                message |= {"content": None, "tool_calls": self.calls}
            if self.switches.get("empty_message"):
                message = {}
            choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if self.calls else "stop"}
            answer = self.common("chat.completion")
        choices = [] if self.switches.get("empty_choices") else [choice]
        return answer | {"choices": choices, "usage": self.usage, "timings": self.timings}

    def events(self) -> list[bytes]:
        """One encoded write per piece, the opening and closing ones first and last."""
        if self.kind == "responses":
            return self._response_events()
        if self.switches.get("empty_choices"):
            return [event(self.common("chat.completion.chunk") | {"choices": []})]
        if self.kind == "completion":
            made = [self._text_chunk(piece, None) for piece in self.pieces]
            last = self._text_chunk("", "stop")
        else:
            made = [self._chunk({"role": "assistant", "content": None}, None)]
            made += [self._chunk({"reasoning_content": self.reasoning}, None)] if self.reasoning else []
            made += [self._chunk({"content": piece}, None) for piece in self.pieces]
            for index, call in enumerate(self.calls):
                name, arguments = call["function"]["name"], call["function"]["arguments"]
                head = {**call, "index": index, "function": {"name": name, "arguments": ""}}
                made.append(self._chunk({"tool_calls": [head]}, None))
                for at in range(0, len(arguments), 6):
                    piece = {"index": index, "function": {"arguments": arguments[at : at + 6]}}
                    made.append(self._chunk({"tool_calls": [piece]}, None))
            last = self._chunk({}, "tool_calls" if self.calls else "stop")
        last["timings"] = self.timings
        made.append(last)
        if (self.body.get("stream_options") or {}).get("include_usage"):
            object_ = "text_completion" if self.kind == "completion" else "chat.completion.chunk"
            made.append(self.common(object_) | {"choices": [], "usage": self.usage, "timings": self.timings})
        return [event(chunk) for chunk in made]

    def _chunk(self, delta: dict[str, Any], finish: str | None) -> dict[str, Any]:
        choice = {"finish_reason": finish, "index": 0, "delta": delta}
        return self.common("chat.completion.chunk") | {"choices": [choice]}

    def _text_chunk(self, text: str, finish: str | None) -> dict[str, Any]:
        choice = {"text": text, "index": 0, "logprobs": None, "finish_reason": finish}
        return self.common("text_completion") | {"choices": [choice]}

    def _response(self, status: str) -> dict[str, Any]:
        content = [{"type": "output_text", "text": self.text, "annotations": [], "logprobs": []}]
        message = {"id": "msg_fake", "type": "message", "role": "assistant", "status": status, "content": content}
        return {
            "id": "resp_fake",
            "object": "response",
            "created_at": 1700000000,
            "completed_at": 1700000001,
            "model": self.model,
            "status": status,
            "output": [message] if status == "completed" else [],
            "usage": {
                "input_tokens": 7,
                "output_tokens": len(self.pieces),
                "total_tokens": 7 + len(self.pieces),
                "input_tokens_details": {"cached_tokens": 2},
            },
        }

    def _response_events(self) -> list[bytes]:
        made: list[dict[str, Any]] = [
            {"type": "response.created", "response": self._response("in_progress")},
            {"type": "response.in_progress", "response": self._response("in_progress")},
            {"type": "response.output_item.added", "output_index": 0, "item": {"id": "msg_fake", "type": "message"}},
            {"type": "response.content_part.added", "output_index": 0, "content_index": 0},
        ]
        made += [
            {"type": "response.output_text.delta", "item_id": "msg_fake", "output_index": 0, "delta": piece}
            for piece in self.pieces
        ]
        made += [
            {"type": "response.output_text.done", "item_id": "msg_fake", "output_index": 0, "text": self.text},
            {"type": "response.content_part.done", "output_index": 0, "content_index": 0},
            {"type": "response.output_item.done", "output_index": 0, "item": self._response("completed")["output"][0]},
            {"type": "response.completed", "response": self._response("completed")},
        ]
        return [b"event: " + item["type"].encode() + b"\n" + event(item) for item in made]


def turn(messages: list[dict[str, Any]]) -> int:
    """How often the assistant has spoken since the user did."""
    number = 0
    for message in messages:
        number = number + 1 if message["role"] == "assistant" else 0 if message["role"] == "user" else number
    return number


def event(data: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode() + b"\n\n"


class FakeEngine:
    def __init__(self, state: State) -> None:
        self.state = state
        # A benchmark sends the same request again and again: what was encoded once is kept.
        self._encoded: dict[tuple[str, bytes], tuple[Answer, bytes | list[bytes]]] = {}
        self._ear = asyncio.Lock()

    def application(self) -> web.Application:
        app = web.Application(client_max_size=1 << 30)
        routes = app.router
        routes.add_get("/health", self.health)
        routes.add_get("/v1/health", self.health)
        routes.add_get("/props", self.props)
        routes.add_get("/slots", self.slots)
        routes.add_post("/slots/{id}", self.erase)
        routes.add_get("/metrics", self.metrics)
        routes.add_get("/v1/models", self.models)
        routes.add_post("/tokenize", self.tokenize)
        routes.add_post("/detokenize", self.detokenize)
        for prefix in ("", "/v1"):
            routes.add_post(f"{prefix}/chat/completions", self.answers("chat"))
            routes.add_post(f"{prefix}/completions", self.answers("completion"))
            routes.add_post(f"{prefix}/responses", self.answers("responses"))
            routes.add_post(f"{prefix}/embeddings", self.answers("embeddings"))
            routes.add_post(f"{prefix}/rerank", self.answers("rerank"))
        routes.add_post("/pcm", self.answers("pcm"))
        routes.add_get("/fake/record", self.record)
        routes.add_delete("/fake/record", self.forget)
        routes.add_post("/fake/switches", self.switch)
        return app

    async def health(self, request: web.Request) -> web.Response:
        switches = self.state.switches
        loading = time.time() - self.state.started < switches.get("slow_start", 0) or switches.get("never_ready")
        if loading:
            error = {"message": "Loading model", "type": "unavailable_error", "code": 503}
            return web.json_response({"error": error}, status=503)
        return web.json_response({"status": "ok"})

    async def props(self, request: web.Request) -> web.Response:
        args = self.state.args
        settings = {"n_ctx": args.ctx_size, "params": {"temperature": 0.8}}
        return web.json_response(
            {
                "default_generation_settings": settings,
                "total_slots": 1,
                "model_path": args.model,
                "model_alias": args.alias,
            }
        )

    async def slots(self, request: web.Request) -> web.Response:
        busy = self.state.in_flight > 0
        return web.json_response([{"id": 0, "n_ctx": self.state.args.ctx_size, "is_processing": busy}])

    async def erase(self, request: web.Request) -> web.Response:
        self.state.requests.append({"path": request.path_qs, "headers": {}, "body": None, "at": time.time()})
        return web.json_response({"id_slot": int(request.match_info["id"]), "n_erased": 0})

    async def metrics(self, request: web.Request) -> web.Response:
        return web.Response(text=f"llamacpp:requests_processing {self.state.in_flight}\n")

    async def models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": self.state.args.alias, "object": "model"}]})

    async def tokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"tokens": list(range(len(body.get("content", "").split())))})

    async def detokenize(self, request: web.Request) -> web.Response:
        body = await request.json()
        return web.json_response({"content": "".join(f"<{token}>" for token in body["tokens"])})

    async def record(self, request: web.Request) -> web.Response:
        return web.json_response(self.state.record())

    async def forget(self, request: web.Request) -> web.Response:
        self.state.requests.clear()
        return web.json_response({})

    async def switch(self, request: web.Request) -> web.Response:
        self.state.switches = await request.json()
        self._encoded.clear()
        return web.json_response({})

    def answers(self, kind: str) -> Any:
        async def handle(request: web.Request) -> web.StreamResponse:
            return await self._counted(kind, request)

        return handle

    async def _counted(self, kind: str, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        state = self.state
        state.in_flight += 1
        state.peak = max(state.peak, state.in_flight)
        entry: dict[str, Any] = {}
        try:
            body = {"bytes": len(raw)} if kind == "pcm" else json.loads(raw)
            entry |= {
                "path": request.path_qs,
                "headers": dict(request.headers),
                "body": body,
                "at": time.time(),
                "hung_up": None,
            }
            state.requests.append(entry)
            if len(state.requests) > 1000:
                del state.requests[:500]
            state.save()
            return await self._answer(kind, request, raw, body)
        except (asyncio.CancelledError, ConnectionError):
            entry["hung_up"] = time.time()
            raise
        finally:
            state.in_flight -= 1
            state.save()

    async def _answer(self, kind: str, request: web.Request, raw: bytes, body: dict[str, Any]) -> web.StreamResponse:
        switches = self.state.switches | body.get("fake", {}) if "fake" in body else self.state.switches
        if turns := switches.get("turns"):
            switches = switches | turns[min(turn(body["messages"]), len(turns) - 1)]
        if switches.get("crash_before"):
            os.kill(os.getpid(), signal.SIGKILL)
        if switches.get("hang_up"):
            assert request.transport is not None
            request.transport.abort()
            await asyncio.sleep(3600)
        if switches.get("stall") == "headers":
            await asyncio.sleep(3600)
        if switches.get("err400"):
            return web.json_response(CONTEXT_ERROR, status=400)
        if error := switches.get("error"):
            if "json" in error:
                return web.json_response(error["json"], status=error["status"])
            return web.Response(text=error.get("text", ""), status=error["status"])
        if switches.get("silent200"):
            return web.Response(body=b"", content_type="text/event-stream")
        if kind == "pcm":
            return await self._hear(request, len(raw), switches)
        if kind in ("embeddings", "rerank"):
            return web.json_response(self._vectors(body) if kind == "embeddings" else self._ranks(body))
        streamed = bool(body.get("stream"))
        if (kind, raw) not in self._encoded:
            if len(self._encoded) > 100:
                self._encoded.clear()
            answer = Answer(kind, body.get("model") or self.state.args.alias, body, switches)
            encoded = answer.events() if streamed else json.dumps(answer.whole(), ensure_ascii=False).encode()
            self._encoded[kind, raw] = answer, encoded
        answer, encoded = self._encoded[kind, raw]
        if isinstance(encoded, bytes):
            if pause := switches.get("interval", 0):
                await asyncio.sleep(pause * len(answer.pieces))
            return web.Response(body=encoded, content_type=JSON, charset="utf-8")
        return await self._stream(request, encoded, kind, switches)

    async def _hear(self, request: web.Request, size: int, switches: dict[str, Any]) -> web.StreamResponse:
        """One piece of audio after the other, as real engines do; the text says how long it is."""
        async with self._ear:
            await asyncio.sleep(switches.get("interval", 0))
        milliseconds = size * 500 // int(request.query["rate"])
        return web.json_response({"text": switches.get("text", f"{milliseconds} ms")})

    async def _stream(
        self, request: web.Request, events: list[bytes], kind: str, switches: dict[str, Any]
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        pause = switches.get("interval", 0)
        closing = [] if switches.get("no_done") or kind == "responses" else [b"data: [DONE]\n\n"]
        if not switches:
            for data in events + closing:
                await response.write(data)
            return response
        for number, data in enumerate(events + closing):
            await self._misbehave(request, response, number, switches)
            if switches.get("split"):
                for byte in data:
                    await response.write(bytes((byte,)))
                    await asyncio.sleep(0)
            else:
                await response.write(data)
            if pause:
                await asyncio.sleep(pause)
        return response

    async def _misbehave(
        self, request: web.Request, response: web.StreamResponse, number: int, switches: dict[str, Any]
    ) -> None:
        assert request.transport is not None
        if number == switches.get("crash_after"):
            await asyncio.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        if number == switches.get("exit_after"):
            await asyncio.sleep(0.01)
            print("fatal: giving up as told", flush=True)
            os._exit(3)
        if number == switches.get("cut_after"):
            await asyncio.sleep(0.01)
            request.transport.close()
            await asyncio.sleep(3600)
        if number == switches.get("stall"):
            await asyncio.sleep(3600)
        if number == switches.get("error_after"):
            error = {"code": 500, "message": "the engine failed inside the answer", "type": "server_error"}
            await response.write(event({"error": error}))

    def _vectors(self, body: dict[str, Any]) -> dict[str, Any]:
        given = body.get("input", body.get("content", ""))
        many = given if isinstance(given, list) and not all(isinstance(item, int) for item in given) else [given]
        data = [
            {"object": "embedding", "index": index, "embedding": [float(len(str(item))), 0.5, -0.25]}
            for index, item in enumerate(many)
        ]
        usage = {"prompt_tokens": len(many), "total_tokens": len(many)}
        return {"object": "list", "model": self.state.args.alias, "data": data, "usage": usage}

    def _ranks(self, body: dict[str, Any]) -> dict[str, Any]:
        query = set(str(body.get("query", "")).split())
        scores = [float(len(query & set(str(text).split()))) for text in body.get("documents", [])]
        results = [{"index": index, "relevance_score": score} for index, score in enumerate(scores)]
        return {"object": "list", "model": self.state.args.alias, "results": results, "usage": {"total_tokens": 3}}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("-m", "--model", default="")
    parser.add_argument("-c", "--ctx-size", type=int, default=4096)
    parser.add_argument("-a", "--alias", default="fake")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    return parser.parse_known_args()[0]


async def serve(state: State) -> None:
    app = FakeEngine(state).application()
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, keepalive_timeout=75, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, state.args.host, state.args.port)
    await site.start()
    print(f"fake engine listens on {state.args.port}", flush=True)
    stop = asyncio.Event()
    if not state.switches.get("ignore_sigterm"):
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await runner.cleanup()


def main() -> None:
    args = arguments()
    state = State(args, json.loads(os.environ.get("FAKE_ENGINE") or "{}"))
    if state.switches.get("ignore_sigterm"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for number in range(state.switches.get("noise", 0)):
        text = {0: "x" * 10_000, 1: "red \x1b[31m text \x07"}.get(number, f"line {number}")
        print(text, flush=True)
    if "exit_at_start" in state.switches:
        print("loading the model", flush=True)
        print("fatal: the file is no model", file=sys.stderr, flush=True)
        sys.exit(state.switches["exit_at_start"])
    if state.switches.get("fork_child"):
        state.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    state.save()
    asyncio.run(serve(state))


if __name__ == "__main__":
    main()
