"""The rows that come with the program."""

from __future__ import annotations

from collections import Counter

import pytest

from lemonade.catalog import recipes, rows
from lemonade.hub.layout import check_repository, is_safe
from lemonade.model import Checkpoint, deployment_mode

MODELS = rows.builtin()


def test_every_row_is_legal_and_complete() -> None:
    assert len(MODELS) == 234
    for name, model in MODELS.items():
        assert model.name == name
        assert model.origin == "builtin"
        assert recipes.known(model.recipe)
        assert sum(deployment_mode(label) is not None for label in model.labels) == 1, name
        assert len(set(model.labels)) == len(model.labels)
        assert set(model.recipe_options) <= set(recipes.options_of(model.recipe))


def test_counts() -> None:
    assert Counter(model.recipe for model in MODELS.values()) == {
        "llamacpp": 91,
        "ryzenai-llm": 79,
        "sd-cpp": 12,
        "vllm": 11,
        "thenoise": 8,
        "fasterwhisper": 9,
        "whispercpp": 6,
        "collection.omni": 4,
        "moonshine": 4,
        "openmoss": 3,
        "onnxruntime": 3,
        "kokoro": 1,
        "thinksound": 1,
        "acestep": 1,
        "trellis": 1,
    }
    assert Counter(model.registry for model in MODELS.values()) == {"huggingface": 222, "modelscope": 10, "pypi": 2}
    assert sum(model.suggested for model in MODELS.values()) == 214


def test_names_differ_also_where_case_does_not_count() -> None:
    assert len({name.casefold() for name in MODELS}) == len(MODELS)


@pytest.mark.parametrize("name", MODELS)
def test_checkpoints_can_be_fetched(name: str) -> None:
    model = MODELS[name]
    for role, text in model.checkpoints.items():
        checkpoint = Checkpoint.parse(text)
        check_repository(model.registry, checkpoint.repository)
        assert checkpoint.variant in ("", "*") or is_safe(checkpoint.variant)
        assert role in ("main", "mmproj", "draft", "text_encoder", "vae", "npu_cache")
        assert checkpoint.variant or role == "main"


def test_weights_out_of_wheels_have_a_hash_for_every_file() -> None:
    for model in MODELS.values():
        if model.registry == "pypi":
            variant = Checkpoint.parse(model.checkpoint).variant
            assert model.hashes
            assert all(file == variant or file.startswith(f"{variant}/") for file in model.hashes)
            assert all(len(value) == 64 and int(value, 16) for value in model.hashes.values())


def test_upscalers_run_on_demand() -> None:
    upscalers = [name for name, model in MODELS.items() if "upscaling" in model.labels]
    assert sorted(upscalers) == ["RealESRGAN-x4plus", "RealESRGAN-x4plus-anime", "Remacri-4x-TheNoise"]
    assert all("on-demand" in MODELS[name].labels for name in upscalers)


def test_the_first_model_that_people_meet() -> None:
    model = MODELS["SmolLM2-135M-Instruct-GGUF"]
    assert model.suggested
    assert model.mode == "chat"
    assert model.recipe_options == {"llamacpp_args": "--temp 0.2 --top-p 0.9 --chat-template chatml"}


def test_a_picture_models_defaults_are_filled_in() -> None:
    assert MODELS["SD-Turbo"].image_defaults == {
        "steps": 4,
        "cfg_scale": 1.0,
        "width": 512,
        "height": 512,
        "sampling_method": "",
        "flow_shift": 0.0,
    }
