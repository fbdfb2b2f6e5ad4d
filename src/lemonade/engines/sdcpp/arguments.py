"""A user's arguments for stable-diffusion.cpp: read, checked, and refused before anything starts.

The bundled engine is a library without a command line, so each flag of sd-server is made into what it changes there.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

from lemonade.engines import arguments
from lemonade.engines.words import Read, choice, directory, existing, number, text, whole
from lemonade.errors import InvalidArgument

#: The option that holds the arguments, as clients write it.
OPTION = "sdcpp_args"

#: What a flag changes: the model's context, each picture, or the host itself; `nothing` is for memory of a device that
#: the bundled engine does not have.
Place = Literal["context", "picture", "sampling", "host", "nothing"]


class Flag(NamedTuple):
    """One flag in all its spellings.

    Attributes:
        read: of its word; None for a flag without one, which sets `value`.
    """

    names: tuple[str, ...]
    place: Place
    attribute: str
    read: Read | None = None
    value: Any = True


class Member(NamedTuple):
    """A value of one of the library's enumerations, by name; a JSON array on its way to the engine's process."""

    enum: str
    name: str


def _members(enum: str, **names: str) -> Read:
    return choice({word.replace("__", "++"): Member(enum, name) for word, name in names.items()})


def _pair(kind: Callable[[str], Any]) -> Read:
    def read(word: str) -> list[Any]:
        parts = word.split("x")
        if len(parts) > 2:
            raise ValueError("must be one number, or two with an x between")
        values = [kind(part) for part in parts]
        return values * 2 if len(values) == 1 else values

    return read


_TYPES = {name: Member("SDType", name.upper()) for name in ("f32", "f16", "bf16")}
_TYPES |= {name: Member("SDType", name.upper()) for name in ("q4_0", "q4_1", "q5_0", "q5_1", "q8_0")}
_TYPES |= {f"q{bits}_K": Member("SDType", f"Q{bits}_K") for bits in (2, 3, 4, 5, 6)}
_RNG = _members("RngType", std_default="STD_DEFAULT", cuda="CUDA", cpu="CPU")
_PREDICTION = _members(
    "Prediction", eps="EPS", v="V", edm_v="EDM_V", sd3_flow="FLOW", flux_flow="FLUX_FLOW", flux2_flow="FLUX2_FLOW"
)
_SCHEDULERS = [
    "discrete",
    "karras",
    "exponential",
    "ays",
    "gits",
    "sgm_uniform",
    "simple",
    "smoothstep",
    "kl_optimal",
    "lcm",
    "bong_tangent",
    "flux2",
    "flux",
    "beta",
]


def _valued(names: str, place: Place, attribute: str, read: Read) -> Flag:
    return Flag(tuple(names.split()), place, attribute, read)


def _bare(names: str, place: Place, attribute: str = "", value: Any = True) -> Flag:
    return Flag(tuple(names.split()), place, attribute, None, value)


#: Roles of a model's files: how sd-server is told of them, and the library.
FILES = {
    "vae": ("--vae", "vae_path"),
    "llm": ("--llm", "llm_path"),
    "llm_vision": ("--llm_vision", "llm_vision_path"),
    "clip_l": ("--clip_l", "clip_l_path"),
    "clip_g": ("--clip_g", "clip_g_path"),
    "clip_vision": ("--clip_vision", "clip_vision_path"),
    "t5xxl": ("--t5xxl", "t5xxl_path"),
    "taesd": ("--taesd", "taesd_path"),
}

_LORA_FOLDER = "--lora-model-dir"

#: Flags of sd-server that the bundled engine follows. Source: `sd-server --help`.
TAKEN = (
    *(_valued(flag, "context", attribute, existing) for flag, attribute in FILES.values() if flag not in ("--llm",)),
    _valued("--tae", "context", "taesd_path", existing),
    _valued("--control-net", "context", "control_net_path", existing),
    _valued("--photo-maker", "context", "photo_maker_path", existing),
    _valued("--high-noise-diffusion-model", "context", "high_noise_diffusion_model_path", existing),
    _valued("--tensor-type-rules", "context", "tensor_type_rules", text),
    _valued("-t --threads", "context", "n_threads", whole()),
    _valued("--type", "context", "wtype", choice(_TYPES)),
    _valued("--rng", "context", "rng_type", _RNG),
    _valued("--sampler-rng", "context", "sampler_rng_type", _RNG),
    _valued("--prediction", "context", "prediction", _PREDICTION),
    _valued(
        "--lora-apply-mode",
        "context",
        "lora_apply_mode",
        _members("LoraApplyMode", auto="AUTO", immediately="IMMEDIATELY", at_runtime="AT_RUNTIME"),
    ),
    _bare("--fa", "context", "flash_attn"),
    _bare("--diffusion-fa", "context", "diffusion_flash_attn"),
    _bare("--diffusion-conv-direct", "context", "diffusion_conv_direct"),
    _bare("--vae-conv-direct", "context", "vae_conv_direct"),
    _bare("--mmap", "context", "enable_mmap"),
    _bare("--force-sdxl-vae-conv-scale", "context", "force_sdxl_vae_conv_scale"),
    _bare("--vae-tiling", "picture", "vae_tiling_enabled"),
    _valued("--vae-tile-size", "picture", "vae_tile_size", _pair(whole(1))),
    _valued("--vae-relative-tile-size", "picture", "vae_tile_rel_size", _pair(number(0))),
    _valued("--vae-tile-overlap", "picture", "vae_tile_overlap", number(0, 1)),
    _valued("--clip-skip", "picture", "clip_skip", whole(-1)),
    _valued("--strength", "picture", "strength", number(0, 1)),
    _valued("--control-strength", "picture", "control_strength", number(0)),
    _valued("--guidance", "sampling", "distilled_guidance", number(0)),
    _valued("--img-cfg-scale", "sampling", "img_cfg_scale", number(0)),
    _valued("--eta", "sampling", "eta", number(0)),
    _valued("--timestep-shift", "sampling", "shifted_timestep", whole(0)),
    _valued("--slg-scale", "sampling", "slg_scale", number(0)),
    _valued("--skip-layer-start", "sampling", "slg_layer_start", number(0, 1)),
    _valued("--skip-layer-end", "sampling", "slg_layer_end", number(0, 1)),
    _valued(
        "--scheduler",
        "sampling",
        "scheduler",
        choice({name: Member("Scheduler", name.upper()) for name in _SCHEDULERS}),
    ),
    _valued(_LORA_FOLDER, "host", "lora_dir", directory),
    # On a CPU the weights are in the machine's memory anyway.
    _bare("--offload-to-cpu", "nothing"),
    _bare("--clip-on-cpu", "nothing"),
    _bare("--vae-on-cpu", "nothing"),
    _bare("--control-net-cpu", "nothing"),
)

#: What a user may not say to any sd-server, because the daemon says it, or could not reach the engine afterwards, or
#: others could.
RESERVED = frozenset(
    [
        "-m",
        "--model",
        "--diffusion-model",
        "--llm",
        "--qwen2vl",
        "--vae",
        "-v",
        "--verbose",
        "-l",
        "--listen-ip",
        "--listen-port",
        "--serve-html-path",
    ]
)

#: Flags for which there are options.
_OPTIONS = {
    "--steps": "steps",
    "--cfg-scale": "cfg_scale",
    "-W": "width",
    "--width": "width",
    "-H": "height",
    "--height": "height",
    "--sampling-method": "sampling_method",
    "--flow-shift": "flow_shift",
}

_KNOWN = {name: flag for flag in TAKEN for name in flag.names if name not in RESERVED}


class Changes(NamedTuple):
    """What arguments change, as JSON can carry it: attributes and their values by place."""

    context: dict[str, Any]
    picture: dict[str, Any]
    sampling: dict[str, Any]
    host: dict[str, Any]


def split(text: str) -> list[str]:
    """The words of the option, as `engines.arguments.words_of` reads them; `~` is the home of who runs the daemon.

    Raises:
        InvalidArgument: a quotation without an end.
    """
    try:
        return [str(Path(word).expanduser()) if word.startswith("~/") else word for word in arguments.words_of(text)]
    except ValueError as error:
        raise _invalid(str(error)) from None


def refuse_reserved(words: Sequence[str]) -> None:
    """As `engines.arguments.refuse_reserved`."""
    arguments.refuse_reserved(words, RESERVED, _invalid)


def parse(words: Sequence[str]) -> Changes:
    """What the words change in the bundled engine.

    Raises:
        InvalidArgument: a flag that is not known, or a value that it cannot have.
    """
    made = Changes({}, {}, {}, {})
    rest = list(reversed(words))
    while rest:
        word = rest.pop()
        flag = _KNOWN.get(word)
        if flag is None:
            raise _unknown(word)
        value = flag.value
        if flag.read is not None:
            if not rest or rest[-1] in _KNOWN or rest[-1].startswith("--"):
                raise _invalid(f"'{word}' needs a value.")
            given = rest.pop()
            try:
                value = flag.read(given)
            except ValueError as error:
                raise _invalid(f"'{word}' {error}, not {given!r}.") from None
        if flag.place != "nothing":
            getattr(made, flag.place)[flag.attribute] = value
    return made


def lora_folder(words: Sequence[str]) -> str | None:
    """The folder that the words name for LoRA files."""
    named = [after for before, after in pairwise(words) if before == _LORA_FOLDER]
    return named[-1] if named else None


def _unknown(word: str) -> InvalidArgument:
    if not word.startswith("-"):
        return _invalid(f"'{word}' belongs to no flag.")
    if word in _OPTIONS:
        return _invalid(f"'{word}' is the option '{_OPTIONS[word]}' here.")
    close = difflib.get_close_matches(word, _KNOWN, n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    return _invalid(
        f"'{word}' is not taken by the bundled engine; an sd-server may take it (sd-cpp_backend: system).{hint}"
    )


def _invalid(reason: str) -> InvalidArgument:
    return InvalidArgument(f"Invalid custom sd-server arguments:\n{reason}", param=OPTION)
