"""The models of a provider: what it lists, as rows of the catalog.

Lists differ between providers: `data` or a bare array, one word or another for the same fact. What is not said stays
unknown; a model is left out only when it is sure, or named so, that it does not chat.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

from lemonade.engines.cloud.provider import Provider
from lemonade.model import Model

#: A list that is longer is no list of models.
MAX_MODELS = 5000

#: Kinds of models that do not chat, as providers name them.
_OTHER_KINDS = frozenset(
    {
        *("embedding", "embeddings", "rerank", "reranker", "reranking", "image", "text-to-image", "video", "audio"),
        *("speech", "text-to-speech", "tts", "stt", "speech-to-text", "transcription", "transcribe", "moderation"),
        *("classification", "3d", "draft_addon", "hf_peft_addon"),
    }
)
_CHAT_KINDS = frozenset({"chat", "language", "llm", "text-generation", "text", "hf_base_model"})
#: Parts of the ids of models that do not chat.
_OTHER_NAMES = re.compile(
    r"(?i)(?:^|[-_/.:])(?:embed\w*|rerank\w*|whisper|tts|stt|transcribe|dall-e|flux|sdxl|stable-diffusion|imagen|image"
    r"|sora|veo|moderation|guard|clip|bge|e5|realtime|audio|babbage|davinci|computer-use)(?:$|[-_/.:\d])"
)
_SEES = re.compile(
    r"(?i)(?:^|[-_/.:])(?:vl\b|vision|llava|pixtral|gpt-4o|gpt-4\.1|gpt-5|o3(?!-mini)|o4|claude|gemini|gemma-?3)"
)
_REASONS = re.compile(r"(?i)(?:^|[-_/.:])(?:o[1-9]|r1|qwq|gpt-5|reason\w*|thinking|think)(?:$|[-_/.:])")

#: Where providers say how many tokens a request may have, and an answer.
_CONTEXT = ("context_length", "max_context_length", "context_window", "max_model_len", "max_context_window")
_OUTPUT = ("max_output_tokens", "max_completion_tokens", "max_output_length", "max_tokens")


def entries(answer: Any) -> list[Mapping[str, Any]]:
    """The objects of a provider's list.

    Raises:
        ValueError: it is no list of models.
    """
    rows = answer.get("data", answer.get("models")) if isinstance(answer, dict) else answer
    if not isinstance(rows, list):
        raise ValueError("it is no list of models")
    if len(rows) > MAX_MODELS:
        raise ValueError(f"it lists more than {MAX_MODELS} models")
    return [row for row in rows if isinstance(row, dict) and isinstance(row.get("id"), str) and row["id"]]


def models(provider: Provider, rows: Iterable[Mapping[str, Any]]) -> dict[str, Model]:
    """The chat models among a provider's rows, by name. Of two rows that come to the same name the first counts."""
    found: dict[str, Model] = {}
    for row in rows:
        name = f"{provider.name}.{clean(row['id'], provider.name)}"
        if name not in found and name.isprintable() and len(name) <= 256 and chats(row):
            found[name] = model(provider, name, row)
    return found


def model(provider: Provider, name: str, row: Mapping[str, Any]) -> Model:
    """One row as a model. Its checkpoint is the id by which the provider knows it."""
    costs = _costs(row)
    output = _first(row, _OUTPUT)
    told = {
        "cloud_provider": provider.name,
        "context_length": _first(row, _CONTEXT),
        "max_output_tokens": output,
        "max_completion_tokens": output,
        "cost_input_per_million": costs[0],
        "cost_output_per_million": costs[1],
    }
    return Model(
        name=name,
        recipe="cloud",
        origin="cloud",
        checkpoints={"main": row["id"]},
        labels=labels(row, provider),
        suggested=True,
        registry="",
        extras={key: value for key, value in told.items() if value is not None},
    )


def clean(id: str, provider: str) -> str:  # noqa: A002 - the wire's name
    """A model's name for people: `accounts/fireworks/models/x` is `x` at the provider `fireworks`."""
    if match := re.fullmatch(r"accounts/([^/]+)/models/(.+)", id):
        id = f"{match[1]}/{match[2]}"  # noqa: A001
    id = id.removeprefix("models/")  # noqa: A001
    for separator in ("/", "."):
        if id.lower().startswith(f"{provider}{separator}") and len(id) > len(provider) + 1:
            id = id[len(provider) + 1 :]  # noqa: A001
            break
    return id.strip("/") or id


def chats(row: Mapping[str, Any]) -> bool:
    """Whether a model answers chats: by its kind, a flag, its capabilities, what it puts out, or its name."""
    for key in ("kind", "type", "task", "model_type"):
        kind = str(row.get(key) or "").lower()
        if kind in _OTHER_KINDS:
            return False
        if kind in _CHAT_KINDS:
            return True
    if isinstance(says := row.get("supports_chat"), bool):
        return says
    capabilities = row.get("capabilities")
    if isinstance(capabilities, dict):
        for key in ("completion_chat", "chat", "chat_completion"):
            if isinstance(capabilities.get(key), bool):
                return bool(capabilities[key])
    if isinstance(capabilities, list) and capabilities:
        words = {str(each).lower() for each in capabilities}
        if words & {"chat", "chat-completion", "completion", "completions"}:
            return True
        if words & _OTHER_KINDS:
            return False
    if modality := _modality(row):
        return modality.rpartition("->")[2] == "text"
    if isinstance(row.get("labels"), list):
        # Another daemon of our kind says what each model is for.
        words = set(map(str, row["labels"]))
        modes = {"embeddings", "reranking", "transcription", "image", "tts", "audio-generation", "classification", "3d"}
        if "chat" in words or words & modes:
            return "chat" in words
    return not _OTHER_NAMES.search(row["id"])


def labels(row: Mapping[str, Any], provider: Provider) -> tuple[str, ...]:
    """`cloud` and `chat`, and what else the provider says or the name tells: `vision`, `tool-calling`, `reasoning`."""
    words = {
        str(each).lower()
        for key in ("capabilities", "labels", "tags", "supported_parameters")
        for each in _words(row, key)
    }
    inputs = _modality(row).partition("->")[0]
    name = row["id"]
    sees = (
        row.get("supports_image_input") is True
        or bool(words & {"vision", "image", "image-input", "image_input"})
        or ("image" in inputs if inputs else bool(_SEES.search(name)))
    )
    calls = (
        row.get("supports_tools") is True
        or bool(words & {"tools", "tool-calling", "tool_calling", "function_calling", "function-calling", "tool-use"})
        or provider.wire_format == "anthropic"
    )
    reasons = bool(words & {"reasoning", "thinking", "include_reasoning"}) or bool(_REASONS.search(name))
    found = ["cloud", "chat"]
    found += [label for label, has in (("vision", sees), ("tool-calling", calls), ("reasoning", reasons)) if has]
    return tuple(found)


def _words(row: Mapping[str, Any], key: str) -> Iterable[Any]:
    value = row.get(key)
    if isinstance(value, dict):
        return [name for name, has in value.items() if has is True or (isinstance(has, dict) and has.get("supported"))]
    return value if isinstance(value, list) else ()


def _modality(row: Mapping[str, Any]) -> str:
    """`text+image->text`, as some providers write it, from one of the ways to say it; empty when it is not said."""
    architecture = row.get("architecture")
    source = architecture if isinstance(architecture, dict) else row
    if isinstance(modality := source.get("modality"), str) and "->" in modality:
        return modality.lower()
    given, made = source.get("input_modalities"), source.get("output_modalities")
    if isinstance(made, list) and made:
        outputs = "text" if "text" in made else "+".join(map(str, made))
        return f"{'+'.join(map(str, given)) if isinstance(given, list) else 'text'}->{outputs}".lower()
    return ""


def _first(row: Mapping[str, Any], keys: Iterable[str]) -> int | None:
    """The first of these that is a number of tokens, here or where the best-known aggregator puts it."""
    nested = row.get("top_provider")
    for source in (row, nested if isinstance(nested, dict) else {}):
        for key in keys:
            value = source.get(key)
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                return value
    return None


def _costs(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """USD per million tokens of input and output. Strings are prices per token, as OpenRouter has them; numbers are
    prices per million, as everybody else has them."""
    direct = (_price(row.get("cost_input_per_million")), _price(row.get("cost_output_per_million")))
    if direct != (None, None):
        return direct
    pricing = row.get("pricing")
    if not isinstance(pricing, dict):
        return None, None
    pairs = (("prompt", "completion"), ("input", "output"))
    for given, made in pairs:
        if given in pricing or made in pricing:
            return _price(pricing.get(given)), _price(pricing.get(made))
    return None, None


def _price(value: Any) -> float | None:
    scale = 1.0
    if isinstance(value, str):
        scale = 1e6
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or value < 0:
        return None
    return round(value * scale, 6)
