"""The recipe `whispercpp`: speech to text by whisper.cpp, as a library in a process of its own."""

from __future__ import annotations

import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemonade.engines.arguments import parse
from lemonade.engines.backends import installed_version, physical_cores
from lemonade.engines.choice import choose
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.whispercpp.flags import FLAGS, RESERVED
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import InvalidArgument, ModelLoadError
from lemonade.model import Model
from lemonade.settings import Settings

LIBRARY = "pywhispercpp"
HOST = "lemonade.engines.whispercpp.host"


class WhisperCpp:
    """whisper.cpp on the processor (`cpu`), and on Apple's chips with their graphics (`metal`)."""

    recipe = "whispercpp"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def backends(self) -> list[Backend]:
        version = installed_version(LIBRARY)
        apple = sys.platform == "darwin" and platform.machine() == "arm64"
        known = [("metal", "gpu"), ("cpu", "cpu")] if apple else [("cpu", "cpu")]
        return [
            Backend(
                name=name,
                devices=(device,),
                state="installed" if version else "installable",
                message="" if version else f"The package {LIBRARY} is missing: `pip install {LIBRARY}`.",
                version=version,
            )
            for name, device in known
        ]

    def device(self, options: Mapping[str, Any]) -> str:
        return self._backend(options).devices[0]

    def check(self, options: Mapping[str, Any]) -> None:
        """As `engine.Checked` has it."""
        self._backend(options)
        _said(options)

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        backend = self._backend(options)
        said = _said(options)
        if "main" not in files:
            raise ModelLoadError("no file of the model is there")
        config: dict[str, Any] = {
            "model": str(files["main"]),
            "beams": said.pop("beams", 0),
            "best_of": said.pop("best_of", None),
            "context": {"use_gpu": backend.name == "metal", **_part(said, "context.")},
            "vad": _part(said, "vad."),
        }
        config["params"] = {"n_threads": physical_cores(), **{k: v for k, v in said.items() if "." not in k}}
        return worker_launch(
            name="whisper.cpp",
            module=HOST,
            config=config,
            port=port,
            backend=backend.name,
            device=backend.devices[0],
        )

    def _backend(self, options: Mapping[str, Any]) -> Backend:
        setting = self._settings["whispercpp.backend"]
        return choose(self.backends(), options, recipe="whispercpp", section="whispercpp", setting=setting)


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments set. Raises InvalidArgument."""
    said = parse(str(options.get("whispercpp_args") or ""), FLAGS, option="whispercpp_args", reserved=RESERVED)
    if said.get("vad") and "vad_model_path" not in said:
        raise InvalidArgument("'whispercpp_args': '--vad' needs a '--vad-model'.", param="whispercpp_args")
    return said


def _part(said: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    return {name.removeprefix(prefix): value for name, value in said.items() if name.startswith(prefix)}
