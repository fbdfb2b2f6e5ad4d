"""The recipe `fasterwhisper`: speech to text by faster-whisper, as a library in a process of its own.

The library is large and not everybody's, so it is no dependency: it is fetched when it is wanted, or lies beside the
daemon because its user installed it with pip.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from msgspec.structs import replace

from lemonade.engines.arguments import parse
from lemonade.engines.backends import installed_version, physical_cores
from lemonade.engines.engine import Backend, Launch, Wheels
from lemonade.engines.fasterwhisper.flags import FLAGS, RESERVED
from lemonade.engines.programs import Installed, Programs
from lemonade.engines.worker_launch import worker_launch
from lemonade.errors import ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Settings

RECIPE, BACKEND = "fasterwhisper", "cpu"
LIBRARY = "faster-whisper"
HOST = "lemonade.engines.fasterwhisper.host"

#: What is fetched. All else that they need is a dependency of the daemon's already.
VERSION: Final = "1.2.1"
PACKAGES: Final = (f"{LIBRARY}=={VERSION}", "ctranslate2==4.8.5")
#: The compiled one of them serves one version of Python.
PYTHON: Final = f"cp{sys.version_info.major}{sys.version_info.minor}"
TAG: Final = f"{VERSION}-{PYTHON}"

#: What the folder of a model has to hold; of the last ones, any.
FILES, VOCABULARIES = ("model.bin", "tokenizer.json"), ("vocabulary.json", "vocabulary.txt")


class FasterWhisper:
    """faster-whisper on the processor.

    Args:
        programs: what was fetched; nothing when not given.
    """

    recipe = RECIPE

    def __init__(self, settings: Settings, programs: Programs | None = None) -> None:
        self._settings = settings
        self._programs = programs

    def backends(self) -> list[Backend]:
        known = Backend(name=BACKEND, devices=("cpu",), state="installed", version=installed_version(LIBRARY))
        if known.version:
            return [known]
        fetch = f"lemonade backends install {RECIPE}:{BACKEND}"
        found = self._fetched()
        if found is None:
            forbidden = self._programs is None or self._settings["no_fetch_executables"]
            message = f"The library {LIBRARY} is not installed here."
            action = f"pip install {LIBRARY}" if forbidden else fetch
            return [replace(known, state="installable", version=VERSION, message=message, action=action)]
        version = found.version.removesuffix(f"-{PYTHON}")
        if found.version == TAG:
            return [replace(known, version=version, is_fetched=True)]
        message = f"The version {VERSION} is wanted."
        return [
            replace(known, state="update_required", version=version, message=message, action=fetch, is_fetched=True)
        ]

    def build(self, backend: str, arch: str = "") -> Wheels | None:
        """As `engine.Fetched` has it."""
        return None if installed_version(LIBRARY) else Wheels(packages=PACKAGES, tag=TAG)

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
            raise ModelLoadError(f"{LIBRARY} cannot run here. {backend.message} Install it: {backend.action}")
        said = _said(options)
        if "main" not in files:
            raise ModelLoadError("no files of the model are there")
        folder = files["main"] if files["main"].is_dir() else files["main"].parent
        _check(model, folder)
        config = {
            "model": str(folder),
            "threads": said.pop("threads", physical_cores()),
            # The files hold numbers of 16 bits, for which most processors have no instructions.
            "compute_type": said.pop("compute_type", "int8"),
            "language": said.pop("language", "auto"),
            "options": said,
        }
        env = {"HF_HUB_OFFLINE": "1"}
        if backend.is_fetched and (found := self._fetched()):
            paths = [str(found.folder), *filter(None, [os.environ.get("PYTHONPATH")])]
            env["PYTHONPATH"] = os.pathsep.join(paths)
        return worker_launch(name=LIBRARY, module=HOST, config=config, port=port, env=env, backend=backend.name)

    def _fetched(self) -> Installed | None:
        """What was fetched for this version of Python."""
        found = self._programs.find(RECIPE, BACKEND) if self._programs is not None else None
        return found if found is not None and found.version.endswith(f"-{PYTHON}") else None


def _said(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the arguments set. Raises InvalidArgument."""
    return parse(str(options.get("fasterwhisper_args") or ""), FLAGS, option="fasterwhisper_args", reserved=RESERVED)


def _check(model: Model, folder: Path) -> None:
    """Raises ModelLoadRefused when the folder holds no model of CTranslate2."""
    missing = [name for name in FILES if not (folder / name).is_file()]
    if not any((folder / name).is_file() for name in VOCABULARIES):
        missing.append(VOCABULARIES[0])
    if missing:
        raise ModelLoadRefused(
            f"'{model.name}' is no Whisper model in the format of CTranslate2: there is no {' and no '.join(missing)} "
            f"in {folder.name}.",
            requested=model.name,
        )
