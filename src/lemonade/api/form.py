"""Bodies of the type `multipart/form-data`: text fields, and files that go to the disk while they arrive."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import msgspec

from lemonade.api.endpoint import explain
from lemonade.errors import InvalidArgument, InvalidForm

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange

#: Most parts of a form, and most bytes of a text field: far beyond what any field of the API can hold.
MAX_PARTS = 256
MAX_TEXT = 1024 * 1024

_WHOLE = re.compile(r"-?[0-9]+")
#: How the decoder's message ends, in `explain`'s words, when a text cannot be read as what is wanted.
_NO_TEXT = " not a string."


class Upload:
    """A file of a form.

    Attributes:
        filename: as the client calls it, without folders; of no meaning for this machine.
        content_type: as the client says, or `""`.
        path: where the bytes are until the request is answered.
        size: bytes.
    """

    __slots__ = ("content_type", "filename", "path", "size")

    def __init__(self, filename: str, content_type: str, path: Path, size: int = 0) -> None:
        self.filename = filename
        self.content_type = content_type
        self.path = path
        self.size = size

    def read(self) -> bytes:
        """All bytes. For what has a small bound of its own; a recording is given to an engine by its path."""
        return self.path.read_bytes()


class _Kind(NamedTuple):
    """What may stand in a field: several values, a file, text that is a whole number, nothing."""

    several: bool
    file: bool
    whole: bool
    null: bool


@cache
def _kinds(form: type[msgspec.Struct]) -> dict[str, _Kind]:
    info = msgspec.inspect.type_info(form)
    assert isinstance(info, msgspec.inspect.StructType)
    found = {}
    for field in info.fields:
        types = list(_types(field.type))
        found[field.encode_name] = _Kind(
            several=any(isinstance(each, msgspec.inspect.ListType) for each in types),
            file=any(isinstance(each, msgspec.inspect.CustomType) for each in types),
            whole=any(isinstance(each, msgspec.inspect.IntType) for each in types),
            null=any(isinstance(each, msgspec.inspect.NoneType) for each in types),
        )
    return found


def _types(kind: msgspec.inspect.Type) -> Iterator[msgspec.inspect.Type]:
    """All that a type is made of, itself included."""
    yield kind
    if isinstance(kind, msgspec.inspect.UnionType):
        for each in kind.types:
            yield from _types(each)
    elif isinstance(kind, msgspec.inspect.Metadata):
        yield from _types(kind.type)
    elif isinstance(kind, msgspec.inspect.ListType):
        yield from _types(kind.item_type)


async def read_form(exchange: Exchange, form: type[msgspec.Struct], keep: ExitStack) -> Any:
    """The body of a request as `form`. What is not one of its fields is ignored.

    Args:
        keep: removes the files when it is closed.

    Raises:
        InvalidForm: it is no form, or a broken one.
        MissingArgument, InvalidArgument: naming the field.
        BodyTooLarge, ClientLeft: as `Exchange.read_body`.
    """
    boundary = _boundary(exchange.header(b"content-type"))
    kinds = _kinds(form)
    values: dict[str, list[Any]] = {}
    async for name, value in _parts(exchange, boundary, keep):
        # OpenAI's library for JavaScript has `null` written so.
        if name in kinds and not (value == "null" and kinds[name].null):
            values.setdefault(name, []).append(value)
    for name, given in values.items():
        _check(name, given, kinds[name])
    fields = {name: given if kinds[name].several else given[0] for name, given in values.items()}
    try:
        return msgspec.convert(fields, form, strict=False)
    except msgspec.ValidationError as error:
        failure = explain(str(error), form)
        sent = fields.get(failure.param or "")
        if isinstance(sent, str) and failure.message.endswith(_NO_TEXT):
            # In a form all values are text: that it is one does not say what is wrong with it.
            failure.message = f"{failure.message.removesuffix(_NO_TEXT)} not {sent[:100]!r}."
        raise failure from None


def _check(name: str, given: list[Any], kind: _Kind) -> None:
    if len(given) > 1 and not kind.several:
        raise InvalidArgument(f"'{name}' is given {len(given)} times; it takes one value.", param=name)
    for number, value in enumerate(given, 1):
        which = f"'{name}'" if len(given) == 1 else f"'{name}' number {number}"
        if kind.file and not isinstance(value, Upload):
            raise InvalidArgument(f"{which} must be a file, not text.", param=name)
        if not kind.file and isinstance(value, Upload):
            raise InvalidArgument(f"{which} must be text, not a file.", param=name)
        # The decoder takes 1.0 and 1e1 for whole numbers, which they are not in JSON.
        if kind.whole and not _WHOLE.fullmatch(value):
            raise InvalidArgument(f"{which} must be an integer, not {value[:100]!r}.", param=name)


def _boundary(content_type: bytes) -> str:
    import multipart

    kind, options = multipart.parse_options_header(content_type.decode("latin-1"))
    if kind != "multipart/form-data" or not options.get("boundary"):
        raise InvalidForm("The request body must be multipart/form-data.")
    return str(options["boundary"])


async def _parts(exchange: Exchange, boundary: str, keep: ExitStack) -> Any:
    """Yields name and value (text or `Upload`) of every part as it is complete."""
    import multipart

    folder: Path | None = None
    file: BinaryIO | None = None
    text = bytearray()
    segment: Any = None
    number = 0
    try:
        with multipart.PushMultipartParser(boundary, max_segment_count=MAX_PARTS) as parser:
            async for piece in exchange.pieces():
                for found in parser.parse(piece) if piece and not parser.closed else ():
                    if isinstance(found, multipart.MultipartSegment):
                        segment, text = found, bytearray()
                        if segment.filename is not None:
                            folder = folder or Path(keep.enter_context(tempfile.TemporaryDirectory(prefix="lemonade-")))
                            number += 1
                            file = (folder / str(number)).open("wb")
                    elif found is None:
                        name = str(segment.name or "")
                        if file is None:
                            yield name, _decoded(name, text)
                        else:
                            file.close()
                            yield name, _upload(segment, Path(file.name))
                            file = None
                    elif file is not None:
                        file.write(found)
                    elif len(text) + len(found) > MAX_TEXT:
                        raise InvalidArgument(f"'{segment.name}' is longer than {MAX_TEXT} bytes.", param=segment.name)
                    else:
                        text += found
    except multipart.MultipartError as error:
        raise InvalidForm(f"The request body is not a valid form: {error}.") from None
    finally:
        if file is not None:
            file.close()


def _decoded(name: str, text: bytearray) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError:
        raise InvalidArgument(f"'{name}' must be UTF-8 text.", param=name) from None


def _upload(segment: Any, path: Path) -> Upload:
    filename = segment.filename.replace("\\", "/").rpartition("/")[2]
    return Upload(filename, segment.content_type or "", path, segment.size)
