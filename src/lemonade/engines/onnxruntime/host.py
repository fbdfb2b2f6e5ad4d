"""A text classifier in a process of its own: the only place that imports onnxruntime."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from tokenizers import Encoding, Tokenizer

from lemonade.engines.worker import Job, Operation
from lemonade.errors import ContextLengthExceeded, InvalidArgument, ModelLoadError

#: Tokens of a model that does not tell how many it can take. Source: BERT.
USUAL_LENGTH = 512
#: What stands in tokenizer_config.json for no limit.
NO_LENGTH = 10**6
#: The sentence that is held against the text for each label. Source: the pipelines of transformers.
TEMPLATE = "This example is {}."
#: Families whose positions begin after the padding's, so that they have fewer than they say.
_OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "mpnet", "longformer")

_TYPES = {"tensor(int64)": np.int64, "tensor(int32)": np.int32}


def operations(config: Mapping[str, Any]) -> Mapping[str, Operation]:
    """`/classify`: `{"text", "labels"?, "template"?}` to `{"labels": {label: score}}`."""
    model = Classifier(Path(config["folder"]), threads=int(config["threads"]))
    if not config["zero_shot"]:
        return {"/classify": model.classify}
    return {"/classify": ZeroShot(model).classify}


class Classifier:
    """A model whose labels are its own."""

    def __init__(self, folder: Path, *, threads: int) -> None:
        self._config: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        # Of a pair the first is the text, and the other must stay whole.
        self._tokenizer.enable_truncation(_length(folder, self._config), strategy="only_first")
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # Threads that wait by spinning would take the processor from the engines beside.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.log_severity_level = 3
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self._inputs = {one.name: _TYPES.get(one.type, np.int64) for one in self._session.get_inputs()}
        self._output = _logits(self._session.get_outputs())
        self.labels = _labels(self._config, self._output.shape[-1])
        found = len(self.logits(self._encode("hello")))
        if found != len(self.labels):
            raise ModelLoadError(f"config.json names {len(self.labels)} labels, and the model scores {found}")

    def classify(self, job: Job) -> dict[str, Any]:
        """The scores of all labels."""
        logits = self.logits(self._encode(job.json()["text"]))
        if self._config.get("problem_type") == "multi_label_classification" or len(logits) == 1:
            scores = [_sigmoid(value) for value in logits]
        else:
            scores = softmax(logits)
        return {"labels": dict(zip(self.labels, scores, strict=True))}

    def pair(self, text: str, hypothesis: str) -> list[float]:
        """The logits for two texts side by side."""
        return self.logits(self._encode(text, hypothesis))

    def logits(self, encoding: Encoding) -> list[float]:
        known = {
            "input_ids": encoding.ids,
            "attention_mask": encoding.attention_mask,
            "token_type_ids": encoding.type_ids,
        }
        feed = {name: np.array([known[name]], dtype=kind) for name, kind in self._inputs.items() if name in known}
        (found,) = self._session.run([self._output.name], feed)
        return [float(value) for value in np.asarray(found)[0]]

    def _encode(self, text: str, other: str | None = None) -> Encoding:
        try:
            return self._tokenizer.encode(text, other)
        except Exception as error:  # noqa: BLE001 - the library has no class of its own for it
            raise ContextLengthExceeded(f"The label is longer than the model can take: {error}.") from None


class ZeroShot:
    """A model that was trained to say whether one sentence follows from another: it takes any labels."""

    def __init__(self, model: Classifier) -> None:
        self._model = model
        places = {label.lower()[:6]: place for place, label in enumerate(model.labels)}
        if "entail" not in places:
            raise ModelLoadError(
                f"the labels of the model ({', '.join(model.labels)[:200]}) have no `entailment`. With the label "
                "`zero-shot` it has to be a model for natural language inference."
            )
        self._entailed = places["entail"]
        self._contradicted = places.get("contra", places.get("not_en", 1 - self._entailed))

    def classify(self, job: Job) -> dict[str, Any]:
        """How well each label fits in comparison with the others; one label alone is compared with its contrary."""
        body = job.json()
        labels, template = body["labels"], body.get("template") or TEMPLATE
        if not labels:
            raise InvalidArgument("'labels' must not be empty.", param="labels")
        found = []
        for label in labels:
            job.check()
            found.append(self._model.pair(body["text"], template.replace("{}", label)))
        if len(found) == 1:
            return {"labels": {labels[0]: _sigmoid(found[0][self._entailed] - found[0][self._contradicted])}}
        scores = softmax([logits[self._entailed] for logits in found])
        return {"labels": dict(zip(labels, scores, strict=True))}


def softmax(logits: Sequence[float]) -> list[float]:
    highest = max(logits)
    powers = [math.exp(value - highest) for value in logits]
    return [power / sum(powers) for power in powers]


def _sigmoid(value: float) -> float:
    return 1 / (1 + math.exp(-value)) if value >= 0 else 1 - 1 / (1 + math.exp(value))


def _logits(outputs: Sequence[Any]) -> Any:
    """The output with one number per label."""
    for one in sorted(outputs, key=lambda one: one.name != "logits"):
        if len(one.shape) == 2:
            return one
    shapes = ", ".join(f"{one.name} {one.shape}" for one in outputs)
    raise ModelLoadError(f"model.onnx is no text classifier: none of its outputs has a number per label ({shapes})")


def _labels(config: Mapping[str, Any], count: Any) -> list[str]:
    named = {int(number): str(label) for number, label in (config.get("id2label") or {}).items()}
    size = count if isinstance(count, int) else len(named) or int(config.get("num_labels") or 2)
    return [named.get(number, f"LABEL_{number}") for number in range(size)]


def _length(folder: Path, config: Mapping[str, Any]) -> int:
    """The most tokens that the model can take."""
    positions = config.get("max_position_embeddings")
    length = positions if isinstance(positions, int) and positions > 0 else USUAL_LENGTH
    if config.get("model_type") in _OFFSET_POSITIONS:
        length -= int(config.get("pad_token_id") or 0) + 1
    try:
        said = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8")).get("model_max_length")
    except (OSError, ValueError):
        said = None
    return min(length, int(said)) if isinstance(said, int | float) and 0 < said < NO_LENGTH else length
