"""Programs of stable-diffusion.cpp: on PATH, and in the folders that settings name."""

from __future__ import annotations

from pathlib import Path

from lemonade.engines.backends import find_program
from lemonade.engines.engine import Backend
from lemonade.engines.programs import program_in
from lemonade.errors import ModelLoadError
from lemonade.settings import Settings

SERVER = "sd-server"
#: The program that enlarges pictures.
CLI = "sd-cli"
#: The backend whose programs are on PATH.
SYSTEM = "system"
#: Backends for programs of the user's own, the preferred one first.
GPUS = ("cuda", "rocm", "vulkan")

#: What a backend's sd-server is told before the user's arguments. Source: the original.
EXTRA = {"vulkan": ("--vae-tiling", "--diffusion-fa")}


def folder(settings: Settings, backend: str) -> Path | None:
    """The folder that the setting `sdcpp.BACKEND_bin` names. Tags of releases name none, as no builds are fetched."""
    key = f"sdcpp.{backend}_bin"
    said = Path(str(settings[key])) if key in settings else None
    return said if said is not None and said.is_absolute() else None


def state(settings: Settings, backend: str) -> Backend:
    """A backend that is served by a program, with its state."""
    message = ""
    if backend == SYSTEM:
        devices: tuple[str, ...] = ("gpu", "cpu")
        if find_program(SERVER) is None:
            message = f"There is no {SERVER} on PATH."
    else:
        devices = ("cpu",) if backend == "cpu" else ("gpu",)
        named = folder(settings, backend)
        if named is None:
            message = (
                f"It needs an {SERVER} built for {backend}, which is not fetched here: set sdcpp.{backend}_bin to the "
                f"folder that holds yours, or put it on PATH and use the backend `{SYSTEM}`."
            )
        elif program_in(named, SERVER) is None:
            message = f"sdcpp.{backend}_bin names {named}, in which there is no {SERVER}."
    return Backend(name=backend, devices=devices, state="unsupported" if message else "installed", message=message)


def program(settings: Settings, backend: str, name: str) -> Path:
    """A program of a backend.

    Raises:
        ModelLoadError: it is not there.
    """
    named = folder(settings, backend)
    if named is None:
        on_path = find_program(name)
        if on_path is None:
            raise ModelLoadError(f"there is no {name} on PATH")
        return Path(on_path)
    found = program_in(named, name)
    if found is None:
        raise ModelLoadError(f"there is no {name} in {named}, which sdcpp.{backend}_bin names")
    return found
