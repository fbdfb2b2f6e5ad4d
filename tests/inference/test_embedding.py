from __future__ import annotations

import base64
import math
import struct
from typing import Any

import msgspec
import pytest

from lemonade.errors import EngineReplied, InvalidArgument, UnsupportedOperation
from lemonade.inference import reranking
from lemonade.inference.embedding import (
    EmbeddingsRequest,
    ReplyCheck,
    check_model,
    check_width,
    shape,
    shortened,
)
from lemonade.model import Model

ORDINARY = Model(name="m", recipe="llamacpp", labels=("embeddings",))
CUTTABLE = Model(
    name="m", recipe="llamacpp", labels=("embeddings",), checkpoints={"main": "Qwen/Qwen3-Embedding-0.6B-GGUF:Q8_0"}
)


def request(**more: Any) -> EmbeddingsRequest:
    return msgspec.convert({"model": "m", "input": ["a", "b"], **more}, EmbeddingsRequest)


def reply(*vectors: Any, model: str = "m", places: list[int] | None = None) -> bytes:
    places = places or list(range(len(vectors)))
    data = [{"embedding": vector, "index": place} for vector, place in zip(vectors, places, strict=True)]
    return msgspec.json.encode({"model": model, "data": data, "usage": {"prompt_tokens": 7, "total_tokens": 7}})


def test_a_good_answer_passes_untouched_and_is_counted() -> None:
    body = reply([1.0], [2.0])
    checked, figures = ReplyCheck(request(), None)(body, "m")
    assert checked is body
    assert figures is not None
    assert (figures.prompt_tokens, figures.output_tokens) == (7, 0)


def test_vectors_come_in_the_order_of_the_texts_under_the_name_that_was_asked_for() -> None:
    checked, _ = ReplyCheck(request(), None)(reply([2.0], [1.0], places=[1, 0]), "alias")
    answer = msgspec.json.decode(checked)
    assert answer["model"] == "alias"
    assert [(one["index"], one["embedding"], one["object"]) for one in answer["data"]] == [
        (0, [1.0], "embedding"),
        (1, [2.0], "embedding"),
    ]


@pytest.mark.parametrize("body", [reply([1.0]), reply([1.0], [1.0], [1.0]), reply([1], [1], places=[0, 0]), b"{}"])
def test_one_vector_per_text_or_none(body: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        ReplyCheck(request(), None)(body, "m")


@pytest.mark.parametrize(
    ("given", "count"), [("a", 1), ([1, 2, 3], 1), ([[1, 2], [3]], 2), (["a"], 1), (["a", [5]], 2), ([""] * 33, 33)]
)
def test_how_many_vectors_are_wanted(given: Any, count: int) -> None:
    assert request(input=given).texts == count


@pytest.mark.parametrize(
    ("model", "dimensions", "width", "cut"),
    [
        (ORDINARY, 4, 4, None),
        (CUTTABLE, 4, 4, None),
        (CUTTABLE, 3, 4, 3),
        (CUTTABLE, 3, None, 3),
    ],
)
def test_widths_that_can_be(model: Model, dimensions: int, width: int | None, cut: int | None) -> None:
    assert check_width(request(dimensions=dimensions), model, width) == cut


@pytest.mark.parametrize(
    ("model", "dimensions", "width"), [(ORDINARY, 3, 4), (ORDINARY, 3, None), (ORDINARY, 5, 4), (CUTTABLE, 5, 4)]
)
def test_widths_that_cannot_be(model: Model, dimensions: int, width: int | None) -> None:
    with pytest.raises(InvalidArgument) as caught:
        check_width(request(dimensions=dimensions), model, width)
    assert caught.value.param == "dimensions"


def test_vectors_that_are_cut_have_length_one_in_both_formats() -> None:
    vectors = ([3.0, 4.0, 12.0], [0.0, 0.0, 1.0])
    asked = request(dimensions=2)
    assert b"dimensions" not in shape(asked, b'{"model":"m","input":["a","b"],"dimensions":2}', 2)
    numbers = msgspec.json.decode(ReplyCheck(asked, 2)(reply(*vectors), "m")[0])["data"]
    assert numbers[0]["embedding"] == pytest.approx([0.6, 0.8])
    assert numbers[1]["embedding"] == [0.0, 0.0]
    coded = msgspec.json.decode(
        ReplyCheck(request(dimensions=2, encoding_format="base64"), 2)(reply(*vectors), "m")[0]
    )["data"]
    assert struct.unpack("<2f", base64.b64decode(coded[0]["embedding"])) == pytest.approx([0.6, 0.8])
    assert math.hypot(*shortened([1.0, 2.0, 3.0], 2)) == pytest.approx(1)
    with pytest.raises(InvalidArgument, match="at most 2"):
        shortened([1.0, 2.0], 3)


def test_only_models_for_it_are_asked() -> None:
    check_model(ORDINARY)
    with pytest.raises(EngineReplied) as caught:
        check_model(Model(name="m", recipe="llamacpp"))
    assert caught.value.status == 501
    with pytest.raises(UnsupportedOperation):
        check_model(Model(name="m", recipe="kokoro", labels=("tts",)))
    reranking.check_model(Model(name="m", recipe="llamacpp", labels=("reranking",)))
    with pytest.raises(EngineReplied):
        reranking.check_model(ORDINARY)
    with pytest.raises(UnsupportedOperation):
        reranking.check_model(Model(name="m", recipe="kokoro", labels=("tts",)))


def test_a_ranking_is_sorted_cut_and_shows_its_documents() -> None:
    asked = msgspec.convert(
        {"model": "m", "query": "q", "documents": ["a", {"text": "b"}, "c"], "top_n": 2, "return_documents": True},
        reranking.RerankRequest,
    )
    results = [{"index": index, "relevance_score": score} for index, score in enumerate([0.1, -3, 5])]
    body = msgspec.json.encode({"results": results, "usage": {"prompt_tokens": 4}})
    checked, figures = reranking.ReplyCheck(asked)(body, "asked")
    assert figures is not None
    assert figures.prompt_tokens == 4
    assert msgspec.json.decode(checked) == {
        "model": "asked",
        "results": [
            {"index": 2, "relevance_score": 5.0, "document": {"text": "c"}},
            {"index": 0, "relevance_score": 0.1, "document": {"text": "a"}},
        ],
        "usage": {"prompt_tokens": 4},
    }
    with pytest.raises(msgspec.ValidationError):
        reranking.ReplyCheck(asked)(b'{"results":[{"index":3,"relevance_score":1}]}', "m")
