"""Released builds of llama.cpp: which there are for which machine, and which of them is wanted here.

The tag and the hashes stand here so that what a new installation runs does not change behind anybody's back. To move
on, take a newer tag, its files and the sha256 that the release tells of each, all at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from pathlib import Path

import msgspec

from lemonade.engines.engine import Build
from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.settings import Settings
from lemonade.settings_table import BUILD_TAG
from lemonade.system.hardware import ARCHITECTURES, Hardware

REPOSITORY = "ggml-org/llama.cpp"
TAG = "b11118"

_CUDART = "cudart-llama-bin-win-cuda"

#: System, architecture and backend to the archives that make it up. The CUDA runtime is packed separately.
FILES: Mapping[tuple[str, str, str], tuple[str, ...]] = {
    ("linux", "x86_64", "cpu"): ("llama-{tag}-bin-ubuntu-x64.tar.gz",),
    ("linux", "arm64", "cpu"): ("llama-{tag}-bin-ubuntu-arm64.tar.gz",),
    ("linux", "x86_64", "vulkan"): ("llama-{tag}-bin-ubuntu-vulkan-x64.tar.gz",),
    ("linux", "arm64", "vulkan"): ("llama-{tag}-bin-ubuntu-vulkan-arm64.tar.gz",),
    ("linux", "x86_64", "rocm"): ("llama-{tag}-bin-ubuntu-rocm-*-x64.tar.gz",),
    ("linux", "x86_64", "cuda12"): (
        "llama-{tag}-bin-ubuntu-cuda-12*-x64.tar.gz",
        "cudart-llama-{tag}-bin-ubuntu-cuda-12*-x64.tar.gz",
    ),
    ("linux", "x86_64", "cuda13"): (
        "llama-{tag}-bin-ubuntu-cuda-13*-x64.tar.gz",
        "cudart-llama-{tag}-bin-ubuntu-cuda-13*-x64.tar.gz",
    ),
    ("linux", "arm64", "cuda13"): (
        "llama-{tag}-bin-ubuntu-cuda-13*-arm64.tar.gz",
        "cudart-llama-{tag}-bin-ubuntu-cuda-13*-arm64.tar.gz",
    ),
    ("windows", "x86_64", "cpu"): ("llama-{tag}-bin-win-cpu-x64.zip",),
    ("windows", "arm64", "cpu"): ("llama-{tag}-bin-win-cpu-arm64.zip",),
    ("windows", "x86_64", "vulkan"): ("llama-{tag}-bin-win-vulkan-x64.zip",),
    ("windows", "x86_64", "rocm"): ("llama-{tag}-bin-win-rocm-*-x64.zip",),
    ("windows", "x86_64", "cuda12"): ("llama-{tag}-bin-win-cuda-12*-x64.zip", f"{_CUDART}-12*-x64.zip"),
    ("windows", "x86_64", "cuda13"): ("llama-{tag}-bin-win-cuda-13*-x64.zip", f"{_CUDART}-13*-x64.zip"),
    ("windows", "arm64", "cuda13"): ("llama-{tag}-bin-win-cuda-13*-arm64.zip", f"{_CUDART}-13*-arm64.zip"),
    ("macos", "arm64", "metal"): ("llama-{tag}-bin-macos-arm64.tar.gz",),
    ("macos", "x86_64", "cpu"): ("llama-{tag}-bin-macos-x64.tar.gz",),
}

#: sha256 of the files of `TAG`, as the release tells them.
HASHES = {
    "cudart-llama-b11118-bin-ubuntu-cuda-12.8-x64.tar.gz": (
        "5b8c10e8cbefd2983ab30275d19116416247de8d7f333ce6359f01989062eaa1"
    ),
    "cudart-llama-b11118-bin-ubuntu-cuda-13.4-arm64.tar.gz": (
        "1afa94bd4fd2d654e4d4550821d83eaf50b5d5ad9bf79535a07b063b2b0b0c99"
    ),
    "cudart-llama-b11118-bin-ubuntu-cuda-13.4-x64.tar.gz": (
        "075fdc0fba066151259906d5d9c93922ba8754be1c3cd3087cde2f01821746d9"
    ),
    f"{_CUDART}-12.4-x64.zip": "8c79a9b226de4b3cacfd1f83d24f962d0773be79f1e7b75c6af4ded7e32ae1d6",
    f"{_CUDART}-13.4-arm64.zip": "642dcde8805b3e3165ca710a5443b3b4044b27d96bd3ee3132473988c9bcb774",
    f"{_CUDART}-13.4-x64.zip": "738f8c251ac22b70c3ae6f83a10cf222725df0395246a2cf58f32bdb85fbe668",
    "llama-b11118-bin-macos-arm64.tar.gz": "ca0ea3156257b21eeb11d0628f2baecd3928013a3d060e2e192042276e5b1f35",
    "llama-b11118-bin-macos-x64.tar.gz": "e80340da2dadb736405261d5203b747ee7101bed8bfba5ba99946e77dab91844",
    "llama-b11118-bin-ubuntu-arm64.tar.gz": "8ff18aee896c11c041c1f9c04954f530fffd991128f6c73e75b85517a29620cd",
    "llama-b11118-bin-ubuntu-cuda-12.8-x64.tar.gz": "31a47d8785e62ca00b36437ab108dafedeecf85db8d328e9bcc99de531cba285",
    "llama-b11118-bin-ubuntu-cuda-13.4-arm64.tar.gz": (
        "7487c7de15330666da813ca6f51fb68b39891e93fe8f606fde5cbcf973f892b6"
    ),
    "llama-b11118-bin-ubuntu-cuda-13.4-x64.tar.gz": "a8fc7d01500c8de5dc7b4e1dad70408446ea7f3ee854df091892d640023ea7ac",
    "llama-b11118-bin-ubuntu-rocm-10.0-x64.tar.gz": "38096210f4df755bb9fc885c2f1f46440489c0993b2c6e8932ba40d41c13f58f",
    "llama-b11118-bin-ubuntu-vulkan-arm64.tar.gz": "8487e456407e6e32760aa6bdfc99f3c8d81bd2d1b9702b180ee71ebe81ad774b",
    "llama-b11118-bin-ubuntu-vulkan-x64.tar.gz": "145fdde715c1e9f4808f1fe0749944149c91713a9d681fd00818f87b6cbdaccf",
    "llama-b11118-bin-ubuntu-x64.tar.gz": "20f3067d5bc7e48c2be49ada32497a08dc75c730d90fce852d1d7cf12fe36995",
    "llama-b11118-bin-win-cpu-arm64.zip": "c6efe37936466e568745843b9860f221798da001026d67be9ec2296193583e70",
    "llama-b11118-bin-win-cpu-x64.zip": "7f8431c69471cf8991f43da4af6e80f3a66778a63055004a9211ebba00d68084",
    "llama-b11118-bin-win-cuda-12.4-x64.zip": "09d262cb22c26d276a8c2cd38e0ddb405404c4c60e355c2ed96cda8e77538c59",
    "llama-b11118-bin-win-cuda-13.4-arm64.zip": "ccdb4bd815e12717ccd3d31b5805732a540ef2beafb44a3c2efb818b445450b8",
    "llama-b11118-bin-win-cuda-13.4-x64.zip": "5825a03f9360e5aaf50817f32c408cfbb33b55f451c78c513b637678a541eb31",
    "llama-b11118-bin-win-rocm-10.0-x64.zip": "9bb51f9fa4ae28064ecacfe1d081481133ca273f11eda3b7142d73d5ffa2ec67",
    "llama-b11118-bin-win-vulkan-x64.zip": "5cb80f42a602965f7491cac4977329ff47c6aa4f850272406708854b5d290547",
}

#: Backends for which there are builds, the preferred one first.
BACKENDS = ("cuda", "rocm", "vulkan", "metal", "cpu")
DEVICES = {"cuda": "gpu", "rocm": "gpu", "vulkan": "gpu", "metal": "gpu", "cpu": "cpu"}

#: The first NVIDIA driver that runs what was built with CUDA 13. Source: NVIDIA's table of compatible drivers.
CUDA_13_DRIVER = 580
NVIDIA_VERSION = Path("/proc/driver/nvidia/version")


class Wanted(msgspec.Struct, frozen=True):
    """What a `*_bin` setting asks for: a folder, or a tag (`latest` also), or neither for what is built in."""

    tag: str = ""
    sha256: str = ""
    folder: Path | None = None

    @classmethod
    def read(cls, value: str) -> Wanted:
        if value in ("", "builtin"):
            return cls()
        if match := BUILD_TAG.match(value):
            return cls(tag=match["tag"], sha256=(match["sha256"] or "").lower())
        return cls(folder=Path(value))


def wanted(settings: Settings, backend: str) -> Wanted:
    """What the setting `llamacpp.BACKEND_bin` asks for."""
    return Wanted.read(str(settings[f"llamacpp.{backend}_bin"]))


def find(hardware: Hardware, backend: str, want: Wanted, program: str, *, arch: str = "") -> Build:
    """The build to fetch.

    Args:
        arch: of another machine; this one's when empty.

    Raises:
        InvalidArgument: an architecture that nobody has.
        UnsupportedOperation: there is no build of the backend for this system.
    """
    arch = ARCHITECTURES.get(arch, arch) or hardware.arch
    if not re.fullmatch(r"[a-z0-9_]{1,16}", arch):
        raise InvalidArgument(f"'arch' must be x86_64 or arm64, not {arch[:40]!r}.", param="arch")
    files = None
    for kind in _kinds(backend):
        files = files or FILES.get((hardware.os, arch, kind))
    if files is None:
        known = sorted({f"{system} {cpu}" for system, cpu, kind in FILES if kind.rstrip("123") == backend})
        raise UnsupportedOperation(
            f"There is no build of llama.cpp for {backend} on {hardware.os} {arch}, only for {', '.join(known)}."
        )
    tag = want.tag or TAG
    hashes = dict(HASHES) if tag == TAG else {}
    if want.sha256:
        # It is that of the main archive. For what lies beside it the release has to vouch.
        hashes = {name: sha256 for name, sha256 in hashes.items() if name.startswith("cudart")}
        hashes[files[0].replace("{tag}", tag)] = want.sha256
    return Build(repository=REPOSITORY, tag=tag, files=files, hashes=hashes, program=program)


def _kinds(backend: str) -> tuple[str, ...]:
    """The builds that serve a backend, the best one for this machine's driver first."""
    if backend != "cuda":
        return (backend,)
    driver = nvidia_driver()
    return ("cuda13", "cuda12") if driver is not None and driver >= CUDA_13_DRIVER else ("cuda12", "cuda13")


def nvidia_driver(path: Path = NVIDIA_VERSION) -> int | None:
    """The major version of the NVIDIA driver that runs, None when that cannot be told."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    match = re.search(r"\b(\d{3})\.\d+", text)
    return int(match[1]) if match else None


def obstacle(hardware: Hardware, backend: str) -> str:
    """Why a build that exists would not run on this machine, or nothing."""
    vendors = {gpu.vendor for gpu in hardware.gpus}
    if backend == "cuda" and "nvidia" not in vendors and nvidia_driver() is None and not _has_dll("nvcuda.dll"):
        return "No NVIDIA GPU was found."
    if backend == "rocm" and "amd" not in vendors and not _has_dll("amdhip64_7.dll"):
        return "No AMD GPU was found."
    return ""


def remark(hardware: Hardware, backend: str) -> str:
    """What a person should know before a build is installed, or nothing."""
    if backend == "rocm":
        return "It needs AMD's ROCm runtime of the version in its name."
    if backend == "vulkan" and hardware.os == "linux" and not hardware.gpus:
        return "No GPU was found, so it would compute on the CPU."
    return ""


def _has_dll(name: str) -> bool:
    """Whether Windows has a driver's library."""
    return sys.platform == "win32" and Path(r"C:\Windows\System32", name).is_file()
