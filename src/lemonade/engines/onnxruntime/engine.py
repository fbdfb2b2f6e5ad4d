"""The recipe `onnxruntime`: text classifiers as ONNX files."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from lemonade.engines.arguments import Flag, parse
from lemonade.engines.backends import installed_version
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.words import names_in, whole
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Settings

#: What the child imports.
LIBRARIES = ("onnxruntime", "tokenizers")
#: What a model's folder has to hold.
FILES = ("model.onnx", "tokenizer.json", "config.json")

FLAGS: Final = (Flag(("-t", "--threads"), "threads", whole(1, 512)),)
RESERVED: Final = dict.fromkeys(names_in("--model-path --host --port"), "Lemonade manages it")


class OnnxRuntime:
    """ONNX Runtime as a library in a Python child; there is the processor alone to run on."""

    recipe = "onnxruntime"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def backends(self) -> list[Backend]:
        missing = [name for name in LIBRARIES if importlib.util.find_spec(name) is None]
        packages = " ".join(missing)
        return [
            Backend(
                name="cpu",
                devices=("cpu",),
                state="installable" if missing else "installed",
                message=f"Packages are missing: `pip install {packages}`." if missing else "",
                version=installed_version("onnxruntime"),
            )
        ]

    def device(self, options: Mapping[str, Any]) -> str:
        return self._backend().devices[0]

    def check(self, options: Mapping[str, Any]) -> None:
        """As `engine.Checked` has it."""
        _said(options)

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        backend = self._backend()
        if "main" not in files:
            raise ModelLoadError("no file of the model is there")
        folder = files["main"]
        missing = [name for name in FILES if not (folder / name).is_file()]
        if missing:
            raise ModelLoadRefused(
                f"'{model.name}' is no text classifier: there is no {' and no '.join(missing)} in {folder.name}.",
                requested=model.name,
            )
        return worker_launch(
            name="ONNX Runtime",
            module="lemonade.engines.onnxruntime.host",
            config={
                "folder": str(folder),
                "threads": _said(options).get("threads") or _cores(),
                "zero_shot": "zero-shot" in model.labels,
            },
            port=port,
            backend=backend.name,
        )

    def _backend(self) -> Backend:
        (backend,) = self.backends()
        if not backend.can_run:
            raise ModelLoadError(f"ONNX Runtime cannot run here. {backend.message}")
        return backend


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments set. Raises InvalidArgument."""
    return parse(str(options.get("onnxruntime_args") or ""), FLAGS, option="onnxruntime_args", reserved=RESERVED)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
