from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Annotated, Any, Literal

import msgspec
import pytest

from lemonade.api import form as module
from lemonade.api.endpoint import Endpoint
from lemonade.api.exchange import ClientLeft, Exchange
from lemonade.api.form import Upload, read_form
from lemonade.api.reference import openapi
from lemonade.errors import InvalidArgument, InvalidForm, MissingArgument


class Example(msgspec.Struct):
    model: str
    file: Annotated[Upload, msgspec.Meta(description="A recording.")]
    n: Annotated[int, msgspec.Meta(ge=1, le=10)] = 1
    temperature: float | None = None
    stream: bool = False
    size: str | None = None
    image: Upload | None = None
    images: list[Upload] = msgspec.field(default_factory=list, name="image[]")
    words: list[str] | None = msgspec.field(default=None, name="words[]")
    kinds: list[Literal["red", "blue"]] = msgspec.field(default_factory=list, name="kinds[]")


BOUNDARY = "----x"


def part(name: str, value: bytes | str, filename: str | None = None, kind: str = "") -> bytes:
    head = f'Content-Disposition: form-data; name="{name}"'
    if filename is not None:
        head += f'; filename="{filename}"'
    if kind:
        head += f"\r\nContent-Type: {kind}"
    data = value if isinstance(value, bytes) else value.encode()
    return f"--{BOUNDARY}\r\n{head}\r\n\r\n".encode() + data + b"\r\n"


def body(*parts: bytes) -> bytes:
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def exchange(raw: bytes, size: int, content_type: str, *, cut: bool = False) -> Exchange:
    pieces = [raw[at : at + size] for at in range(0, len(raw), size)] or [b""]
    messages: Iterator[dict[str, Any]] = iter(
        [{"type": "http.request", "body": one, "more_body": True} for one in pieces]
        + [{"type": "http.disconnect"} if cut else {"type": "http.request", "body": b"", "more_body": False}]
    )

    async def receive() -> dict[str, Any]:
        return next(messages)

    unused: Any = None
    scope = {"headers": [(b"content-type", content_type.encode())]}
    return Exchange(scope, receive, unused, endpoint=unused, services=unused, headers=[])


async def read(
    *parts: bytes, size: int = 7, content_type: str = f"multipart/form-data; boundary={BOUNDARY}"
) -> Example:
    with ExitStack() as keep:
        found: Example = await read_form(exchange(body(*parts), size, content_type), Example, keep)
        for upload in (found.file, *found.images):
            assert upload.path.stat().st_size == upload.size
        return found


FILE = part("file", b"RIFF\r\n--\r\n\x00", "a.wav", "audio/wav")
MODEL = part("model", "m")


@pytest.mark.parametrize("size", [1, 3, 64, 100_000])
async def test_fields_and_files_come_out_however_the_body_is_cut(size: int) -> None:
    with ExitStack() as keep:
        raw = body(MODEL, part("n", "3"), part("temperature", "0.5"), FILE, part("stream", "true"), part("x", "y"))
        found = await read_form(exchange(raw, size, f"multipart/form-data; boundary={BOUNDARY}"), Example, keep)
        assert (found.model, found.n, found.temperature, found.stream) == ("m", 3, 0.5, True)
        assert (found.file.filename, found.file.content_type) == ("a.wav", "audio/wav")
        assert found.file.read() == b"RIFF\r\n--\r\n\x00"
        path = found.file.path
    assert not path.exists()
    assert not path.parent.exists()


async def test_repeated_fields_are_lists_in_their_order() -> None:
    found = await read(
        MODEL,
        FILE,
        part("image[]", b"1", "1.png"),
        part("words[]", "b"),
        part("image[]", b"22", "2.png"),
        part("words[]", "a"),
    )
    assert [one.size for one in found.images] == [1, 2]
    assert found.words == ["b", "a"]


@pytest.mark.parametrize("name", ["size", "temperature", "image", "words[]"])
async def test_null_is_nothing_where_nothing_may_stand(name: str) -> None:
    """As OpenAI's library for JavaScript has it written in a form."""
    found = await read(MODEL, FILE, part(name, "null"))
    assert (found.size, found.temperature, found.image, found.words) == (None, None, None, None)


async def test_a_text_may_be_called_null() -> None:
    assert (await read(part("model", "null"), FILE)).model == "null"


async def test_one_value_of_a_list_is_a_list() -> None:
    assert (await read(MODEL, FILE, part("words[]", "a"))).words == ["a"]


@pytest.mark.parametrize(
    ("parts", "failure", "param"),
    [
        ((MODEL,), MissingArgument, "file"),
        ((FILE,), MissingArgument, "model"),
        ((MODEL, FILE, part("n", "0")), InvalidArgument, "n"),
        ((MODEL, FILE, part("n", "many")), InvalidArgument, "n"),
        ((MODEL, FILE, part("temperature", "warm")), InvalidArgument, "temperature"),
        ((MODEL, part("file", "no file")), InvalidArgument, "file"),
        ((MODEL, FILE, part("n", "1"), part("n", "1")), InvalidArgument, "n"),
        ((MODEL, FILE, part("model", "other")), InvalidArgument, "model"),
        ((MODEL, FILE, FILE), InvalidArgument, "file"),
        *(
            ((MODEL, FILE, part("n", text)), InvalidArgument, "n")
            for text in ("1.0", "1e0", "+1", " 1", "٣", "", "9" * 99)
        ),
        ((part("model", b"x", "model.txt"), FILE), InvalidArgument, "model"),
        ((part("model", b"\xff"), FILE), InvalidArgument, "model"),
    ],
)
async def test_what_is_wrong_is_named(parts: tuple[bytes, ...], failure: type[Exception], param: str) -> None:
    with pytest.raises(failure) as caught:
        await read(*parts)
    assert caught.value.param == param  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ((part("n", "1.0"),), "'n' must be an integer, not '1.0'."),
        ((part("n", "2"), part("n", "3")), "'n' is given 2 times; it takes one value."),
        ((part("temperature", "warm"),), "'temperature' must be a number, not 'warm'."),
        ((part("stream", "perhaps"),), "'stream' must be true or false, not 'perhaps'."),
        ((part("kinds[]", "red"), part("kinds[]", "green")), "'kinds[][1]' must be one of blue, red, not 'green'."),
        ((part("n", b"3", "n.txt"),), "'n' must be text, not a file."),
        ((part("image[]", "no file"),), "'image[]' must be a file, not text."),
        ((part("image[]", b"1", "1.png"), part("image[]", "x")), "'image[]' number 2 must be a file, not text."),
    ],
)
async def test_messages_say_what_was_sent(parts: tuple[bytes, ...], message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        await read(MODEL, FILE, *parts)
    assert caught.value.message == message


@pytest.mark.parametrize("content_type", ["", "application/json", "multipart/form-data", "multipart/mixed; boundary=x"])
async def test_what_is_no_form_is_refused(content_type: str) -> None:
    with pytest.raises(InvalidForm):
        await read(MODEL, FILE, content_type=content_type)


@pytest.mark.parametrize(
    "raw", [b"", b"garbage", b"------x\r\n\r\n", b"------x\r\nContent-Disposition: form-data\r\n\r\n"]
)
async def test_a_broken_form_is_refused(raw: bytes) -> None:
    with ExitStack() as keep, pytest.raises(InvalidForm):
        await read_form(exchange(raw, 8, f"multipart/form-data; boundary={BOUNDARY}"), Example, keep)


async def test_a_form_that_breaks_off_leaves_nothing() -> None:
    with ExitStack() as keep:
        raw = MODEL + FILE[:-4]
        with pytest.raises(ClientLeft):
            await read_form(exchange(raw, 8, f"multipart/form-data; boundary={BOUNDARY}", cut=True), Example, keep)


async def test_a_long_text_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TEXT", 10)
    with pytest.raises(InvalidArgument, match="'model' is longer than 10 bytes"):
        await read(part("model", "m" * 11), FILE)


async def test_too_many_parts_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_PARTS", 3)
    with pytest.raises(InvalidForm):
        await read(*[MODEL] * 4)


def test_the_reference_shows_a_form() -> None:
    unused: Any = None
    endpoint = Endpoint(id="openai.x", method="POST", path="/x", summary="X", handler=unused, form=Example)
    document = openapi([endpoint])
    content = document["paths"]["/v1/x"]["post"]["requestBody"]["content"]
    assert list(content) == ["multipart/form-data"]
    file = document["components"]["schemas"]["Example"]["properties"]["file"]
    assert (file["type"], file["format"]) == ("string", "binary")
