"""llama-server programs other than the one on PATH: fetched ones, and those in folders of the user's."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from lemonade.engines.engine import Backend, Build
from lemonade.engines.llamacpp import builds
from lemonade.engines.programs import Installed, Programs, program_in
from lemonade.errors import UnsupportedOperation
from lemonade.settings import Settings
from lemonade.system.hardware import Hardware

PROGRAM = "llama-server"
RECIPE = "llamacpp"


class Native:
    """The backends for which there are builds.

    Args:
        programs: the programs that were fetched; None where nothing can be.
    """

    def __init__(self, settings: Settings, programs: Programs | None, hardware: Hardware) -> None:
        self._settings = settings
        self._programs = programs
        self._hardware = hardware

    def is_wanted(self, name: str) -> bool:
        """Whether a setting asks for another program than what is bundled, or the pinned build."""
        return builds.wanted(self._settings, name) != builds.Wanted()

    def is_users_own(self, name: str) -> bool:
        """Whether a setting names a folder."""
        return builds.wanted(self._settings, name).folder is not None

    def build(self, name: str, arch: str = "") -> Build:
        """What would be fetched. Raises InvalidArgument and UnsupportedOperation as `builds.find`."""
        return builds.find(self._hardware, name, builds.wanted(self._settings, name), PROGRAM, arch=arch)

    def program(self, name: str) -> Path | None:
        """The program that serves a backend; None when there is none, or what is bundled serves it."""
        want = builds.wanted(self._settings, name) if name in builds.BACKENDS else None
        if want is None:
            return None
        if want.folder is not None:
            return program_in(want.folder, PROGRAM)
        if name in ("cpu", "metal") and want == builds.Wanted():
            return None
        found = self._installed(name)
        return program_in(found.folder, PROGRAM) if found else None

    def env(self, name: str) -> dict[str, str]:
        """What the program needs in its environment."""
        program = self.program(name)
        if program is None or sys.platform != "linux":
            return {}
        # The CUDA runtime comes in an archive of its own, and lies beside what wants it.
        before = os.environ.get("LD_LIBRARY_PATH")
        return {"LD_LIBRARY_PATH": f"{program.parent}{os.pathsep}{before}" if before else str(program.parent)}

    def backend(self, name: str) -> Backend:
        """The backend with its state."""
        want = builds.wanted(self._settings, name)
        devices = (builds.DEVICES[name],)
        if want.folder is not None:
            is_there = program_in(want.folder, PROGRAM) is not None
            message = "" if is_there else f"llamacpp.{name}_bin names {want.folder}, in which there is no {PROGRAM}."
            return Backend(
                name=name, devices=devices, state="installed" if is_there else "unsupported", message=message
            )
        tag = want.tag or builds.TAG
        action = f"lemonade backends install {RECIPE}:{name}"
        found = self._installed(name)
        if found is not None and program_in(found.folder, PROGRAM):
            reason = _outdated(found.version, want)
            return Backend(
                name=name,
                devices=devices,
                state="update_required" if reason else "installed",
                message=reason,
                version=found.version,
                action=action if reason else "",
                is_fetched=True,
            )
        reason = self._obstacle(name)
        if reason:
            return Backend(name=name, devices=devices, state="unsupported", message=reason, version=tag)
        remark = builds.remark(self._hardware, name)
        message = f"The build {tag} of llama.cpp is not installed. {remark}".strip()
        return Backend(name=name, devices=devices, state="installable", message=message, version=tag, action=action)

    def _installed(self, name: str) -> Installed | None:
        return self._programs.find(RECIPE, name) if self._programs is not None else None

    def _obstacle(self, name: str) -> str:
        """Why the build cannot be installed, or would not run."""
        try:
            self.build(name)
        except UnsupportedOperation as error:
            return error.message
        if reason := builds.obstacle(self._hardware, name):
            return reason
        if self._programs is None or self._settings["no_fetch_executables"]:
            return (
                f"The setting no_fetch_executables forbids fetching it. Put a {PROGRAM} built for {name} on PATH, and "
                "use the backend `system`."
            )
        return ""


def _outdated(version: str, want: builds.Wanted) -> str:
    """Why the installed build is not the one that is wanted, or nothing."""
    if want.tag == "latest":
        # Which one is the newest only the network knows, and it is not asked for a state.
        is_older = _number(version) < _number(builds.TAG)
        return f"{version} is older than {builds.TAG}, which this version of Lemonade was made for." if is_older else ""
    if want.tag and want.tag != version:
        return f"{version} is installed, and the settings ask for {want.tag}."
    if not want.tag and version != builds.TAG:
        return f"{version} is installed, and this version of Lemonade was made for {builds.TAG}."
    return ""


def _number(tag: str) -> int:
    match = re.fullmatch(r"b(\d+)", tag)
    return int(match[1]) if match else sys.maxsize
