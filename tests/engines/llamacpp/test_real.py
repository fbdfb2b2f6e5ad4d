"""The bundled engine with real weights."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from lemonade.engines.connection import Connection
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.engines.ports import take_port
from lemonade.engines.process import EngineProcess
from lemonade.errors import ModelLoadError
from lemonade.model import Model
from lemonade.settings import Settings
from tests.weights import smollm2

pytestmark = pytest.mark.real

ARGS = "--temp 0.2 --top-p 0.9 --parallel 1"
# The bare question gets French poetry out of so small a model.
TEXT = "What is the capital of France? Answer in one sentence."
QUESTION = {"messages": [{"role": "user", "content": TEXT}], "max_tokens": 30}


async def start(file: Path, labels: tuple[str, ...] = ("chat",), **options: Any) -> EngineProcess:
    model = Model(name="Smol", recipe="llamacpp", labels=labels)
    engine = LlamaCpp(Settings([]))
    planned = {"ctx_size": 1024, "llamacpp_backend": "cpu", "llamacpp_args": ARGS, **options}
    return await EngineProcess.start(engine.plan(model, {"main": file}, planned, alias="Smol.Id", port=take_port()))


@asynccontextmanager
async def smol(**options: Any) -> AsyncIterator[Connection]:
    process = await start(smollm2(), **options)
    connection = Connection(process)
    try:
        await process.wait_ready(120)
        yield connection
    finally:
        await connection.close()
        await process.stop()


async def ask(connection: Connection, path: str, body: dict[str, Any] | None = None) -> Any:
    raw = None if body is None else json.dumps(body).encode()
    reply = await connection.request("GET" if body is None else "POST", path, raw)
    answer = await reply.read()
    assert reply.status == 200, answer
    return json.loads(answer)


async def test_it_talks() -> None:
    async with smol() as connection:
        answer = await ask(connection, "/v1/chat/completions", {**QUESTION, "model": "Smol.Id"})
        assert "Paris" in answer["choices"][0]["message"]["content"]
        assert answer["model"] == "Smol.Id"
        assert answer["timings"]["predicted_n"] > 0

        reply = await connection.request(
            "POST", "/v1/chat/completions", json.dumps({**QUESTION, "stream": True}).encode()
        )
        text = (await reply.read()).decode()
        events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
        said = "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event["choices"])
        assert "Paris" in said
        assert {event["model"] for event in events} == {"Smol.Id"}
        assert text.endswith("data: [DONE]\n\n")


async def test_an_idle_model_gives_its_memory_back_until_it_is_asked() -> None:
    process = await start(smollm2(), auto_evict=True, downsize_idle_timeout=0)
    connection = Connection(process)
    try:
        await process.wait_ready(120)
        one = psutil.Process(process.pid)
        await ask(connection, "/completion", {"prompt": TEXT, "n_predict": 1})
        awake = one.memory_info().rss
        async with asyncio.timeout(60):
            while not (await ask(connection, "/props"))["is_sleeping"]:
                await asyncio.sleep(0.1)
        # The state is told before the work is done.
        async with asyncio.timeout(60):
            while one.memory_info().rss > awake / 2:
                await asyncio.sleep(0.1)
        answer = await ask(connection, "/v1/chat/completions", {**QUESTION, "temperature": 0})
        assert "Paris" in answer["choices"][0]["message"]["content"]
    finally:
        await connection.close()
        await process.stop()


async def test_arguments_have_their_effect() -> None:
    args = f"{ARGS} --top-k 7 --repeat-penalty 1.1 --seed 5 --no-warmup -ctk q8_0 -fa on --n-predict 4"
    async with smol(llamacpp_args=args) as connection:
        props = await ask(connection, "/props")
        params = props["default_generation_settings"]["params"]
        found = {key: round(params[key], 4) for key in ("temperature", "top_p", "top_k", "repeat_penalty", "seed")}
        assert found == {"temperature": 0.2, "top_p": 0.9, "top_k": 7, "repeat_penalty": 1.1, "seed": 5}
        answer = await ask(connection, "/v1/chat/completions", {"messages": QUESTION["messages"]})
        assert answer["usage"]["completion_tokens"] == 4
        assert props["default_generation_settings"]["n_ctx"] == 1024
        assert props["model_alias"] == "Smol.Id"
        assert (await ask(connection, "/slots"))[0]["n_ctx"] == 1024
        metrics = await connection.request("GET", "/metrics")
        assert b"llamacpp:" in await metrics.read()


async def test_embeddings() -> None:
    async with smol(labels=("embeddings",), llamacpp_args="--pooling mean") as connection:
        long = "word " * 700
        answer = await ask(connection, "/v1/embeddings", {"input": ["a", long], "model": "Smol.Id"})
        assert [len(item["embedding"]) for item in answer["data"]] == [576, 576]


async def test_giving_a_stream_up_frees_the_slot() -> None:
    async with smol() as connection:
        body = {**QUESTION, "stream": True, "max_tokens": 900, "ignore_eos": True}
        reply = await connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
        await reply.chunk()
        assert await busy(connection)
        reply.close()
        await until(lambda: busy(connection), False)


async def busy(connection: Connection) -> bool:
    slots = await ask(connection, "/slots")
    return bool(slots[0]["is_processing"])


async def until(look: Callable[[], Awaitable[bool]], wanted: bool) -> None:
    async with asyncio.timeout(5):
        while await look() is not wanted:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("stream", [True, False])
async def test_giving_a_prompt_up_stops_its_evaluation(stream: bool) -> None:
    async with smol(ctx_size=8192) as connection:
        body = {"messages": [{"role": "user", "content": "word " * 7000}], "max_tokens": 5, "stream": stream}
        asking = asyncio.create_task(connection.request("POST", "/v1/chat/completions", json.dumps(body).encode()))
        await said(connection.process, "processing task")
        # The head of a stream may be here already.
        if asking.done():
            asking.result().close()
        asking.cancel()
        # Its log is read and not /slots: every answer to anybody puts off its look after clients by a second.
        await said(connection.process, "cancel task")
        line = await said(connection.process, "stop processing: n_tokens = ")
        assert int(line.rpartition("n_tokens = ")[2].partition(",")[0]) < 7000


async def said(process: EngineProcess, words: str) -> str:
    """The line of the engine's log that holds `words`, once it is there."""
    while True:
        for line in process.tail():
            if words in line:
                return line
        await asyncio.sleep(0.02)


async def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"<html>not a model</html>")
    process = await start(bad)
    with pytest.raises(ModelLoadError) as caught:
        await process.wait_ready(60)
    assert "llama.cpp exited with code 1" in caught.value.message
    assert caught.value.message.splitlines()[-1].startswith(f"error: llama.cpp cannot serve {bad}")
    assert any("invalid magic" in line for line in process.tail())


async def test_the_host_ends_with_its_standard_input() -> None:
    process = await start(smollm2())
    await process.wait_ready(120)
    transport = process._transport
    assert transport is not None
    pipe = transport.get_pipe_transport(0)
    assert pipe is not None
    pipe.close()
    await asyncio.wait_for(process.exited.wait(), 10)
    assert process.returncode == 0
