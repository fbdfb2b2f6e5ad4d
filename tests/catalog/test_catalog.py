from __future__ import annotations

import asyncio
import logging
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import InvalidArgument, ModelNotFound, ModelNotSupported
from lemonade.hub.store import Store
from lemonade.model import Model
from lemonade.system.hardware import GIB
from tests.catalog.world import USER, World, gguf

QWEN = "Qwen3-0.6B-GGUF"


class TestNames:
    def test_every_spelling_of_a_built_in_model(self, world: World) -> None:
        model = world.catalog.find(QWEN)
        assert model.canonical == f"builtin.{QWEN}"
        assert world.catalog.public_id(model) == QWEN
        for name in (f"builtin.{QWEN}", f"{QWEN}:latest", f"builtin.{QWEN}:latest"):
            assert world.catalog.find(name) is model
        for name in (f"user.{QWEN}", f"extra.{QWEN}", QWEN.lower(), f" {QWEN}", ""):
            with pytest.raises(ModelNotFound):
                world.catalog.find(name)

    def test_a_persons_own_model_comes_first_and_both_stay_addressable(self, world: World) -> None:
        world.catalog.register({"model_name": f"user.{QWEN}", **USER})
        own, builtin = world.catalog.find(QWEN), world.catalog.find(f"builtin.{QWEN}")
        assert (own.origin, builtin.origin) == ("user", "builtin")
        assert world.catalog.find(f"user.{QWEN}") is own
        assert world.catalog.public_id(own) == QWEN
        assert world.catalog.public_id(builtin) == f"builtin.{QWEN}"
        assert {QWEN, f"builtin.{QWEN}"} <= set(world.ids(show_all=True))

    def test_latest_is_overlooked_only_when_it_is_nobodys_name(self, world: World) -> None:
        world.catalog.register({"model_name": "user.A", **USER})
        assert world.catalog.find("A:latest").name == "A"
        world.write("user_models.json", {"A": USER, "A:latest": USER})
        assert world.catalog.find("A:latest").name == "A:latest"
        world.catalog.aliases.add("b", "A")
        assert world.catalog.find("b:latest").name == "A"

    def test_aliases_are_names_but_a_model_beats_them(self, world: World) -> None:
        world.catalog.aliases.add("gpt-4o", "gpt")
        world.catalog.aliases.add("gpt", QWEN)
        assert world.catalog.find("gpt-4o").name == QWEN
        entry = world.catalog.entry("gpt-4o")
        assert (entry.id, entry.model.name) == ("gpt-4o", QWEN)
        assert world.catalog.entry("gpt-4o:latest").id == "gpt-4o"
        assert world.catalog.entry(f"{QWEN}:latest").id == QWEN
        world.write("user_models.json", {"gpt-4o": USER})
        assert world.catalog.find("gpt-4o").origin == "user"

    def test_unknown_names_get_three_that_exist(self, world: World) -> None:
        with pytest.raises(ModelNotFound) as caught:
            world.catalog.find("does-not-exist")
        count = len(world.ids(show_all=True)) - 3
        assert caught.value.message == (
            "Model 'does-not-exist' was not found. Available models include: 'ACE-Step-Music', 'AMD-OLMo-1B-SFT-DPO-"
            f"Hybrid', 'Anima-Aesthetic', and {count} more. Use 'lemonade list' or GET /api/v1/models?show_all=true "
            "to see all available models."
        )
        assert caught.value.body()["requested_model"] == "does-not-exist"

    @pytest.mark.parametrize("typed", ["qwen3-0.6b-gguf", "Qwen3-06B-GGUF", "Qwen-0.6B-GGUF"])
    def test_near_names_are_suggested_first(self, world: World, typed: str) -> None:
        with pytest.raises(ModelNotFound, match=f"include: '{QWEN}'"):
            world.catalog.find(typed)

    def test_absurd_names_are_answered_too(self, world: World) -> None:
        for name in ("x" * 100_000, "\0", "../../etc/passwd", "a\r\nb", ":latest", "%2e%2e"):
            with pytest.raises(ModelNotFound) as caught:
                world.catalog.find(name)
            assert len(caught.value.message) < 600

    def test_flm_names_say_what_is_wrong_with_flm(self, world: World) -> None:
        world.reasons["flm"] = "Requires an NPU."
        with pytest.raises(ModelNotFound, match=r"The FLM backend is not ready: Requires an NPU\."):
            world.catalog.find("gemma3-4b-FLM")


class TestSupport:
    def test_a_recipe_that_cannot_run_here(self, world: World) -> None:
        world.reasons["whispercpp"] = "No engine."
        with pytest.raises(ModelNotSupported) as caught:
            world.catalog.find("Whisper-Tiny")
        assert caught.value.message == (
            "Model 'Whisper-Tiny' cannot be used on this system (recipe: whispercpp): No engine. "
            "This machine: Test CPU, Test OS."
        )
        assert "Whisper-Tiny" not in world.ids(show_all=True)
        assert QWEN in world.ids(show_all=True)

    def test_a_persons_own_model_of_such_a_recipe(self, world: World) -> None:
        world.reasons["kokoro"] = "No engine."
        world.catalog.register({"model_name": "user.K", "recipe": "kokoro", "checkpoint": "a/b"})
        with pytest.raises(ModelNotSupported):
            world.catalog.find("K")

    def test_can_still_be_looked_up_and_deleted(self, world: World) -> None:
        world.catalog.register({"model_name": "user.K", "recipe": "kokoro", "checkpoint": "a/b"})
        world.reasons["kokoro"] = "No engine."
        world.catalog.changed()
        model = world.catalog.lookup("K")
        assert model is not None
        asyncio.run(world.catalog.delete(model))
        assert world.catalog.lookup("K") is None

    def test_built_in_models_that_are_too_big(self, tmp_path: Path) -> None:
        world = World(tmp_path, memory=16 * GIB)
        with pytest.raises(ModelNotSupported, match=r"needs about 14\.3 GB, but models may use at most 12\.8 GB"):
            world.catalog.find("Devstral-Small-2507-GGUF")
        assert world.catalog.find("gpt-oss-20b-mxfp4-GGUF")  # 12.1 GB
        world.catalog.register({"model_name": "user.Big", "size": 500, **USER})
        assert world.catalog.find("Big").size == 500

    def test_filtering_can_be_switched_off_and_on(self, world: World) -> None:
        world.reasons["whispercpp"] = "No engine."
        assert "Whisper-Tiny" not in world.ids(show_all=True)
        world.settings.change({"disable_model_filtering": True}, persist=False)
        assert "Whisper-Tiny" in world.ids(show_all=True)
        world.settings.change({"disable_model_filtering": False}, persist=False)
        assert "Whisper-Tiny" not in world.ids(show_all=True)

    def test_an_engine_that_came_is_noticed_when_told(self, world: World) -> None:
        world.reasons["whispercpp"] = "No engine."
        assert "Whisper-Tiny" not in world.ids(show_all=True)
        del world.reasons["whispercpp"]
        world.catalog.changed()
        assert world.catalog.find("Whisper-Tiny")

    def test_recipes_of_which_only_the_memory_left_nothing(self, tmp_path: Path) -> None:
        world = World(tmp_path, memory=2 * GIB)
        world.reasons["trellis"] = "No engine."
        recipes = world.catalog.unavailable_recipes()
        assert "thinksound" in recipes
        assert "trellis" not in recipes
        assert "llamacpp" not in recipes

    def test_rows_without_a_known_place_say_so(self, world: World) -> None:
        with pytest.raises(ModelNotSupported, match="does not know where its files are"):
            world.catalog.find("Remacri-4x-TheNoise")


class TestListing:
    def test_downloaded_models_in_order_then_aliases(self, world: World) -> None:
        assert world.ids() == []
        for name in ("Z", "a", "B"):
            world.catalog.register({"model_name": f"user.{name}", **USER, "checkpoint": f"org/{name}-GGUF:Q4_0"})
        for name in ("Z", "B"):
            world.download(world.catalog.find(name))
        world.catalog.aliases.add("A-alias", "Z")
        world.catalog.aliases.add("other", "a")
        assert world.ids() == ["B", "Z", "A-alias"]
        shown = world.ids(show_all=True)
        assert shown[-2:] == ["A-alias", "other"]
        assert shown[:-2] == sorted(shown[:-2])
        aliased = next(entry for entry in world.catalog.listed(show_all=False) if entry.id == "A-alias")
        assert aliased.model.canonical == "user.Z"

    def test_an_entry_tells_all_that_the_wire_shows(self, world: World) -> None:
        model = world.catalog.find(QWEN)
        before = world.catalog.entry(QWEN)
        assert (before.downloaded, before.size, before.max_context_window) == (False, 0.38, None)
        (main,) = before.checkpoint_status
        assert (main.type, main.present, main.required, main.registry, main.path) == (
            "main",
            False,
            True,
            "huggingface",
            None,
        )
        content = gguf(context_length=40960, tokenizer__chat_template="{% if tool_call %}")
        world.download(model, content + b"\0" * (1 << 20))
        entry = world.catalog.entry(QWEN)
        assert entry.downloaded
        assert entry.size == 0.001
        assert entry.max_context_window == 40960
        assert entry.model.labels == ("chat", "reasoning", "tool-calling")
        (main,) = entry.checkpoint_status
        assert main.present
        assert main.path and main.path.name == "model-Q4_0.gguf"
        assert entry.source == "huggingface"
        assert world.catalog.find(QWEN).labels == entry.model.labels

    def test_labels_of_embedding_models_are_left_alone(self, world: World) -> None:
        world.catalog.register({"model_name": "user.E", "embedding": True, **USER})
        world.download(world.catalog.find("E"), gguf(tokenizer__chat_template="tool_call"))
        assert world.catalog.find("E").labels == ("custom", "embeddings")

    def test_roles_that_are_optional_are_not_missed(self, world: World) -> None:
        world.catalog.register(
            {
                "model_name": "user.N",
                "recipe": "llamacpp",
                "checkpoints": {
                    "main": "org/n-gguf:Q4_0",
                    "npu_cache": "org/cache:x.rai",
                    "mmproj": "org/n-gguf:m.gguf",
                },
            }
        )
        status = world.catalog.entry("N").checkpoint_status
        assert [(each.type, each.required) for each in status] == [
            ("main", True),
            ("npu_cache", False),
            ("mmproj", True),
        ]

    def test_a_half_downloaded_model_is_not_downloaded(self, world: World) -> None:
        checkpoints = {"main": "org/n-gguf:Q4_0", "mmproj": "org/p-gguf:mmproj.gguf"}
        world.catalog.register({"model_name": "user.N", "recipe": "llamacpp", "checkpoints": checkpoints})
        world.download(Model(name="N", recipe="llamacpp", checkpoints={"main": checkpoints["main"]}))
        entry = world.catalog.entry("N")
        assert not entry.downloaded
        assert [each.present for each in entry.checkpoint_status] == [True, False]
        assert world.ids() == []

    def test_the_version_grows_with_every_visible_change(self, world: World) -> None:
        catalog = world.catalog
        versions = [catalog.version, catalog.version]
        assert versions[0] == versions[1]
        catalog.register({"model_name": "user.A", **USER})
        versions.append(catalog.version)
        world.download(catalog.find("A"))
        versions.append(catalog.version)
        catalog.aliases.add("b", "A")
        versions.append(catalog.version)
        world.options.save(catalog.find("A"), {"ctx_size": 5})
        versions.append(catalog.version)
        asyncio.run(catalog.delete(catalog.find("A")))
        versions.append(catalog.version)
        assert versions[1:] == sorted(set(versions))
        assert catalog.version == versions[-1]

    def test_files_that_others_bring_or_take_are_noticed(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lemonade.catalog.catalog.RECHECK_SECONDS", 0.0)
        model = world.catalog.find(QWEN)
        assert world.ids() == []
        world.download(model, tell=False)
        assert world.ids() == [QWEN]
        shutil.rmtree(world.paths.models)
        assert world.ids() == []
        assert not world.catalog.is_downloaded(model)

    def test_only_what_has_changed_is_examined_anew(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("lemonade.catalog.catalog.RECHECK_SECONDS", 0.0)
        here = [world.catalog.find(name) for name in (QWEN, "Qwen3-1.7B-GGUF")]
        for model in here:
            world.download(model)
        for parent, folders, files in os.walk(world.paths.models):
            for name in (".", *folders, *files):
                os.utime(Path(parent, name), (1e9, 1e9))
        ids = world.ids()
        assert len(ids) == 2
        looked: list[str] = []
        look = Store.look
        monkeypatch.setattr(Store, "look", lambda store, model: looked.append(model.name) or look(store, model))
        assert world.ids() == ids
        collections = {model.name for model in world.catalog.all_models() if model.is_collection}
        assert set(looked) <= collections
        shutil.rmtree(next(world.paths.models.glob("*Qwen3-0.6B*")))
        assert len(world.ids()) == 1
        assert here[0].name in looked and here[1].name not in looked

    def test_is_downloaded_is_the_truth_of_the_moment(self, world: World) -> None:
        model = world.catalog.find(QWEN)
        world.download(model)
        assert world.catalog.is_downloaded(model)
        shutil.rmtree(world.paths.models)
        assert not world.catalog.is_downloaded(model)

    def test_own_options_are_the_rows_with_the_saved_ones_on_top(self, world: World) -> None:
        name = "SmolLM2-135M-Instruct-GGUF"
        world.options.save(world.catalog.find(name), {"ctx_size": 1024})
        assert world.catalog.entry(name).recipe_options == {
            "ctx_size": 1024,
            "llamacpp_args": "--temp 0.2 --top-p 0.9 --chat-template chatml",
        }
        assert world.catalog.entry("SD-Turbo").recipe_options == {
            "cfg_scale": 1.0,
            "flow_shift": 0.0,
            "height": 512,
            "steps": 4,
            "width": 512,
        }


class TestOwnModels:
    def test_hand_edits_show_while_running(self, world: World) -> None:
        world.catalog.register({"model_name": "user.A", **USER})
        world.write("user_models.json", {"B": USER})
        assert world.catalog.find("B").suggested
        with pytest.raises(ModelNotFound):
            world.catalog.find("A")

    def test_rows_that_cannot_be_are_left_out_and_named(self, world: World, caplog: pytest.LogCaptureFixture) -> None:
        rows: dict[str, Any] = {
            "Good": USER,
            "TwoModes": {**USER, "labels": ["chat", "embeddings"]},
            "NoRecipe": {"checkpoint": "a/b:c"},
            "Contradiction": {**USER, "source": "hf", "registry_source": "modelscope"},
            "Text": "x",
            "extra.Reserved": USER,
        }
        text = world.write("user_models.json", rows).read_text()
        with caplog.at_level(logging.ERROR):
            shown = world.ids(show_all=True)
            world.ids(show_all=True)
        assert "Good" in shown
        assert not set(rows) - {"Good"} & set(shown)
        for name in set(rows) - {"Good"}:
            assert sum(name in record.getMessage() for record in caplog.records) == 1, name
        assert (world.paths.config / "user_models.json").read_text() == text

    def test_registering_downloads_nothing_and_replaces(self, world: World) -> None:
        model = world.catalog.register({"model_name": "user.A", **USER})
        assert (model.canonical, model.registry) == ("user.A", "huggingface")
        assert not world.catalog.entry("A").downloaded
        assert world.read("user_models.json") == {
            "A": {**USER, "source": "huggingface", "labels": ["chat", "custom"], "suggested": True}
        }
        world.catalog.register({"model_name": "user.A", **USER, "checkpoint": "org/repo-GGUF:Q8_0"})
        assert world.catalog.find("A").checkpoint == "org/repo-GGUF:Q8_0"

    def test_or_keeps_what_is_there(self, world: World) -> None:
        definition = {"model_name": "user.A", **USER}
        world.catalog.register(definition, keep=True)
        world.catalog.register(definition, keep=True)
        with pytest.raises(InvalidArgument, match="already registered with other checkpoints, source"):
            world.catalog.register({**definition, "checkpoint": "org/b-GGUF:Q8_0", "source": "ms"}, keep=True)
        assert world.catalog.find("A").checkpoint == USER["checkpoint"]

    def test_the_settings_registry_is_the_default(self, world: World) -> None:
        world.settings.change({"default_model_source": "modelscope"}, persist=False)
        assert world.catalog.register({"model_name": "user.A", **USER}).registry == "modelscope"
        assert world.catalog.register({"model_name": "user.B", **USER, "source": "hf"}).registry == "huggingface"

    def test_deleting_frees_what_no_other_model_uses(self, world: World) -> None:
        first = world.catalog.register({"model_name": "user.A", **USER})
        second = world.catalog.register({"model_name": "user.B", **USER})
        world.download(first)
        world.options.save(first, {"ctx_size": 5})
        asyncio.run(world.catalog.delete(first))
        assert world.catalog.is_downloaded(second)
        asyncio.run(world.catalog.delete(second))
        assert not list(world.paths.models.rglob("*.gguf"))
        assert world.read("user_models.json") == {}
        assert world.read("recipe_options.json") == {"user.A": {"ctx_size": 5}}

    def test_files_of_older_versions_move_to_where_they_belong(self, world: World) -> None:
        world.paths.cache.mkdir()
        (world.paths.cache / "user_models.json").write_text('{"Old": {"recipe": "llamacpp", "checkpoint": "a/b:c"}}')
        assert world.open().find("Old")
        assert world.read("user_models.json")
        assert not (world.paths.cache / "user_models.json").exists()
        (world.paths.cache / "user_models.json").write_text("{}")
        assert world.open().find("Old")

    def test_two_processes_do_not_lose_each_others_models(self, world: World) -> None:
        other = world.open()
        world.catalog.register({"model_name": "user.A", **USER})
        other.register({"model_name": "user.B", **USER})
        assert world.catalog.find("B")
        assert other.find("A")

    def test_many_models_are_not_parsed_again_for_one_that_changed(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from lemonade.catalog import rows

        world.write("user_models.json", {f"M{number}": USER for number in range(1000)})
        world.ids(show_all=True)
        parsed: list[str] = []
        parse = rows.parse
        monkeypatch.setattr(rows, "parse", lambda name, *rest: parsed.append(name) or parse(name, *rest))
        world.catalog.register({"model_name": "user.New", **USER})
        assert len(world.ids(show_all=True)) > 1000
        assert set(parsed) == {"New"}


class TestCollections:
    @pytest.fixture
    def kit(self, world: World) -> World:
        world.catalog.register({"model_name": "user.Ear", **USER})
        components = [QWEN, "user.Ear"]
        world.catalog.register({"model_name": "user.Kit", "recipe": "collection.omni", "components": components})
        return world

    def test_listed_with_its_prefix_and_found_without(self, kit: World) -> None:
        entry = kit.catalog.entry("Kit")
        assert entry.id == "user.Kit"
        assert entry.components == (QWEN, "Ear")
        assert kit.catalog.find("user.Kit").components == (f"builtin.{QWEN}", "user.Ear")

    def test_downloaded_when_all_components_are(self, kit: World) -> None:
        kit.download(kit.catalog.find(QWEN))
        assert not kit.catalog.entry("Kit").downloaded
        kit.download(kit.catalog.find("Ear"))
        assert kit.catalog.entry("Kit").downloaded
        assert kit.catalog.is_downloaded(kit.catalog.find("Kit"))
        asyncio.run(kit.catalog.delete(kit.catalog.find("Ear")))
        assert not kit.catalog.is_downloaded(kit.catalog.find("Kit"))
        assert not kit.catalog.entry("Kit").downloaded

    def test_deleting_one_leaves_the_components(self, kit: World) -> None:
        kit.download(kit.catalog.find(QWEN))
        asyncio.run(kit.catalog.delete(kit.catalog.find("Kit")))
        assert QWEN in kit.ids()
        with pytest.raises(ModelNotFound):
            kit.catalog.find("Kit")

    def test_never_filtered(self, kit: World) -> None:
        kit.reasons["llamacpp"] = "No engine."
        kit.catalog.changed()
        assert "user.Kit" in kit.ids(show_all=True)

    def test_a_manifest_lists_the_components(self, world: World) -> None:
        name = "LMX-Omni-5.5B-Lite"
        assert world.catalog.entry(name).components == ()
        folder = world.paths.models / f"models--lemonade-sdk--{name}" / "snapshots" / "c0ffee"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / f"{name}.json").write_text(
            '{"recipe": "collection.omni", "components": ["Qwen3-0.6B-GGUF", "Ear"], "models": [{}], '
            '"system_prompt": "Be kind."}'
        )
        (folder.parent.parent / "refs").mkdir()
        (folder.parent.parent / "refs" / "main").write_text("c0ffee")
        world.catalog.register({"model_name": "user.Ear", **USER})
        world.catalog.changed()
        entry = world.catalog.entry(name)
        assert entry.components == (QWEN, "Ear")
        assert entry.model.system_prompt == "Be kind."
        assert not entry.downloaded

    @pytest.mark.parametrize(
        ("said", "size"),
        [("9.5", 9.5), ("true", 0), ("-5", 0), ("NaN", 0), ("Infinity", 0), ("1" + 400 * "0", 0)],
        ids=lambda value: str(value)[:9],
    )
    def test_a_manifest_may_say_nonsense_of_its_size(self, world: World, said: str, size: float) -> None:
        world.catalog.register({"model_name": "user.Far", "recipe": "collection.omni", "checkpoint": "o/far"})
        folder = world.paths.models / "models--o--far" / "snapshots" / "c0ffee"
        folder.mkdir(parents=True)
        (folder / "far.json").write_text(
            f'{{"recipe": "collection.omni", "components": ["{QWEN}"], "models": [{{}}], "size": {said}}}'
        )
        (folder.parent.parent / "refs").mkdir()
        (folder.parent.parent / "refs" / "main").write_text("c0ffee")
        world.catalog.changed()
        assert world.catalog.entry("Far").model.size == size

    def test_components_that_went_stay_named(self, kit: World) -> None:
        asyncio.run(kit.catalog.delete(kit.catalog.find("Ear")))
        entry = kit.catalog.entry("Kit")
        assert entry.components == (QWEN, "user.Ear")
        assert kit.catalog.entry_or_none("user.Ear") is None
