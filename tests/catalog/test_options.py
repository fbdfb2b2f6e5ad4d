from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import InvalidArgument, RequestError
from lemonade.model import Model
from lemonade.system.hardware import GIB, GPU
from tests.catalog.world import USER, World, gguf

QWEN3 = "--temp 0.6 --top-p 0.85 --top-k 20 --min-p 0.0 --repeat-penalty 1.0"


@pytest.fixture
def small(world: World) -> Model:
    """Qwen3 0.6B, downloaded."""
    facts = {"context_length": 40960, "block_count": 28, "attention__head_count_kv": 8, "attention__key_length": 128}
    world.download(world.catalog.find("Qwen3-0.6B-GGUF"), gguf("qwen3", **facts))
    return world.catalog.find("Qwen3-0.6B-GGUF")


@pytest.fixture
def absent(world: World) -> Model:
    return world.catalog.find("Qwen3-4B-GGUF")


class TestSpecification:
    """The examples of `/models/{id}/options`, key by key and in their order."""

    def values(self, name: str, ctx_size: int, arguments: str) -> dict[str, Any]:
        return {
            "auto_evict": None,
            "auto_update": None,
            "ctx_size": ctx_size,
            "downsize_idle_timeout": 60,
            "evict_idle_timeout": 300,
            "evict_weight_factor": 1.0,
            "llamacpp_args": arguments,
            "llamacpp_backend": "vulkan",
            "llamacpp_device": "",
            "merge_args": True,
            "model_name": name,
        }

    def test_get(self, world: World, small: Model) -> None:
        values = self.values("Qwen3-0.6B-GGUF", -1, f"{QWEN3} --parallel 1")
        expected = {
            "model_name": "Qwen3-0.6B-GGUF",
            "recipe": "llamacpp",
            "saved": {},
            "effective": values,
            "defaults": values,
            "resolved_ctx_size": 40960,
        }
        assert json.dumps(world.options.report(small, "Qwen3-0.6B-GGUF")) == json.dumps(expected)

    def test_post_then_delete(self, world: World, absent: Model) -> None:
        name = "Qwen3-4B-GGUF"
        world.options.save(absent, {"ctx_size": 8192})
        expected = {
            "model_name": name,
            "recipe": "llamacpp",
            "saved": {"ctx_size": 8192},
            "effective": self.values(name, 8192, "--parallel 1"),
            "defaults": self.values(name, -1, "--parallel 1"),
            "resolved_ctx_size": 8192,
        }
        assert json.dumps(world.options.report(absent, name)) == json.dumps(expected)
        world.options.forget(absent)
        expected |= {"saved": {}, "effective": self.values(name, -1, "--parallel 1"), "resolved_ctx_size": 32768}
        assert json.dumps(world.options.report(absent, name)) == json.dumps(expected)
        assert world.read("recipe_options.json") == {}

    def test_a_picture_model(self, world: World) -> None:
        defaults = world.options.report(world.catalog.find("SD-Turbo"), "SD-Turbo")["defaults"]
        assert defaults == {
            "auto_evict": None,
            "auto_update": None,
            "cfg_scale": 1.0,
            "downsize_idle_timeout": 60,
            "evict_idle_timeout": 300,
            "evict_weight_factor": 1.0,
            "flow_shift": 0.0,
            "height": 512,
            "merge_args": True,
            "model_name": "SD-Turbo",
            "sampling_method": "",
            "sd-cpp_backend": "vulkan",
            "sdcpp_args": "",
            "soft_pixel_cap": 4194304,
            "steps": 4,
            "width": 512,
        }

    def test_a_collection_has_only_what_all_models_have(self, world: World) -> None:
        report = world.options.report(world.catalog.find("LMX-Omni-5.5B-Lite"), "x")
        assert "merge_args" not in report["defaults"]
        assert "ctx_size" not in report["defaults"]


class TestLayers:
    def test_every_layer_in_its_place(self, world: World, absent: Model) -> None:
        def size(request: dict[str, Any] | None = None) -> int:
            return int(world.options.resolve(absent, request)["ctx_size"])

        assert size() == -1
        world.settings.change({"ctx_size": 1000}, persist=False)
        assert size() == 1000
        world.options.save(absent, {"ctx_size": 2000})
        assert size() == 2000
        assert size({"ctx_size": 3000}) == 3000
        assert size({"ctx_size": None}) == 1000
        assert size({"ctx_size": -1}) == -1

    def test_a_saved_minus_one_beats_a_size_for_all_models(self, world: World, absent: Model) -> None:
        world.settings.change({"ctx_size": 4096}, persist=False)
        world.options.save(absent, {"ctx_size": -1})
        assert world.options.resolve(absent)["ctx_size"] == -1
        world.options.forget(absent)
        assert world.options.resolve(absent)["ctx_size"] == 4096

    @pytest.mark.parametrize(
        "saved",
        [
            '{"ctx_size": 1e400}',
            '{"ctx_size": NaN}',
            '{"ctx_size": -7}',
            '{"ctx_size": "many"}',
            '{"llamacpp_args": 5}',
            '{"llamacpp_args": ["--mlock"]}',
            '{"llamacpp_backend": {}}',
            '{"merge_args": "no"}',
        ],
    )
    def test_what_an_option_cannot_have_is_not_set_by_a_file(self, world: World, absent: Model, saved: str) -> None:
        before = world.options.resolve(absent)
        world.write("recipe_options.json", f'{{"{absent.canonical}": {saved}}}')
        resolved = world.options.resolve(absent)
        assert resolved == before
        assert world.options.context_size(absent, resolved) > 0
        world.options.report(absent, "x")

    def test_sentinels_leave_the_choice_to_the_next_layer(self, world: World, absent: Model) -> None:
        world.settings.change({"llamacpp": {"backend": "cpu", "device": "GPU0"}}, persist=False)
        for request in ({}, {"llamacpp_backend": "auto", "llamacpp_device": "", "evict_idle_timeout": -1}):
            resolved = world.options.resolve(absent, request)
            assert (resolved["llamacpp_backend"], resolved["llamacpp_device"]) == ("cpu", "GPU0")
            assert resolved["evict_idle_timeout"] == 300

    def test_false_is_a_value(self, world: World, absent: Model) -> None:
        world.options.save(absent, {"auto_evict": False})
        assert world.options.resolve(absent)["auto_evict"] is False

    def test_pinned_shows_only_when_true_and_never_in_a_report(self, world: World, absent: Model) -> None:
        assert "pinned" not in world.options.resolve(absent)
        assert world.options.resolve(absent, {"pinned": True})["pinned"] is True
        world.options.replace(absent, {"pinned": True, "ctx_size": 5})
        assert world.options.resolve(absent)["pinned"] is True
        report = world.options.report(absent, "x")
        assert report["saved"] == {"pinned": True, "ctx_size": 5}
        assert "pinned" not in report["effective"]

    def test_saved_options_of_older_versions_are_taken_over(self, world: World) -> None:
        world.write("recipe_options.json", {"Qwen3-4B-GGUF": {"ctx_size": 5}, "unknown": {"x": 1}})
        world.open()
        assert world.read("recipe_options.json") == {"unknown": {"x": 1}, "builtin.Qwen3-4B-GGUF": {"ctx_size": 5}}

    def test_nonsense_in_the_file_is_passed_over(self, world: World, absent: Model) -> None:
        world.write("recipe_options.json", {"builtin.Qwen3-4B-GGUF": ["x"]})
        assert world.options.resolve(absent)["ctx_size"] == -1


class TestArguments:
    def args(self, world: World, model: Model, request: dict[str, Any] | None = None) -> str:
        return str(world.options.resolve(model, request)["llamacpp_args"])

    def test_layers_are_merged(self, world: World, small: Model) -> None:
        world.settings.change({"llamacpp": {"args": "--mlock", "vulkan_args": ""}}, persist=False)
        assert self.args(world, small) == (
            "--min-p 0.0 --mlock --repeat-penalty 1.0 --temp 0.6 --top-k 20 --top-p 0.85 --parallel 1"
        )
        world.options.save(small, {"llamacpp_args": "--temp 0.1"})
        assert "--temp 0.1" in self.args(world, small)
        assert "--mlock" in self.args(world, small)
        # What a request says replaces what was saved and what the architecture wants, not the settings.
        assert self.args(world, small, {"llamacpp_args": "--seed 1"}) == "--mlock --seed 1 --parallel 1"
        assert "--temp 0.6" in self.args(world, small, {"llamacpp_args": None})

    def test_null_hides_only_what_was_saved(self, world: World) -> None:
        model = world.catalog.find("SmolLM2-135M-Instruct-GGUF")
        world.options.save(model, {"llamacpp_args": "--seed 1", "ctx_size": 5})
        assert self.args(world, model) == "--seed 1 --parallel 1"
        resolved = world.options.resolve(model, {"llamacpp_args": None})
        assert resolved["llamacpp_args"] == "--temp 0.2 --top-p 0.9 --chat-template chatml --parallel 1"
        assert resolved["ctx_size"] == 5
        assert world.options.saved(model) == {"llamacpp_args": "--seed 1", "ctx_size": 5}

    def test_the_backends_arguments_replace_the_general_ones(self, world: World, absent: Model) -> None:
        world.settings.change({"llamacpp": {"args": "--general", "cpu_args": "--special"}}, persist=False)
        assert self.args(world, absent) == "--general --parallel 1"
        assert self.args(world, absent, {"llamacpp_backend": "cpu"}) == "--special --parallel 1"

    def test_without_merging_only_the_request_counts(self, world: World, small: Model) -> None:
        world.settings.change({"llamacpp": {"args": "--mlock"}}, persist=False)
        world.options.save(small, {"llamacpp_args": "--no-mmap", "merge_args": False})
        assert self.args(world, small) == ""
        assert self.args(world, small, {"llamacpp_args": "--seed  1"}) == "--seed  1"

    @pytest.mark.parametrize("given", ["--parallel 4", "-np 4", "--parallel=4"])
    def test_defaults_give_way(self, world: World, absent: Model, given: str) -> None:
        assert self.args(world, absent, {"llamacpp_args": given}) == given

    @pytest.mark.parametrize("label", ["embeddings", "reranking"])
    def test_models_that_only_read_do_so_with_many_texts_at_once(self, world: World, label: str) -> None:
        model = world.catalog.register({"model_name": "user.reads", **USER, "labels": [label]})
        assert self.args(world, model, {"llamacpp_backend": "cpu"}) == "--parallel 16"
        assert self.args(world, model, {"llamacpp_backend": "system"}) == "--parallel 1"
        assert self.args(world, model, {"llamacpp_args": "--parallel 1"}) == "--parallel 1"

    def test_speculative_decoding(self, world: World) -> None:
        model = world.catalog.find("Qwen3.5-4B-MTP-GGUF")
        assert self.args(world, model) == (
            "--spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-p-min 0.75 --parallel 1"
        )
        assert self.args(world, model, {"llamacpp_args": "--spec-type none"}) == "--spec-type none --parallel 1"
        drafted = world.catalog.find("Muse-Glimmer-30B-GGUF")
        assert self.args(world, drafted) == "--spec-type draft-dflash --parallel 1"

    @pytest.mark.parametrize("saved", [{}, {"llamacpp_args": "--temp 0.1"}, {"merge_args": False}, {"ctx_size": 99}])
    @pytest.mark.parametrize("general", ["", "--mlock --threads 2", "--top-k 9"])
    def test_effective_posted_to_load_changes_nothing(
        self, world: World, small: Model, saved: dict[str, Any], general: str
    ) -> None:
        world.settings.change({"llamacpp": {"args": general}}, persist=False)
        world.options.save(small, saved)
        effective = world.options.report(small, "x")["effective"]
        assert world.options.resolve(small, effective) == world.options.resolve(small)


class TestSaving:
    @pytest.mark.parametrize(
        ("changes", "param", "code", "message"),
        [
            ([1], None, "invalid_argument", "Request body must be a JSON object of recipe options"),
            ({"nope": 1}, "nope", None, "Unknown option 'nope' for recipe 'llamacpp'"),
            ({"whispercpp_args": "x"}, "whispercpp_args", None, "Unknown option 'whispercpp_args' for recipe"),
            ({"pinned": True}, "pinned", None, "'pinned' applies to a running model; use /v1/load or /internal/pin"),
            ({"llamacpp_args": 5}, "llamacpp_args", None, "Invalid type for option 'llamacpp_args'"),
            ({"merge_args": "yes"}, "merge_args", None, "Invalid type for option 'merge_args'"),
            ({"auto_evict": 1}, "auto_evict", None, "Invalid type for option 'auto_evict'"),
            ({"evict_idle_timeout": 1.5}, "evict_idle_timeout", None, "'evict_idle_timeout' must be a whole number"),
            ({"evict_weight_factor": math.inf}, "evict_weight_factor", None, "usual size"),
            ({"evict_idle_timeout": True}, "evict_idle_timeout", None, "Invalid type"),
            ({"ctx_size": "8192"}, "ctx_size", "invalid_argument", "'ctx_size' must be a positive whole number, or -1"),
            ({"ctx_size": True}, "ctx_size", "invalid_argument", "'ctx_size' must be"),
            ({"ctx_size": 0}, "ctx_size", None, "'ctx_size' must be a positive whole number, or -1 to size it"),
            ({"ctx_size": 4096.5}, "ctx_size", None, "'ctx_size' must be"),
            ({"ctx_size": -2}, "ctx_size", None, "'ctx_size' must be"),
            ({"ctx_size": 2**64 - 1}, "ctx_size", None, "'ctx_size' must be"),
            ({"ctx_size": math.nan}, "ctx_size", None, "'ctx_size' must be"),
            ({"dry_run": "yes"}, "dry_run", "invalid_argument", "'dry_run' must be true or false"),
            ({"model_name": 5}, "model_name", "invalid_argument", "'model_name' must be a string"),
            ({"llamacpp_args": "a\0b"}, "llamacpp_args", None, "NUL"),
        ],
    )
    def test_refused(
        self, world: World, absent: Model, changes: Any, param: str | None, code: str | None, message: str
    ) -> None:
        good = {"llamacpp_device": "GPU0"}
        for call in (world.options.save, lambda model, body: world.options.report(model, "x", preview=body)):
            with pytest.raises(RequestError) as caught:
                call(absent, {**good, **changes} if isinstance(changes, dict) else changes)
            error = caught.value
            assert (error.status, error.param, error.code) == (400, param, code)
            assert message in error.message
        assert not (world.paths.config / "recipe_options.json").exists()

    def test_changes_are_merged_and_sentinels_clear(self, world: World, absent: Model) -> None:
        save, saved = world.options.save, world.options.saved
        save(absent, {"ctx_size": 8192.0, "llamacpp_args": "--no-mmap", "merge_args": False, "model_name": "ignored"})
        assert saved(absent) == {"ctx_size": 8192, "llamacpp_args": "--no-mmap", "merge_args": False}
        save(absent, {"merge_args": None, "evict_idle_timeout": 5, "ctx_size": -1})
        assert saved(absent) == {"ctx_size": -1, "llamacpp_args": "--no-mmap", "evict_idle_timeout": 5}
        save(absent, {"llamacpp_args": "", "evict_idle_timeout": -1, "llamacpp_backend": "auto"})
        assert saved(absent) == {"ctx_size": -1}
        save(absent, {"ctx_size": None})
        assert world.read("recipe_options.json") == {}

    def test_a_dry_run_shows_what_would_be(self, world: World, absent: Model) -> None:
        world.options.save(absent, {"ctx_size": 5})
        report = world.options.report(absent, "x", preview={"ctx_size": 9, "dry_run": True})
        assert report["saved"] == {"ctx_size": 5}
        assert report["effective"]["ctx_size"] == report["resolved_ctx_size"] == 9
        assert world.options.saved(absent) == {"ctx_size": 5}

    def test_a_load_replaces_what_was_saved_but_for_nulls(self, world: World, absent: Model) -> None:
        world.options.save(absent, {"ctx_size": 5, "llamacpp_args": "--a", "evict_idle_timeout": 7})
        world.options.replace(absent, {"ctx_size": 9, "llamacpp_args": None, "other": 1, "llamacpp_device": ""})
        assert world.options.saved(absent) == {"ctx_size": 9, "llamacpp_args": "--a"}
        world.options.replace(absent, {})
        assert world.read("recipe_options.json") == {}


class TestLoading:
    @pytest.mark.parametrize(
        "request_",
        [
            {"ctx_size": "2048"},
            {"ctx_size": -5},
            {"ctx_size": 1.5},
            {"llamacpp_args": 5},
            {"llamacpp_args": ["--x"]},
            {"pinned": "yes"},
            {"merge_args": 1},
            {"evict_idle_timeout": "5"},
            {"llamacpp_backend": {}},
        ],
    )
    def test_wrong_types_are_named(self, world: World, absent: Model, request_: dict[str, Any]) -> None:
        for call in (world.options.resolve, world.options.accept, world.options.replace):
            with pytest.raises(InvalidArgument) as caught:
                call(absent, request_)
            assert caught.value.param == next(iter(request_))

    def test_fields_that_are_no_options_are_overlooked(self, world: World, absent: Model) -> None:
        assert world.options.accept(absent, {"model_name": "x", "whispercpp_args": 5, "ctx_size": 0}) == {
            "ctx_size": -1
        }
        assert world.options.resolve(absent, {"nope": 1}) == world.options.resolve(absent)


class TestContext:
    def test_explicit_sizes_are_used(self, world: World, absent: Model) -> None:
        assert world.options.context_size(absent, {"ctx_size": 1234}) == 1234

    def test_embedding_models_never_get_less_than_whole_documents_need(self, world: World) -> None:
        model = world.catalog.find("nomic-embed-text-v1-GGUF")
        assert world.options.context_size(model, {"ctx_size": 512}) == 8192
        assert world.options.context_size(model, {"ctx_size": 9000}) == 9000
        assert world.options.context_size(model, {"ctx_size": -1}) == 32768

    def test_automatic_sizes_follow_the_memory(self, tmp_path: Path) -> None:
        world = World(tmp_path, available=1 * GIB)
        world.catalog.register({"model_name": "user.A", **USER, "size": 0.25})
        model = world.catalog.find("A")
        # Three quarters of a GiB, 128 KiB for a token of so small a model.
        assert world.options.context_size(model, {"ctx_size": -1}) == 6144
        world.download(model, gguf("x", context_length=4000))
        assert world.options.context_size(model, {"ctx_size": -1}) == 4000

    def test_recipes_without_one(self, world: World) -> None:
        assert world.options.context_size(world.catalog.find("Whisper-Tiny"), {}) == 4096


class TestMemory:
    """Of the small model, a token takes 28 * 8 * 128 * 4 bytes, 112 KiB; the machine has 64 GiB."""

    LIMIT = 64 * GIB // (28 * 8 * 128 * 4)
    WEIGHTS = 4000  # tokens that would take as much as the model does, about

    def test_a_context_that_cannot_be_in_memory_is_refused(self, world: World, small: Model) -> None:
        for size in (1, self.LIMIT - self.WEIGHTS, -1):
            world.options.check_memory(small, {"ctx_size": size, "llamacpp_backend": "cpu"})
        with pytest.raises(InvalidArgument) as caught:
            world.options.check_memory(small, {"ctx_size": 10**8, "llamacpp_backend": "cpu"})
        assert caught.value.param == "ctx_size"
        assert "10681.2 GiB" in caught.value.message
        with pytest.raises(InvalidArgument, match=f"At most {str(self.LIMIT)[:2]}.... tokens can fit"):
            world.options.check_memory(small, {"ctx_size": self.LIMIT, "llamacpp_backend": "cpu"})

    def test_a_smaller_cache_lets_more_in(self, world: World, small: Model) -> None:
        options = {"ctx_size": self.LIMIT * 3, "llamacpp_backend": "cpu"}
        with pytest.raises(InvalidArgument):
            world.options.check_memory(small, {**options, "llamacpp_args": "-ctk f16 -ctk q4_0"})
        for said in (
            "-ctk q4_0 --cache-type-v=q4_0",
            "--cache_type_k 'q4_0' --cache_type_v=\"q4_0\"",
            "-ctk q2 -ctv q2",
        ):
            world.options.check_memory(small, {**options, "llamacpp_args": said})

    def test_what_nobody_knows_is_tried(self, world: World, small: Model, absent: Model) -> None:
        huge = {"ctx_size": 2**31 - 1, "llamacpp_backend": "cpu"}
        world.options.check_memory(absent, huge)
        elsewhere = {**huge, "llamacpp_backend": "system", "llamacpp_args": "--rpc 192.0.2.1:50052"}
        world.options.check_memory(small, elsewhere)
        object.__setattr__(world.hardware, "gpus", ())
        world.options.check_memory(small, {**huge, "llamacpp_backend": "vulkan"})
        object.__setattr__(world.hardware, "gpus", (GPU("of Intel", "intel", integrated=True),))
        world.options.check_memory(small, {**huge, "llamacpp_backend": "vulkan"})
        object.__setattr__(world.hardware, "gpus", (GPU("of unknown memory", "nvidia"),))
        world.options.check_memory(small, {**huge, "llamacpp_backend": "vulkan"})
        object.__setattr__(world.hardware, "gpus", (GPU("large", "amd", vram=64 * GIB),))
        world.options.check_memory(small, {"ctx_size": self.LIMIT + 10, "llamacpp_backend": "vulkan"})
        with pytest.raises(InvalidArgument):
            world.options.check_memory(small, {"ctx_size": self.LIMIT + 10, "llamacpp_backend": "cpu"})

    def test_it_is_not_saved(self, world: World, small: Model) -> None:
        for save in (world.options.save, world.options.replace):
            with pytest.raises(InvalidArgument):
                save(small, {"ctx_size": 10**8, "llamacpp_backend": "cpu"})
        with pytest.raises(InvalidArgument):
            world.options.report(small, "x", preview={"ctx_size": 10**8, "llamacpp_backend": "cpu"})
        assert world.options.saved(small) == {}
