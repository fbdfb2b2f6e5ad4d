"""Bodies of the type `multipart/form-data`: text fields, and files that go to the disk while they arrive."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from lemonade.api.endpoint import explain
from lemonade.errors import InvalidArgument, InvalidForm

if TYPE_CHECKING:
    from lemonade.api.exchange import Exchange

#: Most parts of a form, and most bytes of a text field: far beyond what any field of the API can hold.
MAX_PARTS = 256
MAX_TEXT = 1024 * 1024


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


def lists(form: type[msgspec.Struct]) -> frozenset[str]:
    """The fields of a form that may be given several times."""
    info = msgspec.inspect.type_info(form)
    assert isinstance(info, msgspec.inspect.StructType)
    return frozenset(field.encode_name for field in info.fields if _takes_several(field.type))


def _takes_several(kind: msgspec.inspect.Type) -> bool:
    if isinstance(kind, msgspec.inspect.UnionType):
        return any(_takes_several(one) for one in kind.types)
    if isinstance(kind, msgspec.inspect.Metadata):
        return _takes_several(kind.type)
    return isinstance(kind, msgspec.inspect.ListType | msgspec.inspect.VarTupleType)


async def read_form(exchange: Exchange, form: type[msgspec.Struct], keep: ExitStack) -> Any:
    """The body of a request as `form`. Of a field that is given several times and is no list the first one counts.

    Args:
        keep: removes the files when it is closed.

    Raises:
        InvalidForm: it is no form, or a broken one.
        MissingArgument, InvalidArgument: naming the field.
        BodyTooLarge, ClientLeft: as `Exchange.read_body`.
    """
    boundary = _boundary(exchange.header(b"content-type"))
    several = lists(form)
    wanted = {field.encode_name for field in msgspec.structs.fields(form)}
    values: dict[str, Any] = {}
    async for name, value in _parts(exchange, boundary, keep):
        if name not in wanted:
            continue
        if name in several:
            values.setdefault(name, []).append(value)
        else:
            values.setdefault(name, value)
    try:
        return msgspec.convert(values, form, strict=False, dec_hook=_as_it_is)
    except msgspec.ValidationError as error:
        raise explain(str(error), form) from None


def _as_it_is(kind: type, value: Any) -> Any:
    if not isinstance(value, kind):
        raise ValueError("must be a file")
    return value


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
