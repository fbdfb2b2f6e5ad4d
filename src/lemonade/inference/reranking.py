"""A request to order documents by how well they answer a query."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import EngineReplied, UnsupportedOperation
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.sampling import ContextSize, Count
from lemonade.model import Model
from lemonade.system.metrics import Measurement


class Document(msgspec.Struct):
    """A document as an object."""

    text: str


class RerankRequest(msgspec.Struct):
    """Arguments that are not listed go to the engine untouched; `null` counts as absent."""

    query: Annotated[str, Meta(min_length=1, description="What is looked for.")]
    documents: Annotated[
        list[str | Document], Meta(min_length=1, description='The documents: strings, or objects `{"text": …}`.')
    ]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
    top_n: Annotated[Count | UnsetType | None, Meta(description="How many documents to return; all by default.")] = (
        UNSET
    )
    return_documents: Annotated[
        bool | UnsetType | None, Meta(description="`true` returns each document's text with its score.")
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
    def texts(self) -> list[str]:
        """The documents' texts."""
        return [one if isinstance(one, str) else one.text for one in self.documents]


def check_model(model: Model) -> None:
    """Raises an error unless `model` ranks documents; asked before it is loaded.

    Raises:
        EngineReplied: 501, a llama.cpp model of another kind.
        UnsupportedOperation: any other.
    """
    if model.mode == "reranking":
        return
    if model.recipe == "llamacpp":
        raise EngineReplied(
            f"'{model.name}' is no reranking model, so its engine does not support reranking. Label a model "
            "`reranking` when it is registered to use it for that.",
            status=501,
            type="not_supported_error",
        )
    raise UnsupportedOperation(f"Reranking not supported by {model.recipe}", param="model")


def shape(request: RerankRequest, raw: bytes) -> bytes:
    """The body for the engine, whose documents are strings."""
    body = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    body.pop("return_documents", None)
    return msgspec.json.encode({**body, "documents": request.texts})


class _Result(msgspec.Struct):
    index: int
    relevance_score: float


class _Reply(msgspec.Struct):
    results: list[_Result]
    usage: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)


class ReplyCheck:
    """Makes an engine's answer to one request fit for its client."""

    def __init__(self, request: RerankRequest) -> None:
        self._texts = request.texts
        self._top = request.top_n if isinstance(request.top_n, int) else len(self._texts)
        self._documents = request.return_documents is True

    def __call__(self, body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        """The results, the best first, under the model's name as it was asked for; the answer's figures.

        Raises:
            msgspec.MsgspecError: the answer is none.
        """
        reply = _reply_decoder.decode(body)
        if any(not 0 <= one.index < len(self._texts) for one in reply.results):
            raise msgspec.ValidationError("a result for a document that there is not")
        best = sorted(reply.results, key=lambda one: -one.relevance_score)[: self._top]
        results = [
            {"index": one.index, "relevance_score": one.relevance_score}
            | ({"document": {"text": self._texts[one.index]}} if self._documents else {})
            for one in best
        ]
        tree = {**msgspec.json.decode(body), "model": asked, "results": results}
        return msgspec.json.encode(tree), measured(reply.usage)
