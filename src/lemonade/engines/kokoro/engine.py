"""The recipe `kokoro`: speech from text by the Kokoro network, in a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemonade.engines.backends import installed_version, physical_cores
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.kokoro.layout import find
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import ModelLoadError
from lemonade.model import Model

#: The packages that the process loads, the network's own first.
LIBRARIES = ("onnxruntime", "espeakng-loader", "av", "pypinyin")
HOST = "lemonade.engines.kokoro.host"
#: Requests that are answered at once. What is heard first is computed first, and a listener needs less than all.
SLOTS = 8


class Kokoro:
    """Kokoro on the processor (`cpu`)."""

    recipe = "kokoro"

    def backends(self) -> list[Backend]:
        missing = [name for name in LIBRARIES if not installed_version(name)]
        return [
            Backend(
                name="cpu",
                devices=("cpu",),
                state="installable" if missing else "installed",
                message=f"Packages are missing: `pip install {' '.join(missing)}`." if missing else "",
                version=installed_version(LIBRARIES[0]),
            )
        ]

    def device(self, options: Mapping[str, Any]) -> str:
        return "cpu"

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        (backend,) = self.backends()
        if not backend.can_run:
            raise ModelLoadError(f"kokoro cannot run here. {backend.message}")
        if "main" not in files:
            raise ModelLoadError("no file of the model is there")
        find(files["main"])
        return worker_launch(
            name="kokoro",
            module=HOST,
            # A piece of a text is computed by one thread, and as many pieces at once as there are cores: the network
            # has many small steps, between which several threads would wait for each other.
            config={"main": str(files["main"]), "threads": 1, "workers": physical_cores()},
            port=port,
            slots=SLOTS,
        )
