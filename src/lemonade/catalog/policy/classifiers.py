"""The classifiers of a policy: models that are asked about a request, and say how well each label fits it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec

from lemonade.catalog.labels import is_zero_shot
from lemonade.catalog.policy.fields import distinct, mapping, refuse, shown, text, texts, within
from lemonade.model import Model

Kind = Literal["classifier", "zero_shot", "semantic_similarity", "llm"]

KINDS: tuple[Kind, ...] = ("classifier", "zero_shot", "semantic_similarity", "llm")
#: Types for which the original keeps the names free.
RESERVED = ("domain_classification", "language_detection")
ON_ERROR = ("match_false", "match_true")

_KEYS = ("id", "type", "model", "prompt", "labels", "default_label", "reference_phrases", "on_error")


class Classifier(msgspec.Struct, frozen=True, kw_only=True):
    """One classifier.

    Attributes:
        labels: those that it may answer with; empty when its model alone knows them. For `semantic_similarity` the
            names of the concepts.
        reference_phrases: concept to sentences that are typical of it.
        on_error: what a condition on it counts as when the model cannot be asked.
    """

    id: str
    type: Kind
    model: str
    prompt: str = ""
    labels: tuple[str, ...] = ()
    default_label: str = ""
    reference_phrases: dict[str, tuple[str, ...]] = {}
    on_error: bool = False


def parse(place: str, value: Any) -> Classifier:
    """The classifier that stands at `place`.

    Raises:
        InvalidArgument: naming the place of what is wrong.
    """
    found = mapping(place, value, _KEYS, ("id", "type", "model"))
    kind = _kind(within(place, "type"), found["type"])
    phrases: dict[str, tuple[str, ...]] = {}
    if kind == "semantic_similarity":
        _forbid(place, found, kind, "labels", "prompt")
        phrases = _phrases(within(place, "reference_phrases"), found.get("reference_phrases"))
        labels = tuple(phrases)
    else:
        _forbid(place, found, kind, "reference_phrases")
        labels = distinct(within(place, "labels"), found["labels"]) if "labels" in found else ()
    needed = {"zero_shot": ("labels",), "llm": ("labels", "prompt")}.get(kind, ())
    for key in needed:
        if key not in found:
            raise refuse(within(place, key), f"is missing; a classifier of the type `{kind}` needs it.")
    default = found.get("default_label", "")
    if "default_label" in found and default not in labels:
        at = within(place, "default_label")
        raise refuse(at, f"must be one of the classifier's labels ({', '.join(labels) or 'none'}).")
    on_error = found.get("on_error", "match_false")
    if on_error not in ON_ERROR:
        raise refuse(within(place, "on_error"), f"must be `match_false` or `match_true`, not {shown(on_error)}.")
    return Classifier(
        id=text(within(place, "id"), found["id"]),
        type=kind,
        model=text(within(place, "model"), found["model"]),
        prompt=text(within(place, "prompt"), found["prompt"]) if "prompt" in found else "",
        labels=labels,
        default_label=default,
        reference_phrases=phrases,
        on_error=on_error == "match_true",
    )


def check_model(place: str, classifier: Classifier, model: Model) -> None:
    """Refuses a classifier whose model cannot do what the type asks of it.

    Raises:
        InvalidArgument: on the classifier's model.
    """
    reason = _REASONS[classifier.type](classifier, model)
    if reason:
        raise refuse(within(place, "model"), f"is '{model.name}', {reason}")


def _classifier(classifier: Classifier, model: Model) -> str:
    if model.mode == "classification":
        if "zero-shot" in model.labels:
            return "which takes its labels from each request; use it in a classifier of the type `zero_shot`."
        if "systemone" in model.labels and not classifier.labels:
            return "which chooses among labels that it is given, so 'labels' are needed."
        return ""
    if model.mode != "chat":
        return "which is neither a classification model nor an LLM."
    return "" if classifier.labels else "an LLM, which has to be told the 'labels'."


def _zero_shot(classifier: Classifier, model: Model) -> str:
    if model.mode != "classification":
        return "which is no classification model; `zero_shot` needs one with the label `zero-shot`."
    if not is_zero_shot(model):
        return "whose labels are fixed; use it in a classifier of the type `classifier`."
    return ""


def _semantic_similarity(classifier: Classifier, model: Model) -> str:
    return "" if model.mode == "embeddings" else "which makes no embeddings."


def _llm(classifier: Classifier, model: Model) -> str:
    return "" if model.mode == "chat" else "which is no LLM."


_REASONS: Mapping[str, Callable[[Classifier, Model], str]] = {
    "classifier": _classifier,
    "zero_shot": _zero_shot,
    "semantic_similarity": _semantic_similarity,
    "llm": _llm,
}


def _kind(place: str, value: Any) -> Kind:
    for kind in KINDS:
        if value == kind:
            return kind
    if value in RESERVED:
        raise refuse(place, f"classifier type not implemented yet: {value}")
    if value in ("keywords_any", "keywords_all", "regex"):
        raise refuse(place, f"names a condition; write it into a rule's 'match': {{\"{value}\": …}}.")
    raise refuse(place, f"must be one of: {', '.join(KINDS)}, not {shown(value)}.")


def _forbid(place: str, found: Mapping[str, Any], kind: str, *keys: str) -> None:
    for key in keys:
        if key in found:
            raise refuse(within(place, key), f"does not belong to a classifier of the type `{kind}`.")


def _phrases(place: str, value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, Mapping) or not value:
        raise refuse(place, "must be an object of at least one concept and its phrases.")
    return {text(place, concept): texts(within(place, str(concept)), said) for concept, said in value.items()}
