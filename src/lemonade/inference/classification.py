"""A request to say how well each label fits a text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.catalog.labels import is_zero_shot
from lemonade.errors import EngineReplied, InvalidArgument, MissingArgument, UnsupportedOperation
from lemonade.inference.relay import EngineRequest
from lemonade.inference.sampling import ContextSize
from lemonade.model import Model
from lemonade.system.metrics import Measurement

#: Most labels in one request.
MAX_LABELS = 255
#: What a decision model is asked when nobody says anything else.
QUESTION = "Which of the options describes the text best?"

_NAME = "label"


class ClassifyRequest(msgspec.Struct):
    """`null` counts as absent."""

    model: Annotated[
        str | UnsetType | None,
        Meta(description="The model to run; may be left out when exactly one classification model is loaded."),
    ] = UNSET
    input: Annotated[str | UnsetType | None, Meta(description="The text to classify.")] = UNSET
    text: Annotated[str | UnsetType | None, Meta(description="Another spelling of `input`, which wins over it.")] = (
        UNSET
    )
    labels: Annotated[
        list[str] | UnsetType | None,
        Meta(description="Models with the label `zero-shot` or `systemone`: what to choose among. Others have theirs."),
    ] = UNSET
    top_k: Annotated[
        Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None,
        Meta(description="How many labels to return, the best first; all by default."),
    ] = UNSET
    ctx_size: Annotated[
        ContextSize | UnsetType | None,
        Meta(description="Extension: context size to load the model with, if this request loads it."),
    ] = UNSET

    @property
    def load_options(self) -> dict[str, Any]:
        """The options that count if this request is what loads the model."""
        return {"ctx_size": self.ctx_size} if isinstance(self.ctx_size, int) else {}


def text_of(request: ClassifyRequest) -> str:
    """What is to be classified.

    Raises:
        MissingArgument, InvalidArgument: there is nothing.
    """
    text = request.text if isinstance(request.text, str) else request.input
    if not isinstance(text, str):
        raise MissingArgument("input", "Missing 'input' (or 'text') string in classify request.")
    if not text.strip():
        raise InvalidArgument("The input text must not be empty.", param="text" if text is request.text else "input")
    return text


def labels_of(request: ClassifyRequest) -> list[str]:
    """The labels to choose among, empty when there are none.

    Raises:
        InvalidArgument: there are too many, or one twice, or an empty one.
    """
    labels = request.labels if isinstance(request.labels, list) else []
    if len(labels) > MAX_LABELS:
        raise InvalidArgument(f"'labels' may hold {MAX_LABELS} at most, not {len(labels)}.", param="labels")
    for number, label in enumerate(labels):
        if not label.strip() or label in labels[:number]:
            what = "must not be empty" if not label.strip() else "is there twice"
            raise InvalidArgument(f"'labels[{number}]' {what}.", param=f"labels[{number}]")
    return labels


def check_model(model: Model, labels: Sequence[str]) -> None:
    """Raises an error unless `model` classifies, with these labels; asked before it is loaded.

    Raises:
        UnsupportedOperation: it is no classification model.
        MissingArgument, InvalidArgument: it needs labels, or has its own.
    """
    if model.mode != "classification" or model.is_collection:
        raise UnsupportedOperation(
            f"Classification not supported by '{model.name}' ({model.recipe}). It takes a model with the label "
            "`classification`.",
            param="model",
        )
    if is_zero_shot(model):
        if not labels:
            raise MissingArgument("labels", f"'{model.name}' chooses among 'labels' of the request; there are none.")
    elif labels:
        raise InvalidArgument(f"The labels of '{model.name}' are its own; leave 'labels' out.", param="labels")


def engine_request(
    model: Model,
    text: str,
    labels: Sequence[str] = (),
    *,
    asked: str,
    top: int | None = None,
    prompt: str = "",
    options: dict[str, Any] | None = None,
) -> EngineRequest:
    """What the engine is asked.

    Args:
        asked: the name that the answer carries.
        top: how many labels the answer has.
        prompt: what a decision model is asked, or the sentence with `{}` for the label that is held against the text.
    """
    if "systemone" in model.labels:
        question = {"type": "choice", "instructions": prompt or QUESTION, "criteria": dict.fromkeys(labels)}
        path, body = "/v1/systemone", {"state": text, "questions": {_NAME: question}}
    else:
        path, body = "/classify", {"text": text, "labels": list(labels), "template": prompt if "{}" in prompt else ""}
    return EngineRequest(
        path=path,
        body=msgspec.json.encode(body),
        asked=asked,
        alias=model.name,
        options=options or {},
        check=ReplyCheck(top),
    )


class _Answer(msgspec.Struct):
    probabilities: dict[str, float]


class _Reply(msgspec.Struct):
    """Of a classifier, or of a decision model."""

    labels: dict[str, float] = {}
    answers: dict[str, _Answer] = {}


_reply_decoder = msgspec.json.Decoder(_Reply)


class ReplyCheck:
    """Makes an engine's answer fit for the client: the best labels first."""

    def __init__(self, top: int | None = None) -> None:
        self._top = top

    def __call__(self, body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
        """
        Raises:
            EngineReplied: `classification_error`, the answer is none.
        """
        try:
            reply = _reply_decoder.decode(body)
        except msgspec.MsgspecError as error:
            raise self._malformed(str(error)) from None
        found = reply.labels or (reply.answers[_NAME].probabilities if _NAME in reply.answers else {})
        if not found:
            raise self._malformed("no labels")
        best = sorted(found.items(), key=lambda one: (-one[1], one[0]))[: self._top]
        return msgspec.json.encode({"object": "classification", "model": asked, "labels": dict(best)}), None

    @staticmethod
    def _malformed(reason: str) -> EngineReplied:
        message = f"The engine's answer is no classification: {reason}."
        return EngineReplied(message, status=500, type="classification_error", code="classification_error")
