"""A request for vectors: what it may hold, and what the engine's answer must hold."""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import EngineReplied, InvalidArgument, UnsupportedOperation
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.sampling import ContextSize, Count
from lemonade.model import Model
from lemonade.system.metrics import Measurement

#: Families whose vectors may be cut off at any length, because they were trained for it (Matryoshka representation
#: learning). Source: their makers' descriptions. The vectors of all others are worth nothing when they are cut.
SHORTENED = (
    "qwen3-embedding",
    "embeddinggemma",
    "nomic-embed-text-v1.5",
    "nomic-embed-text-v2",
    "jina-embeddings-v3",
    "jina-embeddings-v4",
    "mxbai-embed-large",
    "snowflake-arctic-embed-l-v2",
    "snowflake-arctic-embed-m-v1.5",
    "snowflake-arctic-embed-m-v2",
)


class EmbeddingsRequest(msgspec.Struct):
    """Arguments that are not listed go to the engine untouched; `null` counts as absent."""

    input: Annotated[
        str | list[str | int | list[int]],
        Meta(description="What to embed: a string or token ids, or an array of either. One vector is made of each."),
    ]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
    encoding_format: Annotated[
        Literal["float", "base64"] | UnsetType | None,
        Meta(description="`float` (the default), or `base64` for the bytes of little-endian 32-bit floats."),
    ] = UNSET
    dimensions: Annotated[
        Count | UnsetType | None,
        Meta(
            description=(
                "The width of the vectors. Less than the model's own only for models that were trained for it; "
                "the vectors are cut and brought back to length 1."
            )
        ),
    ] = UNSET
    ctx_size: Annotated[
        ContextSize | UnsetType | None,
        Meta(description="Extension: context size to load the model with, if this request loads it."),
    ] = UNSET

    @property
    def load_options(self) -> dict[str, Any]:
        """The options that count if this request is what loads the model."""
        return {"ctx_size": self.ctx_size} if isinstance(self.ctx_size, int) else {}

    @property
    def texts(self) -> int:
        """How many vectors are wanted."""
        if isinstance(self.input, str) or all(isinstance(item, int) for item in self.input):
            return 1
        return len(self.input)


def check_model(model: Model) -> None:
    """Raises an error unless `model` makes vectors; asked before it is loaded.

    Raises:
        EngineReplied: 501, a llama.cpp model of another kind, in llama.cpp's own words.
        UnsupportedOperation: any other.
    """
    if model.mode == "embeddings":
        return
    if model.recipe == "llamacpp":
        raise EngineReplied(
            f"'{model.name}' is no embedding model, so its engine does not support embeddings. Label a model "
            "`embeddings` when it is registered to use it for them.",
            status=501,
            type="not_supported_error",
        )
    raise UnsupportedOperation(f"Embeddings not supported by {model.recipe}", param="model")


def check_input(request: EmbeddingsRequest) -> None:
    """Raises InvalidArgument when there is nothing to embed, or ids of tokens stand beside texts."""
    given = request.input
    if not given:
        raise InvalidArgument("'input' must not be empty.", param="input")
    if isinstance(given, str) or all(isinstance(item, int) for item in given):
        return
    for number, item in enumerate(given):
        where = f"input[{number}]"
        if isinstance(item, int):
            raise InvalidArgument(
                f"'{where}' is the id of a token beside whole texts; put the ids of one text into an array "
                "of their own.",
                param=where,
            )
        if item == []:
            raise InvalidArgument(f"'{where}' must not be an empty array.", param=where)


def check_width(request: EmbeddingsRequest, model: Model, width: int | None) -> int | None:
    """The width to which vectors have to be cut, or None.

    Args:
        width: the model's own, or None when it is not known yet.

    Raises:
        InvalidArgument: `dimensions` is more than the model has, or the model is not made to be cut.
    """
    wanted = request.dimensions
    if not isinstance(wanted, int) or wanted == width:
        return None
    if width is not None and wanted > width:
        raise InvalidArgument(f"'dimensions' must be at most {width}, the width of '{model.name}'.", param="dimensions")
    names = f"{model.name} {model.checkpoint}".lower()
    if not any(family in names for family in SHORTENED):
        own = f" Its own width is {width}." if width is not None else ""
        raise InvalidArgument(
            f"'dimensions' cannot be set: the vectors of '{model.name}' lose their meaning when they are cut.{own}",
            param="dimensions",
        )
    return wanted


def shape(request: EmbeddingsRequest, raw: bytes, cut: int | None) -> bytes:
    """The body for the engine: `raw` itself when nothing has to change."""
    absent = any(getattr(request, name) is None for name in request.__struct_fields__)
    if not absent and request.dimensions is UNSET:
        return raw
    body = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    body.pop("dimensions", None)
    if cut is not None:
        body["encoding_format"] = "float"
    return msgspec.json.encode(body)


class _Vector(msgspec.Struct):
    embedding: msgspec.Raw
    index: int


class _Reply(msgspec.Struct):
    data: list[_Vector]
    model: str = ""
    usage: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)
_vector_decoder = msgspec.json.Decoder(list[float])


class ReplyCheck:
    """Makes an engine's answer to one request fit for its client.

    Args:
        cut: the width that the vectors get, or None for their own.
    """

    def __init__(self, request: EmbeddingsRequest, cut: int | None) -> None:
        self._texts = request.texts
        self._cut = cut
        self._base64 = request.encoding_format == "base64"

    def __call__(self, body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        """The answer with one vector per text, in order, under the model's name as it was asked for; its figures.

        Raises:
            msgspec.MsgspecError: the answer is none.
        """
        reply = _reply_decoder.decode(body)
        figures = measured(reply.usage)
        places = [vector.index for vector in reply.data]
        if sorted(places) != list(range(self._texts)):
            raise msgspec.ValidationError(f"{len(places)} vectors for {self._texts} texts")
        in_order = places == list(range(self._texts))
        if in_order and reply.model == asked and self._cut is None:
            return body, figures
        data = [
            {"object": "embedding", "index": vector.index, "embedding": self._vector(vector.embedding)}
            for vector in sorted(reply.data, key=lambda one: one.index)
        ]
        return msgspec.json.encode({**msgspec.json.decode(body), "model": asked, "data": data}), figures

    def _vector(self, raw: msgspec.Raw) -> Any:
        if self._cut is None:
            return raw
        vector = shortened(_vector_decoder.decode(raw), self._cut)
        return encoded(vector) if self._base64 else vector


def shortened(vector: Sequence[float], width: int) -> list[float]:
    """The first `width` numbers, brought back to length 1.

    Raises:
        InvalidArgument: the vector is shorter than that.
    """
    if width > len(vector):
        raise InvalidArgument(
            f"'dimensions' must be at most {len(vector)}, the width of the model's vectors.", param="dimensions"
        )
    head = list(vector[:width])
    length = math.sqrt(sum(number * number for number in head))
    return [number / length for number in head] if length else head


def encoded(vector: Sequence[float]) -> str:
    """Base64 of little-endian 32-bit floats."""
    return base64.b64encode(struct.pack(f"<{len(vector)}f", *vector)).decode()
