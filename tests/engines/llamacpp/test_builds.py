from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines.engine import Backend
from lemonade.engines.llamacpp import builds
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.engines.programs import Programs
from lemonade.errors import InvalidArgument, ModelLoadError, UnsupportedOperation
from lemonade.hub.releases import choose
from lemonade.model import Model
from lemonade.settings import Layer, Settings
from lemonade.system.hardware import GPU, Hardware

CHAT = Model(name="M", recipe="llamacpp", labels=("chat",))
MACHINE = Hardware(os="linux", arch="x86_64", look_for_gpus=lambda: (GPU("Radeon", "amd"),))


def engine(programs: Programs | None, hardware: Hardware = MACHINE, **settings: Any) -> LlamaCpp:
    values = {key if key in ("no_fetch_executables",) else f"llamacpp.{key}": value for key, value in settings.items()}
    return LlamaCpp(Settings([Layer("test", values)]), programs, hardware)


def state(one: LlamaCpp, name: str) -> Backend:
    return next(backend for backend in one.backends() if backend.name == name)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path / "bin")


def install(programs: Programs, backend: str, version: str = builds.TAG) -> None:
    def fill(folder: Path) -> None:
        (folder / "llama-server").write_text("x")
        (folder / "llama-server").chmod(0o755)

    programs.put("llamacpp", backend, version, "llama-server", fill)


def launch(one: LlamaCpp, options: Mapping[str, Any]) -> Any:
    return one.plan(CHAT, {"main": Path("/m.gguf")}, {"ctx_size": 4096, **options}, alias="M", port=8123)


def test_every_build_of_the_table_has_its_hash() -> None:
    used = set()
    for files in builds.FILES.values():
        names = choose(files, builds.TAG, list(builds.HASHES))
        assert names is not None, files
        used |= set(names)
    assert used == set(builds.HASHES)
    assert all(len(sha256) == 64 and int(sha256, 16) for sha256 in builds.HASHES.values())
    assert len(set(builds.HASHES.values())) == len(builds.HASHES)


def test_before_anything_is_installed(programs: Programs) -> None:
    one = engine(programs)
    assert state(one, "vulkan").state == "installable"
    assert state(one, "vulkan").action == "lemonade backends install llamacpp:vulkan"
    assert state(one, "rocm").state == "installable"
    assert (state(one, "cuda").state, state(one, "cuda").message) == ("unsupported", "No NVIDIA GPU was found.")
    assert state(one, "metal").state == "unsupported"
    assert state(one, "cpu").state == "installed"
    assert one.build("cpu") is None
    assert one.build("system") is None
    assert launch(one, {}).backend == "cpu"
    with pytest.raises(ModelLoadError, match="Install it: lemonade backends install llamacpp:vulkan"):
        launch(one, {"llamacpp_backend": "vulkan"})


def test_what_is_installed_runs_and_is_preferred(programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    install(programs, "vulkan")
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    one = engine(programs)
    assert state(one, "vulkan").state == "installed"
    planned = launch(one, {"llamacpp_args": "--anything llama-server takes"})
    assert (planned.backend, planned.device, planned.name) == ("vulkan", "gpu", "llama-server")
    assert planned.argv[0] == str(programs.root / "llamacpp" / "vulkan" / "llama-server")
    assert planned.env["LD_LIBRARY_PATH"] == str(programs.root / "llamacpp" / "vulkan")
    assert launch(one, {"llamacpp_backend": "cpu"}).backend == "cpu"


def test_another_version_than_the_wanted_one_runs_and_says_so(programs: Programs) -> None:
    install(programs, "vulkan", "b1000")
    one = engine(programs)
    assert state(one, "vulkan").state == "update_required"
    assert "b1000 is installed" in state(one, "vulkan").message
    assert state(one, "vulkan").action
    assert launch(one, {}).backend == "vulkan"
    assert state(engine(programs, vulkan_bin="b1000"), "vulkan").state == "installed"
    assert state(engine(programs, vulkan_bin="latest"), "vulkan").state == "update_required"
    install(programs, "vulkan", "b99999")
    assert state(engine(programs, vulkan_bin="latest"), "vulkan").state == "installed"


def test_a_folder_of_ones_own(programs: Programs, tmp_path: Path) -> None:
    one = engine(programs, vulkan_bin=str(tmp_path / "mine"))
    assert state(one, "vulkan").state == "unsupported"
    assert "there is no llama-server" in state(one, "vulkan").message
    (tmp_path / "mine" / "build" / "bin").mkdir(parents=True)
    program = tmp_path / "mine" / "build" / "bin" / "llama-server"
    program.write_text("x")
    program.chmod(0o755)
    assert state(one, "vulkan").state == "installed"
    assert launch(one, {}).argv[0] == str(program)
    assert one.build("vulkan") is None


def test_the_bundled_engine_serves_until_its_replacement_is_here(programs: Programs) -> None:
    one = engine(programs, cpu_bin="b12000")
    assert state(one, "cpu").state == "update_required"
    assert "Until then the bundled engine serves" in state(one, "cpu").message
    assert launch(one, {}).name == "llama.cpp"
    install(programs, "cpu", "b12000")
    assert state(one, "cpu").state == "installed"
    assert launch(one, {}).name == "llama-server"


def test_nothing_may_be_fetched(programs: Programs) -> None:
    one = engine(programs, no_fetch_executables=True)
    assert state(one, "vulkan").state == "unsupported"
    assert "no_fetch_executables" in state(one, "vulkan").message
    install(programs, "vulkan")
    assert state(one, "vulkan").state == "installed"


def test_cuda_follows_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = tmp_path / "version"
    for driver, wanted in (("570.86.16", "cuda-12"), ("580.65.06", "cuda-13")):
        version.write_text(f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {driver}  Sun Nov 30 2026\nGCC 12\n")
        monkeypatch.setattr(builds, "nvidia_driver", lambda read=builds.nvidia_driver: read(version))
        found = builds.find(MACHINE, "cuda", builds.Wanted(), "llama-server")
        assert wanted in found.files[0]
        assert found.files[1].startswith("cudart-")
        assert builds.obstacle(MACHINE, "cuda") == ""
        monkeypatch.undo()


def test_other_machines() -> None:
    mac = Hardware(os="macos", arch="arm64")
    assert builds.find(mac, "metal", builds.Wanted(), "x").files == ("llama-{tag}-bin-macos-arm64.tar.gz",)
    assert "arm64" in builds.find(MACHINE, "vulkan", builds.Wanted(), "x", arch="aarch64").files[0]
    with pytest.raises(
        UnsupportedOperation, match=r"no build of llama\.cpp for rocm on macos arm64, only for linux x86_64"
    ):
        builds.find(mac, "rocm", builds.Wanted(), "x")
    with pytest.raises(InvalidArgument, match="'arch' must be"):
        builds.find(MACHINE, "vulkan", builds.Wanted(), "x", arch="../x")


def test_a_hash_of_ones_own_replaces_the_pinned_one() -> None:
    want = builds.Wanted.read(f"b7@sha256:{'A' * 64}")
    assert (want.tag, want.sha256) == ("b7", "a" * 64)
    assert builds.find(MACHINE, "vulkan", want, "x").hashes == {"llama-b7-bin-ubuntu-vulkan-x64.tar.gz": "a" * 64}


@pytest.mark.parametrize("value", ["../x", "a/b", "b1@sha256:xyz", "b1 b2", "-x", "b..1", "b1\n", 5])
def test_a_setting_that_names_no_build(value: Any) -> None:
    settings = Settings([Layer("test", {"llamacpp.vulkan_bin": value})])
    assert settings["llamacpp.vulkan_bin"] == "builtin"
    assert "llamacpp.vulkan_bin" in settings.problems[0]
