from __future__ import annotations

from typing import Any

import pytest

from lemonade.engines.cloud.discovery import MAX_MODELS, chats, clean, entries, models
from lemonade.engines.cloud.provider import Provider

ACME = Provider(name="acme", base_url="https://api.example.com/v1")


def one(row: dict[str, Any], provider: Provider = ACME) -> Any:
    (model,) = models(provider, [row]).values()
    return model


@pytest.mark.parametrize(
    ("given", "provider", "name"),
    [
        ("gpt-4o", "openai", "gpt-4o"),
        ("openai/gpt-4o", "openai", "gpt-4o"),
        ("openai/gpt-4o", "router", "openai/gpt-4o"),
        ("accounts/fireworks/models/kimi-k2p5", "fireworks", "kimi-k2p5"),
        ("accounts/me/models/mine", "fireworks", "me/mine"),
        ("models/gemini-2", "google", "gemini-2"),
        ("acme.small", "acme", "small"),
        ("acme", "acme", "acme"),
        ("acme/", "acme", "acme"),
        ("deepseek-chat", "deepseek", "deepseek-chat"),
        ("Qwen/Qwen3-8B", "far", "Qwen/Qwen3-8B"),
    ],
)
def test_names_for_people(given: str, provider: str, name: str) -> None:
    assert clean(given, provider) == name


@pytest.mark.parametrize(
    ("row", "chatting"),
    [
        ({}, True),
        ({"type": "model"}, True),
        ({"kind": "EMBEDDING"}, False),
        ({"type": "image", "supports_chat": True}, False),
        ({"type": "chat", "id": "whisper-chat"}, True),
        ({"supports_chat": False}, False),
        ({"supports_chat": True, "id": "text-embedding"}, True),
        ({"capabilities": {"completion_chat": False, "vision": True}}, False),
        ({"capabilities": {"completion_chat": True}}, True),
        ({"capabilities": ["embeddings"]}, False),
        ({"capabilities": ["chat", "vision"]}, True),
        ({"architecture": {"modality": "text+image->text"}}, True),
        ({"architecture": {"modality": "text->image"}}, False),
        ({"architecture": {"input_modalities": ["text"], "output_modalities": ["text"]}}, True),
        ({"architecture": {"input_modalities": ["text"], "output_modalities": ["image"]}}, False),
        ({"labels": ["embeddings"]}, False),
        ({"labels": ["vision", "tool-calling"]}, True),
        *(
            ({"id": name}, False)
            for name in (
                *(
                    "text-embedding-3-small",
                    "whisper-1",
                    "tts-1",
                    "dall-e-3",
                    "gpt-4o-mini-tts",
                    "omni-moderation-latest",
                ),
                *("gpt-4o-realtime-preview", "bge-m3", "gpt-image-1", "flux-1-dev", "rerank-v3", "gpt-4o-transcribe"),
            )
        ),
        *(({"id": name}, True) for name in ("gpt-4o", "claude-opus-4-1", "llama-3.1-8b", "o3", "mistral-large")),
    ],
)
def test_which_models_chat(row: dict[str, Any], chatting: bool) -> None:
    assert chats({"id": "some-model", **row}) is chatting


@pytest.mark.parametrize(
    ("row", "labels"),
    [
        ({"id": "plain"}, {"cloud", "chat"}),
        ({"id": "plain", "supports_image_input": True, "supports_tools": True}, {"vision", "tool-calling"}),
        (
            {"id": "plain", "capabilities": {"vision": True, "function_calling": True, "audio": False}},
            {"vision", "tool-calling"},
        ),
        ({"id": "plain", "supported_parameters": ["tools", "reasoning"]}, {"tool-calling", "reasoning"}),
        ({"id": "plain", "labels": ["vision", "reasoning", "hot"]}, {"vision", "reasoning"}),
        ({"id": "plain", "architecture": {"modality": "text+image->text"}}, {"vision"}),
        ({"id": "gpt-4o", "architecture": {"modality": "text->text"}}, {"chat"}),
        ({"id": "gpt-4o"}, {"vision"}),
        ({"id": "deepseek-r1"}, {"reasoning"}),
        ({"id": "o3-mini"}, {"reasoning"}),
    ],
)
def test_labels(row: dict[str, Any], labels: set[str]) -> None:
    assert set(one(row).labels) == {"cloud", "chat"} | labels


def test_models_of_anthropics_wire_call_tools_and_see() -> None:
    provider = Provider(name="a", base_url="https://x", wire_format="anthropic")
    assert set(one({"id": "claude-opus-4-1", "type": "model"}, provider).labels) == {
        *("cloud", "chat", "vision", "tool-calling")
    }


@pytest.mark.parametrize(
    ("row", "facts"),
    [
        ({"context_length": 4096}, {"context_length": 4096}),
        ({"max_model_len": 40960}, {"context_length": 40960}),
        ({"context_window": 8192, "max_completion_tokens": 1024}, {"context_length": 8192, "max_output_tokens": 1024}),
        (
            {"top_provider": {"context_length": 5, "max_completion_tokens": 6}},
            {"context_length": 5, "max_output_tokens": 6},
        ),
        (
            {"pricing": {"prompt": "0.0000025", "completion": "0.00001"}},
            {"cost_input_per_million": 2.5, "cost_output_per_million": 10.0},
        ),
        ({"pricing": {"input": 0.9, "output": 1.2}}, {"cost_input_per_million": 0.9, "cost_output_per_million": 1.2}),
        ({"pricing": {"prompt": "0", "completion": "0"}}, {"cost_input_per_million": 0.0}),
        ({"cost_input_per_million": 3}, {"cost_input_per_million": 3.0}),
        ({"context_length": -1, "max_tokens": True, "pricing": {"prompt": "-1", "completion": "x"}}, {}),
        ({"context_length": "many", "pricing": {"prompt": "nan", "completion": "inf"}}, {}),
        ({"context_length": None, "pricing": 5, "top_provider": []}, {}),
    ],
)
def test_facts(row: dict[str, Any], facts: dict[str, Any]) -> None:
    found = one({"id": "m", **row}).extras
    assert facts.items() <= found.items()
    unknown = {
        "context_length",
        "max_output_tokens",
        "cost_input_per_million",
        "cost_output_per_million",
    } - facts.keys()
    assert facts or not unknown & found.keys()
    assert found.get("max_completion_tokens") == found.get("max_output_tokens")


def test_a_model() -> None:
    model = one({"id": "accounts/acme/models/small"})
    assert (model.name, model.canonical, model.checkpoint, model.recipe) == (
        *("acme.small", "cloud.acme.small", "accounts/acme/models/small", "cloud"),
    )
    assert model.suggested
    assert model.extras["cloud_provider"] == "acme"


def test_of_two_that_come_to_one_name_the_first_counts() -> None:
    found = models(ACME, [{"id": "acme/x"}, {"id": "x"}])
    assert {name: model.checkpoint for name, model in found.items()} == {"acme.x": "acme/x"}


def test_names_that_would_break_a_line_or_a_page_are_left_out() -> None:
    assert models(ACME, [{"id": "a\nb"}, {"id": "x" * 300}, {"id": "\x1b[31m"}]) == {}


@pytest.mark.parametrize("answer", [{"data": [{"id": "a"}]}, [{"id": "a"}], {"models": [{"id": "a"}]}])
def test_lists_of_all_shapes(answer: Any) -> None:
    assert entries(answer) == [{"id": "a"}]


@pytest.mark.parametrize("answer", [None, 5, "x", {}, {"data": {}}, {"error": "no"}, [{"id": "a"}] * (MAX_MODELS + 1)])
def test_what_is_no_list(answer: Any) -> None:
    with pytest.raises(ValueError, match="list"):
        entries(answer)


def test_rows_that_are_none() -> None:
    assert entries([None, 5, {}, {"id": 5}, {"id": ""}, {"id": "a"}]) == [{"id": "a"}]
