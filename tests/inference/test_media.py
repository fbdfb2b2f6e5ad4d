from __future__ import annotations

import base64
import io
import tracemalloc
from typing import Any

import msgspec
import pytest
from PIL import Image

from lemonade.errors import InvalidArgument
from lemonade.inference import media
from lemonade.inference.chat import ChatRequest
from lemonade.inference.media import Found, check, examine, put_in
from lemonade.model import Model
from tests.inference.images import data_url, jpeg, png, wav, whole_webp

PROJECTOR = {"main": "a/b:Q4", "mmproj": "a/b:mmproj.gguf"}
SEEING = Model(name="Eyes", recipe="llamacpp", checkpoints=PROJECTOR, labels=("chat", "vision"))
HEARING = Model(name="Ears", recipe="llamacpp", checkpoints=PROJECTOR, labels=("chat", "chat-transcription"))
OMNI = Model(name="Both", recipe="llamacpp", checkpoints=PROJECTOR, labels=("chat", "vision", "chat-transcription"))
BLIND = Model(name="Blind", recipe="llamacpp", checkpoints={"main": "a/b:Q4"}, labels=("chat",))


def image(url: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def sound(data: bytes | str, kind: str = "wav") -> dict[str, Any]:
    text = data if isinstance(data, str) else base64.b64encode(data).decode()
    return {"type": "input_audio", "input_audio": {"data": text, "format": kind}}


def looked_at(*parts: Any, model: Model = OMNI, allow_remote: bool = False) -> Found:
    """The parts are the second message of a request."""
    messages = [{"role": "system", "content": "s"}, {"role": "user", "content": list(parts)}]
    return of_bytes(msgspec.json.encode({"model": "m", "messages": messages}), model, allow_remote)


def of_bytes(raw: bytes, model: Model = OMNI, allow_remote: bool = False) -> Found:
    return check(msgspec.json.decode(raw, type=ChatRequest).messages, model, allow_remote=allow_remote)


def refused(*parts: Any, place: str = "messages[1].content[0]", **more: Any) -> str:
    with pytest.raises(InvalidArgument) as caught:
        looked_at(*parts, **more)
    assert caught.value.param == place
    assert caught.value.message.startswith(f"'{place}' ")
    assert len(caught.value.message) < 400
    return caught.value.message


def test_pictures_and_sounds_are_counted() -> None:
    text = {"type": "text", "text": "what is this?"}
    found = looked_at(text, image(data_url(png(10, 5))), sound(wav()), image(data_url(jpeg(100, 50), "image/jpg")))
    assert found == Found(images=2, sounds=1, pixels=50 + 5000)


@pytest.mark.parametrize("kind", ["image/jpeg", "image/svg+xml", "image/png;name=a.png"])
def test_the_bytes_decide_not_the_media_type(kind: str) -> None:
    assert looked_at(image(data_url(png(10, 5), kind))).pixels == 50


def test_escaped_slashes_are_slashes() -> None:
    url = data_url(png(10, 5) + b"\xff\xff\xff")
    assert "/" in url.partition(",")[2]
    raw = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": [image(url)]}]})
    assert of_bytes(raw.replace(b"/", b"\\/")).pixels == 50


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "ftp://example.com/a.png",
        "/etc/passwd",
        "data:text/html;base64,aGk=",
        "data:image/png,abc",
        "data:image/png;base64;x=y,aGk=",
        "data:image/png;base64",
        "DATA:image/png;base64,aGk=",
        " data:image/png;base64,aGk=",
        "",
        "data:image/" + "x" * 500 + ";base64,aGk=",
    ],
)
def test_what_is_no_data_url_of_a_picture(url: str) -> None:
    assert "must be a picture in a data URL" in refused(image(url), allow_remote=True)


@pytest.mark.parametrize("url", ["http://127.0.0.1/a.png", "https://example.com/a.png", "HTTPS://example.com/a.png"])
def test_addresses_are_for_those_who_allow_them(url: str) -> None:
    assert "`allow_remote_images`" in refused(image(url))
    (remote,) = looked_at(image(data_url(png())), image(url), allow_remote=True).remote
    assert (remote.message, remote.part, remote.url) == (1, 1, url)


def test_an_escaped_address_is_an_address() -> None:
    raw = b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"\\u0066ile:///x"}}]}]}'
    with pytest.raises(InvalidArgument):
        of_bytes(raw, allow_remote=True)
    with pytest.raises(InvalidArgument, match="address of a picture"):
        of_bytes(raw.replace(b"\\u0066ile:///x", b"\\u0068ttp:\\/\\/x"))


def test_names_that_are_escaped_or_given_twice_hide_nothing() -> None:
    """An engine's JSON reader unescapes names, too, and takes the last one of two."""
    good, bad = msgspec.json.encode(data_url(png())), b'"file:///x"'
    body = (
        b'{"model":"m","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":%s,"url":%s}}]}]}'
    )
    assert of_bytes(body % (bad, good)).images == 1
    for raw in (
        body % (good, bad),
        (body % (bad, bad)).replace(b'"content"', b'"c\\u006fntent"'),
        (body % (bad, bad)).replace(b'"image_url":', b'"image\\u005furl":').replace(b'"type"', b'"t\\u0079pe"'),
    ):
        with pytest.raises(InvalidArgument):
            of_bytes(raw)


@pytest.mark.parametrize("part", ["video_url", "input_video", "media_marker", "image", "input_image", ""])
def test_types_that_nobody_looks_at_do_not_pass(part: str) -> None:
    assert "`image_url`" in refused({"type": part, part: {"url": "file:///x"}})


@pytest.mark.parametrize(
    "payload",
    [
        "",
        "a",
        "abc",
        "iVBORw0K\nGgo=",
        "iVBO Rw0K",
        "iVBORw0KGg-_",
        "iV=ORw0K",
        "====",
        "iVBORw0KGgo=AAAA",
        "iVBORw0KGgoé",
    ],
)
def test_what_is_no_base64(payload: str) -> None:
    assert "is not base64" in refused(image(f"data:image/png;base64,{payload}"))


def test_base64_is_checked_to_its_end() -> None:
    url = data_url(png() + bytes(300_000))
    assert looked_at(image(url)).images == 1
    for at in (-5, -65536, -65540, -200_000):
        assert "is not base64" in refused(image(url[:at] + "\n" + url[at + 1 :]))
        assert "is not base64" in refused(image(url[:at] + "=" + url[at + 1 :]))


def test_a_picture_that_declares_gigabytes() -> None:
    bomb = png(declared=(40000, 40000)) + bytes(5_000_000)
    assert "is 40000x40000 pixels large; at most 64 megapixels" in refused(image(data_url(bomb)))


def test_a_flood_of_pictures() -> None:
    one = image(data_url(png()))
    assert looked_at(*[one] * media.MAX_IMAGES).images == media.MAX_IMAGES
    place = f"messages[1].content[{media.MAX_IMAGES}]"
    assert "at most 100" in refused(*[one] * 500, place=place)
    large = image(data_url(png(declared=(8000, 8000))))
    assert "at most 256 megapixels" in refused(*[large] * 5, place="messages[1].content[4]")
    address = image("https://example.com/a.png")
    assert "at most 8" in refused(*[address] * 9, place="messages[1].content[8]", allow_remote=True)


async def test_a_huge_data_url_costs_no_memory() -> None:
    payload = b"A" * 60_000_000
    raw = msgspec.json.encode(
        {"model": "m", "messages": [{"role": "user", "content": [image("data:image/png;base64,#")]}]}
    )
    head, _, tail = raw.partition(b"#")
    raw = head + payload + tail
    tracemalloc.start()
    try:
        request = msgspec.json.decode(raw, type=ChatRequest)
        with pytest.raises(InvalidArgument, match="is larger than 32 MiB"):
            await examine(request.messages, OMNI, size=len(raw), allow_remote=False)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


async def test_a_large_picture_is_not_copied() -> None:
    raw = msgspec.json.encode(
        {"model": "m", "messages": [{"role": "user", "content": [image(data_url(png() + bytes(20_000_000)))]}]}
    )
    tracemalloc.start()
    try:
        request = msgspec.json.decode(raw, type=ChatRequest)
        assert (await examine(request.messages, OMNI, size=len(raw), allow_remote=False)).images == 1
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_who_can_see() -> None:
    picture = image(data_url(png()))
    assert looked_at(picture, model=SEEING).images == 1
    assert "'Blind' cannot see" in refused(picture, model=BLIND)
    assert "'Ears' cannot see" in refused(picture, model=HEARING)
    called_so = msgspec.structs.replace(BLIND, labels=("chat", "vision"))
    assert "without an `mmproj`" in refused(picture, model=called_so)
    elsewhere = msgspec.structs.replace(BLIND, recipe="flm")
    assert "lacks the label `vision`" in refused(picture, model=elsewhere)
    assert looked_at(picture, model=msgspec.structs.replace(elsewhere, labels=("chat", "vision"))).images == 1
    collection = Model(name="Omni", recipe="collection.omni", components=("Eyes",))
    assert looked_at(picture, model=collection).images == 1


def test_who_can_hear() -> None:
    assert looked_at(sound(wav()), model=HEARING).sounds == 1
    assert "'Eyes' cannot hear" in refused(sound(wav()), model=SEEING)
    assert "'Blind' cannot hear" in refused(sound(wav()), model=BLIND)
    deaf = msgspec.structs.replace(BLIND, labels=("chat", "chat-transcription"))
    assert "without an `mmproj`" in refused(sound(wav()), model=deaf)


@pytest.mark.parametrize("data", [b"ID3\x04" + bytes(20), b"\xff\xfb\x90\x64" + bytes(20)])
def test_mp3(data: bytes) -> None:
    assert looked_at(sound(data, "mp3")).sounds == 1


@pytest.mark.parametrize(
    ("data", "kind", "reason"),
    [
        (wav(), "ogg", "not `wav` or `mp3`"),
        (b"OggS" + bytes(20), "wav", "neither a WAV nor an MP3"),
        (png(), "mp3", "neither a WAV nor an MP3"),
        (wav(rate=1), "wav", "1 samples per second"),
        (wav()[:12], "wav", "0 samples per second"),
        ("abc", "wav", "is not base64"),
        ("A" * 40_000_000, "wav", "is larger than 25 MiB"),
    ],
)
def test_sounds_that_are_none(data: bytes | str, kind: str, reason: str) -> None:
    assert reason in refused(sound(data, kind))


def test_parts_that_lack_what_their_type_says() -> None:
    assert "needs an `image_url`" in refused({"type": "image_url"})
    assert "needs an `input_audio`" in refused({"type": "input_audio", "input_audio": None})
    assert "`image_url.url` that is not a string" in refused(image({"a": "file:///x"}))
    assert "`image_url.url` that is not a string" in refused(image(None))


async def test_a_fetched_picture_takes_the_place_of_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    from lemonade.inference import remote_images

    made = data_url(png(10, 5))
    monkeypatch.setattr(remote_images, "fetch", lambda place, url: (made, 50))
    messages = [{"role": "user", "content": [{"type": "text", "text": "a"}, image("https://example.com/a.png")]}]
    body = msgspec.json.encode({"model": "m", "messages": messages, "seed": 1})
    found = of_bytes(body, allow_remote=True)
    result = msgspec.json.decode(await put_in(body, found))
    assert result["messages"][0]["content"] == [{"type": "text", "text": "a"}, image(made)]
    assert result["seed"] == 1

    monkeypatch.setattr(remote_images, "fetch", lambda place, url: (made, media.MAX_PIXELS_TOGETHER + 1))
    with pytest.raises(InvalidArgument, match="megapixels"):
        await put_in(body, found)


async def test_a_webp_picture_becomes_one_that_engines_decode() -> None:
    parts = [image(data_url(png(10, 5))), image(data_url(whole_webp(20, 10), "image/webp"))]
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": parts}]})
    found = of_bytes(body)
    assert (found.images, found.pixels, found.addresses) == (2, 250, 0)
    first, second = msgspec.json.decode(await put_in(body, found))["messages"][0]["content"]
    assert first == parts[0]
    head, _, payload = second["image_url"]["url"].partition(",")
    assert head == "data:image/png;base64"
    with Image.open(io.BytesIO(base64.b64decode(payload))) as made, Image.open(io.BytesIO(png(20, 10))) as original:
        assert made.format == "PNG"
        assert made.tobytes() == original.convert("RGB").tobytes()


async def test_a_damaged_webp_picture() -> None:
    url = data_url(whole_webp(20, 10)[:40])
    body = msgspec.json.encode({"model": "m", "messages": [{"role": "user", "content": [image(url)]}]})
    with pytest.raises(InvalidArgument, match="is a damaged WebP picture"):
        await put_in(body, of_bytes(body))


async def test_without_addresses_the_body_stays_as_it_is() -> None:
    body = b"{ }"
    assert await put_in(body, Found(images=1, pixels=5)) is body
