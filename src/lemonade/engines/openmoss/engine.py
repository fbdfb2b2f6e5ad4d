"""The recipe `openmoss`: speech in any voice by the MOSS models, computed by a moss-tts-server of the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lemonade.engines.choice import choose
from lemonade.engines.engine import Backend, Launch
from lemonade.engines.openmoss.protocol import PROGRAM
from lemonade.engines.programs import loader_path, program_in
from lemonade.errors import ModelLoadError
from lemonade.model import Model
from lemonade.settings import Settings

#: In order of preference.
BACKENDS = ("cuda", "rocm", "vulkan")


class OpenMoss:
    """A program in the folder that `openmoss.cuda_bin`, `openmoss.rocm_bin` or `openmoss.vulkan_bin` names."""

    recipe = "openmoss"

    def __init__(self, settings: Settings) -> None:
        self._settings = settings

    def backends(self) -> list[Backend]:
        return [self._state(name) for name in BACKENDS]

    def device(self, options: Mapping[str, Any]) -> str:
        return self._backend(options).devices[0]

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        backend = self._backend(options)
        program = self._program(backend.name)
        if program is None:
            raise ModelLoadError(f"there is no {PROGRAM}. {backend.message}")
        if "main" not in files:
            raise ModelLoadError("no file of the model is there")
        argv = (str(program), "--model", str(files["main"]), "--host", "127.0.0.1", "--port", str(port), "--no-webui")
        return Launch(
            name=PROGRAM,
            argv=argv,
            port=port,
            env=loader_path(program.parent),
            backend=backend.name,
            device=backend.devices[0],
        )

    def _state(self, name: str) -> Backend:
        said = self._folder(name)
        program = self._program(name)
        if program is not None:
            return Backend(name=name, devices=("gpu",), state="installed")
        message = (
            f"openmoss.{name}_bin names {said}, in which there is no {PROGRAM}."
            if said is not None
            else (
                f"OpenMOSS models need a {PROGRAM}, which is not fetched here: set openmoss.vulkan_bin (or cuda_bin, "
                "rocm_bin) to the folder that holds yours."
            )
        )
        return Backend(name=name, devices=("gpu",), state="unsupported", message=message)

    def _folder(self, name: str) -> Path | None:
        """The folder that a setting names; tags of releases are none."""
        said = str(self._settings[f"openmoss.{name}_bin"])
        return Path(said) if Path(said).is_absolute() else None

    def _program(self, name: str) -> Path | None:
        folder = self._folder(name)
        return program_in(folder, PROGRAM) if folder is not None else None

    def _backend(self, options: Mapping[str, Any]) -> Backend:
        setting = self._settings["openmoss.backend"]
        return choose(self.backends(), options, recipe="openmoss", section="openmoss", setting=setting)
