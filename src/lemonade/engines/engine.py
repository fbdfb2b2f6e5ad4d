"""What an engine is to the floors above: something that says where it can run and how it is started.

A recipe is one folder with one class that follows `Engine`, and one line in `table.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from lemonade.model import Model

#: As the wire names them: `installed` runs now, `update_required` runs too and is not the version that is wanted,
#: `installable` runs after one command, `unsupported` does not run on this machine.
BackendState = Literal["installed", "update_required", "installable", "unsupported"]


#: The exit status of an engine that had to end to give up work for a client that left. It is no crash.
ABANDONED = 77

#: How a line of an engine of our own begins that tells how far its work is. It is in the log for everybody, while all
#: other lines of engines are there for those who look for a fault.
PROGRESS = "progress: "


class Backend(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run a recipe on this machine.

    Attributes:
        name: `cpu`, `system`, `vulkan`, …, as the option `<recipe>_backend` takes it.
        devices: the kinds of device that it computes on (`cpu`, `gpu`, `npu`), the preferred one first.
        message: why it is not `installed`, or what would install it; empty when there is nothing to say.
        version: of the engine, empty when unknown; when it is not installed, the one that would be.
        action: the command that installs or updates it, empty when there is nothing to do.
        is_fetched: whether its program was fetched by the daemon, which can remove it again.
    """

    name: str
    devices: tuple[str, ...]
    state: BackendState
    message: str = ""
    version: str = ""
    action: str = ""
    is_fetched: bool = False

    @property
    def can_run(self) -> bool:
        return self.state in ("installed", "update_required")


class Build(msgspec.Struct, frozen=True, kw_only=True):
    """A program that can be fetched from the releases of a project.

    Attributes:
        repository: `OWNER/NAME`.
        tag: of the release, or `latest`.
        files: the names of the archives to unpack into one folder, with `{tag}` and with `*` for versions; see
            `hub.releases.choose`.
        hashes: file name to sha256, as far as they were written down.
        program: the file in the archives that is run, without `.exe`.
    """

    repository: str
    tag: str
    files: tuple[str, ...]
    hashes: dict[str, str]
    program: str


class Wheels(msgspec.Struct, frozen=True, kw_only=True):
    """A program that is Python packages, fetched from the index that pip is set up for into a folder of their own.

    Attributes:
        packages: `NAME==VERSION` each, of which wheels alone are taken, without what they depend on.
        tag: what the folder is called by when it is whole.
    """

    packages: tuple[str, ...]
    tag: str


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """A child process that is about to exist. It will serve HTTP on 127.0.0.1.

    Attributes:
        name: the engine's name in logs and errors (`llama-server`).
        argv: program and arguments, no shell.
        env: variables on top of the daemon's own environment.
        headers: what every request to the child carries, beside its own headers.
        port: TCP port on loopback that the child is told to listen on.
        health_path: answers 2xx as soon as the child takes requests.
        backend: name of the `Backend` chosen.
        device: kind of device it computes on, as `/health` shows it.
        slots: how many requests it answers at once; more wait inside it.
        context: tokens that one request may have, None when the options' `ctx_size` says it.
    """

    name: str
    argv: tuple[str, ...]
    port: int
    env: dict[str, str] = {}
    headers: dict[str, str] = {}
    health_path: str = "/health"
    backend: str = ""
    device: str = "cpu"
    slots: int = 1
    context: int | None = None


@runtime_checkable
class Fetched(Protocol):
    """What an engine also has when programs of its backends can be fetched."""

    def build(self, backend: str, arch: str = "") -> Build | Wheels | None:
        """What would be fetched for a backend, whether or not it can run here; None when nothing is to be fetched
        for it, as it comes with a package or is the user's own.

        Args:
            arch: of another machine (`x86_64`, `arm64`); this one's when empty.

        Raises:
            InvalidArgument: there is no such backend.
            UnsupportedOperation: nobody builds it for this system.
        """
        ...


@runtime_checkable
class Checked(Protocol):
    """What an engine also has when it can tell the arguments that it takes from those that it does not."""

    def check(self, options: Mapping[str, Any]) -> None:
        """Looks at the options with which any model would be started, arguments and backend; all others may be missing.

        Raises:
            InvalidArgument: nothing can be started with them.
            ModelLoadError: the backend cannot run here, so nobody knows.
        """
        ...


class Engine(Protocol):
    """How the models of one recipe run."""

    recipe: str

    def backends(self) -> list[Backend]:
        """All backends in order of preference, each with its state on this machine. The first one that can run
        is what `auto` means. Quick: looks at this machine only, never at the network."""
        ...

    def device(self, options: Mapping[str, Any]) -> str:
        """The kind of device that a process started with `options` would compute on. Raises as `plan` does."""
        ...

    def plan(
        self, model: Model, files: Mapping[str, Path], options: Mapping[str, Any], *, alias: str, port: int
    ) -> Launch:
        """The child process that serves `model`. Starts nothing.

        Args:
            files: role (`main`, `mmproj`, `draft`, …) to what is on the disk.
            options: every option of the recipe, resolved; `ctx_size` in tokens.
            alias: the name by which the engine calls the model in its answers.
            port: TCP port on loopback.

        Raises:
            ModelLoadRefused: the model can never be loaded as asked.
            ModelLoadError: a backend or a file is not there.
            InvalidArgument: an option cannot hold.
        """
        ...
