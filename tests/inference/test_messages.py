from __future__ import annotations

import base64
from typing import Any

import msgspec
import pytest

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference.messages import BLOCKS, MessageEvents, check_model, check_reply, shape
from lemonade.model import Model
from tests.engines.cloud.world import Kept
from tests.inference.images import png, whole_webp

SEEING = Model(
    name="Eyes",
    recipe="llamacpp",
    checkpoints={"main": "a/b:Q4", "mmproj": "a/b:mmproj.gguf"},
    labels=("chat", "vision"),
)
BLIND = Model(name="Blind", recipe="llamacpp", checkpoints={"main": "a/b:Q4"}, labels=("chat",))
PNG = base64.b64encode(png()).decode()


def picture(data: str = PNG, media_type: str = "image/png") -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": media_type, "data": data}}


def at(url: str) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "url", "url": url}}


async def shaped(*blocks: Any, model: Model = SEEING, allow_remote: bool = False, **more: Any) -> dict[str, Any]:
    body = {"model": "m", "messages": [{"role": "user", "content": list(blocks)}], **more}
    made: dict[str, Any] = msgspec.json.decode(await shape(msgspec.json.encode(body), model, allow_remote=allow_remote))
    return made


async def refused(place: str, *blocks: Any, **more: Any) -> str:
    with pytest.raises(InvalidArgument) as error:
        await shaped(*blocks, **more)
    assert error.value.param == place
    assert len(error.value.message) < 500
    return error.value.message


async def test_what_is_harmless_stays_as_it_is() -> None:
    blocks = [
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "1", "name": "f", "input": {"type": "image", "source": {"url": "http://x"}}},
        {"type": "tool_result", "tool_use_id": "1", "content": "rain"},
        {"type": "tool_result", "tool_use_id": "2", "content": [{"type": "text", "text": "sun"}]},
        {"type": "tool_result", "tool_use_id": "3"},
        {"type": "thinking", "thinking": "hm", "signature": ""},
    ]
    made = await shaped(*blocks, system=[{"type": "text", "text": "s"}], ctx_size=5, temperature=None)
    assert made == {
        "model": "m",
        "messages": [{"role": "user", "content": blocks}],
        "system": [{"type": "text", "text": "s"}],
    }


async def test_pictures_are_looked_at_wherever_they_are() -> None:
    nested = {"type": "tool_result", "tool_use_id": "1", "content": [{"type": "text", "text": "x"}, picture()]}
    made = await shaped(picture(), nested)
    assert made["messages"][0]["content"] == [picture(), nested]
    assert "cannot see" in await refused("messages[0].content[0]", picture(), model=BLIND)
    bomb = picture(base64.b64encode(png(declared=(60000, 60000))).decode())
    assert "megapixels" in await refused("messages[0].content[1].content[0]", picture(), {**nested, "content": [bomb]})


async def test_a_picture_that_llamacpp_cannot_decode_becomes_one_that_it_can() -> None:
    made = await shaped(picture(base64.b64encode(whole_webp()).decode(), "image/webp"), picture())
    source = made["messages"][0]["content"][0]["source"]
    assert source["media_type"] == "image/png"
    assert base64.b64decode(source["data"]).startswith(b"\x89PNG")
    assert made["messages"][0]["content"][1] == picture()


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:13305/internal/shutdown",
        "https://pictures.example/a.png",
        "file:///etc/passwd",
        "data:text/html;base64,AAAA",
        "",
        "ftp://x/y",
    ],
)
async def test_an_address_never_reaches_the_engine(url: str) -> None:
    await refused("messages[0].content[0]", at(url))


async def test_an_address_inside_is_not_fetched_even_if_addresses_are() -> None:
    await refused("messages[0].content[0]", at("http://127.0.0.1:1/a.png"), allow_remote=True)


@pytest.mark.parametrize(
    "source",
    [
        None,
        5,
        {},
        {"type": "file", "file_id": "x"},
        {"type": "base64", "data": PNG},
        {"type": "base64", "media_type": 5, "data": PNG},
        {"type": "url", "url": 5},
    ],
)
async def test_what_is_no_source(source: Any) -> None:
    await refused("messages[0].content[0].source", {"type": "image", "source": source})


@pytest.mark.parametrize(
    "source",
    [
        {"type": "base64", "media_type": "image/png;base64,iVBORw0KGgo", "data": PNG},
        {"type": "base64", "media_type": "text/html", "data": PNG},
        {"type": "base64", "media_type": "image/png", "data": "not base64!"},
        {"type": "base64", "media_type": "image/png", "data": "http://127.0.0.1:1/"},
        {"type": "base64", "media_type": "image/png", "data": base64.b64encode(b"MZ not a picture").decode()},
    ],
)
async def test_what_is_no_picture(source: Any) -> None:
    await refused("messages[0].content[0]", {"type": "image", "source": source})


@pytest.mark.parametrize("block", [5, None, {}, {"type": "document"}, {"type": "image_url"}, {"type": ["text"]}])
async def test_blocks_that_are_unknown_do_not_pass(block: Any) -> None:
    message = await refused("messages[0].content[1]", {"type": "text", "text": "x"}, block)
    assert all(kind in message for kind in BLOCKS)
    await refused("messages[0].content[0].content[0]", {"type": "tool_result", "content": [block]})
    await refused("system[0]", system=[block])


@pytest.mark.parametrize("content", [None, 5, {"type": "image"}])
async def test_content_of_another_shape(content: Any) -> None:
    raw = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": content}]})
    with pytest.raises(InvalidArgument):
        await shape(raw, SEEING, allow_remote=False)


async def test_a_key_that_is_given_twice_hides_nothing() -> None:
    twice = b'{"messages":[{"role":"user","content":"x","content":[{"type":"image","source":{"type":"url","url":"http://x"}}]}]}'
    with pytest.raises(InvalidArgument):
        await shape(twice, SEEING, allow_remote=False)
    other = b'{"messages":[{"role":"user","content":[{"type":"image","source":{"type":"url","url":"http://x"}}],"content":"x"}]}'
    assert b"http" not in await shape(other, SEEING, allow_remote=False)


@pytest.mark.parametrize(
    "model",
    [
        Model(name="V", recipe="llamacpp", labels=("embeddings",)),
        Model(name="W", recipe="whispercpp", labels=("transcription",)),
        Model(name="C", recipe="collection.omni", labels=("chat",)),
    ],
)
def test_models_that_cannot_be_asked(model: Model) -> None:
    with pytest.raises(UnsupportedOperation):
        check_model(model)
    check_model(BLIND)


def test_the_answer_has_the_name_that_was_asked_for() -> None:
    body = b'{"role":"assistant","content":[],"model":"a","usage":{"input_tokens":3,"output_tokens":2}}'
    same, figures = check_reply(body, "a")
    assert same == body
    assert figures is not None
    assert (figures.prompt_tokens, figures.output_tokens) == (3, 2)
    assert msgspec.json.decode(check_reply(body, "b")[0])["model"] == "b"
    with pytest.raises(msgspec.ValidationError):
        check_reply(b'{"choices": []}', "a")


async def test_a_stream_ends_with_its_last_event() -> None:
    sink = Kept()
    events = MessageEvents(sink)
    await events.start()
    await events.write(b"event: message_stop\ndata: {}\n\n")
    await events.end(b"data: [DONE]\n\n")
    assert sink.bytes == b"event: message_stop\ndata: {}\n\n"
    assert sink.ended
