"""Many clients at once on real weights: nobody ever gets what belongs to another."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable
from typing import Any

import aiohttp
import pytest

from tests.daemon import Daemon
from tests.weights import smollm2

CLIENTS, REQUESTS = 8, 25
MODELS = ("one", "two")
MARKERS = [f"{letter}{number}" for number, letter in enumerate("qwxzkvjp", 1)]


class Client:
    """Sends its requests one after the other, each with its marker in it, and looks for those of others."""

    def __init__(self, url: str, session: aiohttp.ClientSession, number: int) -> None:
        self._url, self._session, self._number = url, session, number
        self._dice = random.Random(number)
        self.marker = MARKERS[number]
        self.answered = 0
        self.left = 0

    async def run(self) -> None:
        kinds = (self._chat, self._stream, self._response, self._echo, self._leave)
        for turn in range(REQUESTS):
            await kinds[(turn + self._number) % len(kinds)](self._dice.choice(MODELS))

    def _look(self, text: str) -> None:
        """The answer is about this client's marker and nobody else's."""
        assert self.marker in text, text
        assert not [other for other in MARKERS if other != self.marker and other in text], text
        self.answered += 1

    def _schema(self) -> dict[str, Any]:
        return {"type": "object", "properties": {"marker": {"const": self.marker}}, "required": ["marker"]}

    def _asked(self, model: str) -> dict[str, Any]:
        return {
            "model": model,
            "messages": [{"role": "user", "content": f"Repeat {self.marker}."}],
            "response_format": {"type": "json_schema", "json_schema": {"name": "m", "schema": self._schema()}},
            "max_tokens": 40,
            "temperature": 0,
        }

    async def _ask(self, path: str, body: dict[str, Any]) -> bytes:
        async with self._session.post(f"{self._url}/v1/{path}", json=body) as answer:
            data = await answer.read()
            assert answer.status == 200, data
            return data

    async def _chat(self, model: str) -> None:
        answer = json.loads(await self._ask("chat/completions", self._asked(model)))
        assert answer["model"] == model
        self._look(answer["choices"][0]["message"]["content"])

    async def _stream(self, model: str) -> None:
        data = await self._ask("chat/completions", {**self._asked(model), "stream": True})
        chunks = [json.loads(line[6:]) for line in data.split(b"\n") if line.startswith(b"data: {")]
        assert {chunk["model"] for chunk in chunks} == {model}
        assert len({chunk["id"] for chunk in chunks}) == 1
        self._look("".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks))

    async def _response(self, model: str) -> None:
        tool = {"type": "function", "name": "say", "parameters": self._schema()}
        body = {"model": model, "input": "Say it.", "tools": [tool], "tool_choice": "required", "temperature": 0}
        answer = json.loads(await self._ask("responses", {**body, "max_output_tokens": 40}))
        self._look(answer["output"][0]["arguments"])

    async def _echo(self, model: str) -> None:
        body = {"model": model, "prompt": f"The word is {self.marker}", "echo": True, "max_tokens": 1}
        self._look(json.loads(await self._ask("completions", body))["choices"][0]["text"])

    async def _leave(self, model: str) -> None:
        """Goes away in the middle of an answer, or before it."""
        body = {**self._asked(model), "response_format": {"type": "text"}, "max_tokens": 400, "stream": True}
        try:
            async with (
                asyncio.timeout(self._dice.choice((0.05, 1, 5))),
                self._session.post(f"{self._url}/v1/chat/completions", json=body) as answer,
            ):
                async for line in answer.content:
                    if b"content" in line:
                        break
        except TimeoutError:
            pass
        self.left += 1


@pytest.mark.real
@pytest.mark.slow
@pytest.mark.timeout(400)
async def test_no_client_gets_what_belongs_to_another(make_daemon: Callable[..., Daemon]) -> None:
    one = make_daemon(fake_engine=False, config={"max_loaded_models": 2})
    for name in MODELS:
        (one.models / f"{name}.gguf").symlink_to(smollm2())
    with one:
        for name in MODELS:
            body = {"model_name": name, "ctx_size": 4096, "llamacpp_args": "--parallel 3 --threads 1"}
            assert one.post("/v1/load", body).status == 200
        async with aiohttp.ClientSession() as session:
            clients = [Client(one.url, session, number) for number in range(CLIENTS)]
            await asyncio.gather(*(client.run() for client in clients))
        assert [client.answered + client.left for client in clients] == [REQUESTS] * CLIENTS
        assert min(client.answered for client in clients) == REQUESTS * 4 // 5
        assert {entry["model_name"] for entry in one.loaded()} == set(MODELS)
