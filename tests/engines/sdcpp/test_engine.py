from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines import backends
from lemonade.engines.sdcpp import engine as module
from lemonade.engines.sdcpp.engine import SdCpp
from lemonade.errors import InvalidArgument, ModelLoadError, ModelLoadRefused
from lemonade.model import Model
from lemonade.settings import Layer, Settings

OPTIONS = {"sd-cpp_backend": "auto", "sdcpp_args": "", "steps": 20}


@pytest.fixture
def settings() -> Settings:
    return Settings([])


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on PATH with an sd-server and an sd-cli."""
    folder = tmp_path / "programs"
    folder.mkdir()
    for name in ("sd-server", "sd-cli"):
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(backends, "_seen", {})
    return folder


def model(files: dict[str, Path], **more: Any) -> Model:
    checkpoints = {role: str(path) for role, path in files.items()}
    return Model(name="m", recipe="sd-cpp", checkpoints=checkpoints, labels=("image",), **more)


def made(engine: SdCpp, files: dict[str, Path], **options: Any) -> Any:
    return engine.plan(model(files), files, {**OPTIONS, **options}, alias="m", port=9)


def config(launch: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(launch.argv[-1])
    return found


def test_a_whole_checkpoint_and_one_in_parts(settings: Settings, tmp_path: Path) -> None:
    engine = SdCpp(settings)
    whole = {"main": tmp_path / "sd.safetensors"}
    assert config(made(engine, whole))["context"] == {
        "model_path": str(whole["main"]),
        "n_threads": module.physical_cores(),
    }
    parts = {"main": Path("/a/flux.gguf"), "text_encoder": Path("/a/Qwen3-8B.gguf"), "vae": Path("/a/ae.safetensors")}
    context = config(made(engine, parts))["context"]
    assert context.pop("n_threads") >= 1
    assert context == {
        "diffusion_model_path": "/a/flux.gguf",
        "llm_path": "/a/Qwen3-8B.gguf",
        "vae_path": "/a/ae.safetensors",
    }


@pytest.mark.parametrize(
    ("name", "attribute"),
    [
        ("clip_l.safetensors", "clip_l_path"),
        ("CLIP-G-fp16.safetensors", "clip_g_path"),
        ("t5xxl_fp8.safetensors", "t5xxl_path"),
        ("umt5-xxl-encoder.gguf", "t5xxl_path"),
        ("qwen_3_4b.safetensors", "llm_path"),
    ],
)
def test_text_encoders_are_told_apart(settings: Settings, name: str, attribute: str) -> None:
    files = {"main": Path("/a/m.gguf"), "text_encoder": Path("/a", name), "vae": Path("/a/vae.safetensors")}
    assert config(made(SdCpp(settings), files))["context"][attribute] == f"/a/{name}"


def test_arguments_change_the_library(settings: Settings, tmp_path: Path) -> None:
    words = f"--diffusion-fa --vae-tiling --guidance 4 --type q8_0 --lora-model-dir {tmp_path}"
    found = config(made(SdCpp(settings), {"main": Path("/a/m.gguf")}, sdcpp_args=words))
    assert found["context"]["diffusion_flash_attn"] is True
    assert found["context"]["wtype"] == ["SDType", "Q8_0"]
    assert found["picture"] == {"vae_tiling_enabled": True}
    assert found["sampling"] == {"distilled_guidance": 4.0}
    assert found["lora_dir"] == f"{tmp_path}/"


def test_a_program_on_path(settings: Settings, programs: Path) -> None:
    engine = SdCpp(settings)
    assert [(each.name, each.state) for each in engine.backends()] == [
        ("cuda", "unsupported"),
        ("rocm", "unsupported"),
        ("vulkan", "unsupported"),
        ("cpu", "installed"),
        ("system", "installed"),
    ]
    files = {"main": Path("/a/m.gguf"), "llm": Path("/a/llm.gguf"), "vae": Path("/a/vae.safetensors")}
    launch = made(engine, files, **{"sd-cpp_backend": "system", "sdcpp_args": "--anything 5 --steps 3"})
    assert launch.argv == (
        *(str(programs / "sd-server"), "--listen-port", "9", "--diffusion-model", "/a/m.gguf"),
        *("--llm", "/a/llm.gguf", "--vae", "/a/vae.safetensors", "--anything", "5", "--steps", "3"),
    )
    assert (launch.backend, launch.health_path, launch.slots) == ("system", "/", 1)
    larger = engine.upscale(Path("/a/esrgan.pth"), {"sd-cpp_backend": "system"}, 9)
    assert larger.argv == (str(programs / "sd-cli"), "-M", "upscale", "--upscale-model", "/a/esrgan.pth")


def test_an_upscaler_has_as_many_threads_as_the_arguments_say(settings: Settings) -> None:
    engine = SdCpp(settings)
    assert config(engine.upscale(Path("/a/esrgan.pth"), OPTIONS, 9)) == {
        "model": "/a/esrgan.pth",
        "threads": module.physical_cores(),
    }
    assert config(engine.upscale(Path("/m"), {**OPTIONS, "sdcpp_args": "--fa -t 3"}, 9))["threads"] == 3


def test_without_a_program(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(backends, "_seen", {})
    engine = SdCpp(settings)
    assert engine.backends()[-1].message == "There is no sd-server on PATH."
    with pytest.raises(ModelLoadError, match="no sd-server on PATH"):
        made(engine, {"main": Path("/a/m.gguf")}, **{"sd-cpp_backend": "system"})


def test_without_the_package(settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "installed_version", lambda name: "")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(backends, "_seen", {})
    engine = SdCpp(settings)
    assert engine.backends()[3].state == "installable"
    with pytest.raises(ModelLoadError, match="pip install cyllama"):
        made(engine, {"main": Path("/a/m.gguf")})


def test_the_setting_and_the_option_choose_the_backend(settings: Settings, programs: Path) -> None:
    engine = SdCpp(settings)
    assert engine.device({"sd-cpp_backend": "system"}) == "gpu"
    assert engine.device({}) == "cpu"
    with pytest.raises(InvalidArgument, match="must be one of: auto, cuda, rocm, vulkan, cpu, system"):
        engine.device({"sd-cpp_backend": "opencl"})
    with pytest.raises(ModelLoadError, match=r"set sdcpp.vulkan_bin to the folder that holds yours"):
        engine.device({"sd-cpp_backend": "vulkan"})


def test_a_folder_with_programs_is_a_backend(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(backends, "_seen", {})
    settings = Settings([Layer("config.json", {"sdcpp.vulkan_bin": str(programs), "log_level": "debug"})])
    engine = SdCpp(settings)
    assert [each.state for each in engine.backends() if each.name == "vulkan"] == ["installed"]
    assert engine.device({}) == "gpu", "it is the best one here"
    launch = made(engine, {"main": Path("/a/m.gguf")}, sdcpp_args="--mmap")
    assert launch.argv == (
        *(str(programs / "sd-server"), "--listen-port", "9", "--model", "/a/m.gguf"),
        *("-v", "--vae-tiling", "--diffusion-fa", "--mmap"),
    )
    assert (launch.backend, launch.health_path) == ("vulkan", "/")
    assert launch.env["LD_LIBRARY_PATH"].split(":")[0] == str(programs)
    assert engine.upscale(Path("/a/esrgan.pth"), {}, 9).argv[0] == str(programs / "sd-cli")


def test_a_program_of_ones_own_for_the_processor(programs: Path) -> None:
    settings = Settings([Layer("config.json", {"sdcpp.cpu_bin": str(programs)})])
    launch = made(SdCpp(settings), {"main": Path("/a/m.gguf")})
    assert launch.argv[0] == str(programs / "sd-server")
    assert (launch.backend, launch.device) == ("cpu", "cpu")


def test_folders_and_tags_that_do_not_do(tmp_path: Path) -> None:
    said = {"sdcpp.cpu_bin": "latest", "sdcpp.rocm_bin": "master-504", "sdcpp.cuda_bin": str(tmp_path)}
    engine = SdCpp(Settings([Layer("config.json", said)]))
    states = {each.name: each for each in engine.backends()}
    assert states["cpu"].state == "installed", "what is bundled serves it"
    assert "not fetched here" in states["rocm"].message
    assert states["cuda"].message == f"sdcpp.cuda_bin names {tmp_path}, in which there is no sd-server."


def test_the_home_of_who_runs_it(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "loras").mkdir()
    found = config(made(SdCpp(settings), {"main": Path("/a/m.gguf")}, sdcpp_args="--lora-model-dir ~/loras"))
    assert found["lora_dir"] == f"{tmp_path / 'loras'}/"


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, ModelLoadError, "no file of the model"),
        ({"main": Path("/m"), "npu_cache": Path("/n")}, ModelLoadRefused, "role 'npu_cache'"),
    ],
)
def test_files_that_do_not_do(settings: Settings, files: dict[str, Path], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        made(SdCpp(settings), files)


def test_a_part_that_is_missing(settings: Settings) -> None:
    whole = {"main": Path("/m"), "vae": Path("/v")}
    with pytest.raises(ModelLoadError, match="its vae file is not there"):
        SdCpp(settings).plan(model(whole), {"main": Path("/m")}, OPTIONS, alias="m", port=9)


def test_upscalers_are_never_loaded(settings: Settings) -> None:
    upscaler = Model(name="up", recipe="sd-cpp", checkpoints={"main": "/m"}, labels=("upscaling", "image", "on-demand"))
    with pytest.raises(ModelLoadRefused, match="on demand"):
        SdCpp(settings).plan(upscaler, {"main": Path("/m")}, OPTIONS, alias="m", port=9)


def test_reserved_arguments_are_refused_for_every_backend(settings: Settings, programs: Path) -> None:
    for backend in ("auto", "system"):
        with pytest.raises(InvalidArgument, match="'--listen-ip' is managed"):
            options = {"sd-cpp_backend": backend, "sdcpp_args": "--listen-ip 0.0.0.0"}
            made(SdCpp(settings), {"main": Path("/a/m.gguf")}, **options)
