"""The recipe `moonshine`: speech to text by Moonshine's library, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lemonade.engines.arguments import Flag, parse
from lemonade.engines.backends import installed_version, physical_cores
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.words import names_in, number, text, whole
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import ModelLoadError, ModelLoadRefused
from lemonade.model import Model

LIBRARY = "moonshine-voice"
HOST = "lemonade.engines.moonshine.host"

#: The library's number for each architecture. Source: its `ModelArch`.
TINY, BASE, TINY_STREAMING, BASE_STREAMING, SMALL_STREAMING, MEDIUM_STREAMING = range(6)
#: What the folders of models that are no streaming ones hold, and the largest encoder of the smaller one, in bytes.
_ENCODER, _TINY_ENCODER = "encoder_model.ort", 15_000_000
#: Cores up to which one thread is better than all.
FEW_CORES = 2
#: Present in models that know when each word was said.
_ATTENTIVE = ("decoder_with_attention.ort", "decoder_kv_with_attention.ort")

#: What a flag sets: one of the library's own options, or `single_thread` and `language`.
FLAGS: Final = (
    Flag(("--single-thread",), "single_thread"),
    Flag(("--all-threads",), "single_thread", None, False),
    Flag(("-l", "--language"), "language", text),
    Flag(("--vad-threshold",), "vad_threshold", number(0, 1)),
    Flag(("--vad-window-duration",), "vad_window_duration", number(0, above=True)),
    Flag(("--vad-hop-size",), "vad_hop_size", whole(1)),
    Flag(("--vad-look-behind-sample-count",), "vad_look_behind_sample_count", whole(0)),
    Flag(("--vad-max-segment-duration",), "vad_max_segment_duration", number(0, above=True)),
    Flag(("--max-tokens-per-second",), "max_tokens_per_second", number(0, above=True)),
    Flag(("--context",), "context", text),
    Flag(("--keyterm-boost",), "keyterm_boost", number()),
)
RESERVED: Final = dict.fromkeys(names_in("--model-path --model-arch --host --port --tcp-port"), "Lemonade manages it")


class Moonshine:
    """Moonshine on the processor."""

    recipe = "moonshine"

    def backends(self) -> list[Backend]:
        version = installed_version(LIBRARY)
        return [
            Backend(
                name="cpu",
                devices=("cpu",),
                state="installed" if version else "installable",
                message="" if version else f"The package {LIBRARY} is missing: `pip install {LIBRARY}`.",
                version=version,
            )
        ]

    def device(self, options: Mapping[str, Any]) -> str:
        return "cpu"

    def check(self, options: Mapping[str, Any]) -> None:
        """As `engine.Checked` has it."""
        _said(options)

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        (backend,) = self.backends()
        if not backend.can_run:
            raise ModelLoadError(f"moonshine cannot run here. {backend.message}")
        said = _said(options)
        if "main" not in files:
            raise ModelLoadError("no files of the model are there")
        folder = files["main"] if files["main"].is_dir() else files["main"].parent
        # Its threads wait by spinning and their number cannot be chosen: it is one, or as many as there are cores. With
        # two of them nothing would be left for anybody else, and whoever else works makes them slower than one.
        alone = said.pop("single_thread", physical_cores() <= FEW_CORES)
        config = {
            "model": str(folder),
            "arch": _architecture(model, folder),
            "language": said.pop("language", "en"),
            "words": any((folder / name).is_file() for name in _ATTENTIVE),
            "options": {name: str(value) for name, value in said.items()},
        }
        return worker_launch(
            name="moonshine",
            module=HOST,
            config=config,
            port=port,
            env={"MOONSHINE_ORT_SINGLE_THREAD": "1"} if alone else {},
        )


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments set. Raises InvalidArgument."""
    return parse(str(options.get("moonshine_args") or ""), FLAGS, option="moonshine_args", reserved=RESERVED)


def _architecture(model: Model, folder: Path) -> int:
    """The model's own word for it, else what the files in its folder tell.

    Raises:
        ModelLoadRefused: neither tells.
    """
    said = model.extras.get("moonshine_arch")
    if isinstance(said, int) and TINY <= said <= MEDIUM_STREAMING:
        return said
    encoder = folder / _ENCODER
    if said is None and encoder.is_file():
        return TINY if encoder.stat().st_size < _TINY_ENCODER else BASE
    raise ModelLoadRefused(
        f"Moonshine has to be told what kind of model this is: register '{model.name}' with 'moonshine_arch', "
        "which is 0 for tiny, 1 for base, 2 for tiny streaming, 3 for base streaming, 4 for small streaming, "
        "5 for medium streaming."
    )
