"""The recipes: what each one serves and which options it takes. Adding a recipe to the catalog is one line here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Option:
    """One recipe option.

    Attributes:
        kind: `int`, `number`, `string`, `bool`, `bool?` (may be null) or `pixels` (their number, or WIDTHxHEIGHT).
        default: the value when no layer sets the option.
        setting: the setting that stands behind it; `{backend}_args` is tried before a setting that ends in `.args`.
        about: one sentence for people.
    """

    kind: str
    default: Any
    setting: str = ""
    about: str = ""


@dataclass(frozen=True, slots=True)
class Recipe:
    """One way to run models.

    Attributes:
        name: as the wire writes it.
        modes: deployment modes that it serves; the first is the default.
        section: its section of the settings.
        options: its own options, without the ones that every recipe has.
        labels: labels that every model of the recipe gets.
    """

    name: str
    modes: tuple[str, ...]
    section: str
    options: Mapping[str, Option] = field(default_factory=dict)
    labels: tuple[str, ...] = ()

    @property
    def uses_context_size(self) -> bool:
        return "ctx_size" in self.options


#: Options that every model has. Source: the specification's options of `POST /v1/load`.
UNIVERSAL: dict[str, Option] = {
    "auto_evict": Option("bool?", None, about="Unload when idle; null follows the setting auto_evict."),
    "auto_update": Option("bool?", None, about="Look for newer files; null follows auto_check_model_updates."),
    "downsize_idle_timeout": Option("int", 60, about="Seconds of idleness until the engine sleeps."),
    "evict_idle_timeout": Option("int", 300, about="Seconds of idleness until the model is unloaded."),
    "evict_weight_factor": Option("number", 1.0, about="Above 1 keeps the model longer under memory pressure."),
    "pinned": Option("bool", False, about="Never unload to make room."),
}

MERGE_ARGS = Option("bool", True, about="Merge arguments of all layers instead of replacing them.")
CTX_SIZE = Option("int", -1, "ctx_size", "Context size in tokens; -1 sizes it to the model and the memory.")


def _backend(section: str) -> Option:
    return Option("string", "auto", f"{section}.backend", "Backend to run on; auto takes the best one here.")


def _args(section: str) -> Option:
    return Option("string", "", f"{section}.args", "Arguments for the engine's command line.")


_PICTURE = {
    "steps": Option("int", 20, "sdcpp.steps", "Sampling steps."),
    "cfg_scale": Option("number", 7.0, "sdcpp.cfg_scale", "Guidance scale."),
    "width": Option("int", 512, "sdcpp.width", "Width in pixels."),
    "height": Option("int", 512, "sdcpp.height", "Height in pixels."),
}

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "llamacpp",
            ("chat", "embeddings", "reranking"),
            "llamacpp",
            {
                "ctx_size": CTX_SIZE,
                "llamacpp_backend": _backend("llamacpp"),
                "llamacpp_device": Option("string", "", "llamacpp.device", "Device, as llama.cpp's --device takes it."),
                "llamacpp_args": _args("llamacpp"),
            },
        ),
        Recipe("flm", ("chat", "embeddings", "transcription"), "flm", {"ctx_size": CTX_SIZE, "flm_args": _args("flm")}),
        Recipe("ryzenai-llm", ("chat",), "ryzenai", {"ctx_size": CTX_SIZE}),
        Recipe(
            "vllm",
            ("chat",),
            "vllm",
            {"ctx_size": CTX_SIZE, "vllm_backend": _backend("vllm"), "vllm_args": _args("vllm")},
        ),
        Recipe(
            "whispercpp",
            ("transcription",),
            "whispercpp",
            {"whispercpp_backend": _backend("whispercpp"), "whispercpp_args": _args("whispercpp")},
            ("realtime-transcription",),
        ),
        Recipe(
            "moonshine",
            ("transcription",),
            "moonshine",
            {"moonshine_args": _args("moonshine")},
            ("realtime-transcription",),
        ),
        Recipe(
            "fasterwhisper",
            ("transcription",),
            "fasterwhisper",
            {"fasterwhisper_args": _args("fasterwhisper")},
            ("realtime-transcription",),
        ),
        Recipe(
            "sd-cpp",
            ("image",),
            "sdcpp",
            {
                "sd-cpp_backend": _backend("sdcpp"),
                "sdcpp_args": _args("sdcpp"),
                **_PICTURE,
                "sampling_method": Option("string", "", about="Sampler; empty takes the engine's own."),
                "flow_shift": Option("number", 0.0, about="Shift of flow models; 0 takes the engine's own."),
                "soft_pixel_cap": Option(
                    "pixels", 2048 * 2048, about="Pixels an edited picture is scaled down to, also WIDTHxHEIGHT."
                ),
            },
        ),
        Recipe(
            "thenoise",
            ("image",),
            "thenoise",
            {
                "thenoise_backend": _backend("thenoise"),
                "steps": Option("int", 20, about="Sampling steps."),
                "cfg_scale": Option("number", 7.0, about="Guidance scale."),
                "width": Option("int", 512, about="Width in pixels."),
                "height": Option("int", 512, about="Height in pixels."),
                "sampler": Option("string", "", about="euler or er_sde."),
                "negative_prompt": Option("string", "", about="What the picture should not show."),
                "qwen_vae_enhance": Option("bool", False, about="Sharper decoding."),
                "film_grain": Option("number", 0.0, about="Amount of grain."),
                "sharpening": Option("number", 0.0, about="Amount of sharpening."),
                "lora_specs": Option("string", "", about="LoRA files and weights."),
            },
        ),
        Recipe("kokoro", ("tts",), "kokoro"),
        Recipe("openmoss", ("tts",), "openmoss", {"openmoss_backend": _backend("openmoss")}),
        Recipe("acestep", ("audio-generation",), "acestep", {"acestep_backend": _backend("acestep")}),
        Recipe("thinksound", ("audio-generation",), "thinksound", {"thinksound_backend": _backend("thinksound")}),
        Recipe("onnxruntime", ("classification",), "onnxruntime", {"onnxruntime_args": _args("onnxruntime")}),
        Recipe(
            "trellis", ("3d",), "trellis", {"trellis_backend": _backend("trellis"), "trellis_args": _args("trellis")}
        ),
        Recipe("cloud", ("chat", "embeddings"), "cloud_providers"),
    )
}

#: Virtual recipes: a collection runs its components.
COLLECTIONS = ("collection.omni", "collection.router")


def known(recipe: str) -> bool:
    """Whether a model may name this recipe."""
    return recipe in RECIPES or recipe in COLLECTIONS


def options_of(recipe: str) -> dict[str, Option]:
    """Every option that models of a recipe take, by name, in the order of names."""
    found = dict(UNIVERSAL)
    if recipe in RECIPES:
        found["merge_args"] = MERGE_ARGS
        found.update(RECIPES[recipe].options)
    return dict(sorted(found.items()))


def is_set(key: str, value: Any) -> bool:
    """Whether a layer's value counts, or leaves the choice to the layer below.

    null, -1, "" and "auto" leave it, except that any number is a context size: -1 asks for the automatic one.
    """
    if key == "ctx_size":
        return isinstance(value, int | float) and not isinstance(value, bool)
    if value is None or value in ("", "auto"):
        return False
    return isinstance(value, bool) or value != -1
