from __future__ import annotations

import json

import pytest

from lemonade.inference.relay import Collected
from lemonade.inference.routing.exposure import Exposed

DECISION = {"route_to": "big"}
TOLD = b'"x_lemonade_route":{"route_to":"big"}'


@pytest.mark.parametrize("body", [b'{"a":1}', b" {}", b'{"a":{}}'])
async def test_a_whole_answer(body: bytes) -> None:
    sink = Collected()
    await Exposed(sink, DECISION).reply(body)
    assert json.loads(sink.body) == {**json.loads(body), "x_lemonade_route": DECISION}


@pytest.mark.parametrize(
    ("pieces", "whole"),
    [
        (
            [b'data: {"a":1}\n\n', b'data: {"b":1}\n\ndata: [DONE]\n\n'],
            b'data: {%b,"a":1}\n\ndata: {"b":1}\n\ndata: [DONE]\n\n' % TOLD,
        ),
        (
            [b": ping\n\n", b'data: {"a":1}\n\ndata: {"b":1}\n\n'],
            b': ping\n\ndata: {%b,"a":1}\n\ndata: {"b":1}\n\n' % TOLD,
        ),
        (
            [b'event: response.created\ndata: {"a":1}\n\n', b"event: x\ndata: {}\n\n"],
            b'event: response.created\ndata: {%b,"a":1}\n\nevent: x\ndata: {}\n\n' % TOLD,
        ),
        ([b"data: [DONE]\n\n"], b"data: [DONE]\n\n"),
    ],
)
async def test_a_stream(pieces: list[bytes], whole: bytes) -> None:
    sink = Collected()
    exposed = Exposed(sink, DECISION)
    await exposed.start()
    assert exposed.started
    for piece in pieces[:-1]:
        await exposed.write(piece)
    await exposed.end(pieces[-1])
    assert sink.body == whole
