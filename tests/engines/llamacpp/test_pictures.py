"""Pictures and speculation in llama.cpp itself, with tiny models of random weights."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.connection import Connection
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.engines.ports import take_port
from lemonade.engines.process import EngineProcess
from lemonade.model import Model
from lemonade.settings import Settings
from tests.inference.images import data_url, png, wav
from tests.tiny_models import PATCH, predicting_model, projector, text_model

pytestmark = pytest.mark.real


@asynccontextmanager
async def running(files: dict[str, Path], args: str = "") -> AsyncIterator[tuple[Connection, EngineProcess]]:
    model = Model(name="Tiny", recipe="llamacpp", labels=("chat",))
    options = {"ctx_size": 4096, "llamacpp_backend": "cpu", "llamacpp_args": f"--parallel 1 {args}"}
    planned = LlamaCpp(Settings([])).plan(model, files, options, alias="Tiny", port=take_port())
    process = await EngineProcess.start(planned)
    connection = Connection(process)
    try:
        await process.wait_ready(60)
        yield connection, process
    finally:
        await connection.close()
        await process.stop()


async def ask(connection: Connection, *parts: dict[str, Any], tokens: int = 8) -> tuple[int, dict[str, Any]]:
    body = {"messages": [{"role": "user", "content": list(parts)}], "max_tokens": tokens, "temperature": 0}
    reply = await connection.request("POST", "/v1/chat/completions", json.dumps(body).encode())
    return reply.status, json.loads(await reply.read())


TEXT = {"type": "text", "text": "what is this?"}


def image(data: bytes) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": data_url(data)}}


async def test_it_sees_pictures() -> None:
    async with running({"main": text_model(), "mmproj": projector()}) as (connection, _):
        prompts = {}
        said = {}
        for side in (0, 4, 8):
            picture = [image(png(side * PATCH, side * PATCH))] if side else []
            status, answer = await ask(connection, TEXT, *picture)
            assert status == 200, answer
            prompts[side] = answer["usage"]["prompt_tokens"]
            said[side] = answer["choices"][0]["message"]["content"]
        # One token a patch, and one for the end of each row.
        assert prompts[4] - prompts[0] >= 4 * 4 + 3
        assert prompts[8] - prompts[4] == (8 * 8 + 7) - (4 * 4 + 3)
        assert all(text.strip() for text in said.values())
        assert len(set(said.values())) == 3


async def test_what_is_no_picture_goes_to_no_other_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """llama.cpp takes for a video what it cannot decode, and has ffmpeg open it."""
    trace = tmp_path / "trace"
    for name in ("ffprobe", "ffmpeg"):
        program = tmp_path / name
        program.write_text(f'#!/bin/sh\necho {name} "$@" >> "{trace}"\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    async with running({"main": text_model(), "mmproj": projector()}) as (connection, _):
        status, answer = await ask(connection, TEXT, image(png()[:40]))
        assert status == 400
        assert "Failed to load image" in answer["error"]["message"]
        status, _ = await ask(connection, TEXT, image(wav()))
        assert status != 200
    assert not trace.exists()


async def test_a_draft_model_is_asked() -> None:
    async with running({"main": text_model(), "draft": text_model()}) as (connection, _):
        status, answer = await ask(connection, TEXT, tokens=30)
        assert status == 200
        # The same model predicts itself without a fault.
        assert answer["timings"]["draft_n_accepted"] == answer["timings"]["draft_n"] > 0
    async with running({"main": text_model(), "draft": text_model()}, "--spec-type none") as (connection, _):
        assert "draft_n" not in (await ask(connection, TEXT, tokens=30))[1]["timings"]


async def test_a_models_own_layer_predicts() -> None:
    async with running({"main": predicting_model()}, "--spec-type draft-mtp --spec-draft-p-min 0") as (connection, _):
        status, answer = await ask(connection, TEXT, tokens=30)
        assert status == 200
        assert answer["timings"]["draft_n"] > 0
