from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemonade.engines import backends
from lemonade.engines.connection import Connection
from lemonade.engines.engine import Launch
from lemonade.engines.llamacpp.engine import LlamaCpp
from lemonade.engines.ports import take_port
from lemonade.engines.process import EngineProcess
from lemonade.engines.table import Engines
from lemonade.errors import InvalidArgument, ModelLoadError, ModelNotSupported
from lemonade.model import Model
from lemonade.settings import Layer, Settings
from lemonade.system.hardware import Hardware
from tests.engines.launching import llama_server_shim

GGUF = Path("/models/a b.gguf")
CHAT = Model(name="M", recipe="llamacpp", labels=("chat",))


def engine(**settings: Any) -> LlamaCpp:
    return LlamaCpp(Settings([Layer("test", {f"llamacpp.{key}": value for key, value in settings.items()})]))


def plan(
    options: Mapping[str, Any] = {}, *, model: Model = CHAT, files: Mapping[str, Path] = {"main": GGUF}, **settings: Any
) -> Launch:
    return engine(**settings).plan(model, files, {"ctx_size": 4096, **options}, alias="M", port=8123)


@pytest.fixture
def shim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = llama_server_shim(tmp_path / "bin")
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=":")
    return program


@pytest.fixture
def no_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))


def words(launch: Launch) -> list[str]:
    """The arguments without the program."""
    return list(launch.argv[launch.argv.index("-m", 2 if launch.backend == "cpu" else 0) :])


def test_the_exact_command_line_of_a_llama_server(shim: Path) -> None:
    launch = plan({"llamacpp_backend": "system", "llamacpp_args": "--parallel 1 --top_k=3 --override-kv a=int:1"})
    assert launch.argv == (
        str(shim),
        *("-m", str(GGUF), "--ctx-size", "4096", "--port", "8123", "--jinja", "--metrics", "--alias", "M"),
        *("--parallel", "1", "--top_k", "3", "--override-kv", "a=int:1"),
    )
    assert (launch.name, launch.backend, launch.health_path) == ("llama-server", "system", "/health")


def test_what_other_models_add(shim: Path) -> None:
    system = {"llamacpp_backend": "system"}
    files = {"main": GGUF, "mmproj": Path("/p"), "draft": Path("/d")}
    assert words(plan({**system, "llamacpp_device": "CUDA0"}, files=files))[2:] == [
        *("--ctx-size", "4096", "--device", "CUDA0", "--port", "8123", "--jinja", "--metrics", "--alias", "M"),
        *("--mmproj", "/p", "--model-draft", "/d"),
    ]
    embeddings = Model(name="E", recipe="llamacpp", labels=("embeddings",))
    assert words(plan(system, model=embeddings))[2:4] == ["--ctx-size", "8192"]
    assert words(plan(system, model=embeddings))[-1] == "--embeddings"
    assert words(plan({**system, "ctx_size": 9000}, model=embeddings))[2:4] == ["--ctx-size", "9000"]
    assert words(plan({**system, "ctx_size": 1}))[2:4] == ["--ctx-size", "2"], "llama.cpp does not survive 1"
    assert words(plan(system, model=Model(name="R", recipe="llamacpp", labels=("reranking",))))[-1] == "--reranking"


@pytest.mark.parametrize(
    ("args", "slots", "context", "shares"),
    [
        ("", 1, 4096, False),
        ("--parallel 1", 1, 4096, False),
        ("--parallel 4", 4, 4096, True),
        ("-np 2 --parallel=4", 4, 4096, True),
        ("--parallel 4 -kvu", 4, 4096, False),
        ("--parallel 4 --no-kv-unified", 4, 1024, False),
        ("--parallel 4 --kv-unified-per-slot 2048", 4, 2048, True),
        ("--parallel 4 --kv-unified-per-slot 9000", 4, 4096, True),
    ],
)
@pytest.mark.parametrize("backend", ["cpu", "system"])
def test_slots_share_the_context_unless_somebody_divides_it(
    shim: Path, backend: str, args: str, slots: int, context: int, shares: bool
) -> None:
    launch = plan({"llamacpp_backend": backend, "llamacpp_args": args})
    assert (launch.slots, launch.context) == (slots, context)
    told = launch.env.get("LLAMA_ARG_KV_UNIFIED") == "true" if backend == "system" else "--kv-unified" in launch.argv
    assert told == shares


@pytest.mark.parametrize(
    ("evict", "options", "seconds"),
    [
        (None, {}, None),
        (True, {}, 59),
        (True, {"downsize_idle_timeout": 0}, 1),
        (True, {"auto_evict": False}, None),
        (False, {"auto_evict": True, "downsize_idle_timeout": 600}, 599),
        (True, {"auto_evict": None, "llamacpp_args": "--sleep-idle-seconds 5"}, 5),
    ],
)
def test_an_idle_model_sleeps_where_idle_models_are_to_shrink(
    no_server: None, evict: bool | None, options: dict[str, Any], seconds: int | None
) -> None:
    one = LlamaCpp(Settings([Layer("test", {"auto_evict": evict})]))
    made = one.plan(CHAT, {"main": GGUF}, {"ctx_size": 4096, **options}, alias="M", port=8123).argv
    found = [made[at + 1] for at, word in enumerate(made) if word == "--sleep-idle-seconds"]
    assert found == ([] if seconds is None else [str(seconds)])


def test_threads_do_not_spin_for_long_unless_somebody_says_how_they_wait(
    shim: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("GOMP_SPINCOUNT", "OMP_WAIT_POLICY"):
        monkeypatch.delenv(name, raising=False)
    assert plan({"llamacpp_backend": "cpu"}).env["GOMP_SPINCOUNT"] == "1000"
    assert "GOMP_SPINCOUNT" not in plan({"llamacpp_backend": "system"}).env, "its threads may be others"
    monkeypatch.setenv("OMP_WAIT_POLICY", "active")
    assert "GOMP_SPINCOUNT" not in plan({"llamacpp_backend": "cpu"}).env


@pytest.mark.parametrize(("gib", "mib"), [(8, 512), (24, 1536), (512, 8192)])
def test_the_memory_for_old_conversations_follows_the_machine(shim: Path, gib: int, mib: int) -> None:
    machine = replace(Hardware.detect(), memory=gib << 30)
    one = LlamaCpp(Settings([]), hardware=machine)

    def made(**options: str) -> Launch:
        return one.plan(CHAT, {"main": GGUF}, {"ctx_size": 4096, **options}, alias="M", port=8123)

    bundled = made(llamacpp_backend="cpu").argv
    assert bundled[bundled.index("--cache-ram") + 1] == str(mib)
    assert made(llamacpp_backend="system").env["LLAMA_ARG_CACHE_RAM"] == str(mib)
    assert "LLAMA_ARG_CACHE_RAM" not in made(llamacpp_backend="system", llamacpp_args="-cram 9").env
    assert made(llamacpp_backend="cpu", llamacpp_args="-cram 9").argv.count("--cache-ram") == 0


def test_a_draft_file_comes_with_the_speculation_that_uses_it(no_server: None) -> None:
    def speculation(name: str, args: str = "", *labels: str) -> list[str]:
        model = Model(name="M", recipe="llamacpp", labels=("chat", *labels))
        made = words(plan({"llamacpp_args": args}, model=model, files={"main": GGUF, "draft": Path(f"/m/{name}")}))
        return [
            word
            for at, word in enumerate(made)
            if word in ("--model-draft", "--spec-type") or made[at - 1] == "--spec-type"
        ]

    assert speculation("small.gguf") == ["--model-draft", "--spec-type", "draft-simple"]
    assert speculation("small.gguf", "--spec-type ngram-mod") == ["--model-draft", "--spec-type", "ngram-mod"]
    mtp = ("--spec-type draft-mtp --spec-draft-n-max 3 --spec-draft-p-min 0.75", "mtp")
    assert speculation("mtp-m.gguf", *mtp) == ["--model-draft", "--spec-type", "draft-mtp"]
    assert speculation("mtp-m.gguf", "", "mtp") == ["--model-draft"]
    assert speculation("dflash-m.gguf", "--spec-type draft-dflash", "dflash") == [
        *("--model-draft", "--spec-type", "draft-dflash")
    ]
    assert speculation("dflash-m.gguf") == []
    assert speculation("dflash-m.gguf", "--spec-type draft-mtp", "mtp") == ["--spec-type", "draft-mtp"]


@pytest.mark.parametrize("role", ["mmproj", "draft"])
def test_a_file_that_vanished_is_missed(role: str, no_server: None) -> None:
    model = Model(name="M", recipe="llamacpp", labels=("chat",), checkpoints={"main": "a/b:Q4", role: "a/b:x.gguf"})
    with pytest.raises(ModelLoadError, match=f"its {role} file is not there .a/b:x.gguf."):
        plan(model=model)
    assert plan(model=model, files={"main": GGUF, role: Path("/x.gguf")})


def test_no_engine_hands_files_to_ffmpeg(shim: Path) -> None:
    assert plan({"llamacpp_backend": "system"}).env["LLAMA_ARG_VIDEO_FFMPEG_DIR"] == os.devnull


@pytest.mark.parametrize("backend", ["cpu", "system"])
def test_a_failed_assertion_is_the_last_word(shim: Path, backend: str) -> None:
    assert plan({"llamacpp_backend": backend}).env["GGML_NO_BACKTRACE"] == "1"


def test_the_bundled_engine_takes_the_same_words(no_server: None) -> None:
    launch = plan({"llamacpp_args": "--temp 0.5"}, files={"main": GGUF, "mmproj": Path("/p")})
    assert launch.argv[:3] == (sys.executable, "-m", "lemonade.engines.llamacpp.host")
    assert launch.argv[3:17] == (
        *("-m", str(GGUF), "--ctx-size", "4096", "--port", "8123", "--jinja", "--metrics", "--alias", "M"),
        *("--mmproj", "/p", "--no-mmproj-offload", "--threads"),
    )
    assert launch.argv[-2:] == ("--temp", "0.5")
    assert (launch.backend, launch.device) == ("cpu", "cpu")


def test_the_users_threads_and_batches_stand() -> None:
    launch = plan({"llamacpp_args": "-t 1 -b 9"}, model=Model(name="E", recipe="llamacpp", labels=("embeddings",)))
    assert "--threads" not in launch.argv
    assert "--batch-size" not in launch.argv
    assert launch.argv[launch.argv.index("--ubatch-size") + 1] == "2048"


@pytest.mark.parametrize(
    ("option", "configured", "prefer", "chosen"),
    [
        ("", "auto", False, "cpu"),
        ("auto", "auto", True, "system"),
        ("auto", "system", False, "system"),
        ("cpu", "system", True, "cpu"),
        ("system", "cpu", False, "system"),
    ],
)
def test_the_choice_of_a_backend(shim: Path, option: str, configured: str, prefer: bool, chosen: str) -> None:
    launch = plan({"llamacpp_backend": option}, backend=configured, prefer_system=prefer)
    assert launch.backend == chosen


def test_a_backend_that_is_not_here(no_server: None) -> None:
    with pytest.raises(ModelLoadError, match="no llama-server on PATH"):
        plan({"llamacpp_backend": "system"})
    with pytest.raises(ModelLoadError, match=r"built for vulkan|no build of llama.cpp for vulkan"):
        plan({"llamacpp_backend": "vulkan"})
    with pytest.raises(InvalidArgument, match=r"must be one of: auto, cuda, rocm, vulkan, .*, not 'nope'"):
        plan({"llamacpp_backend": "nope"})
    assert plan(prefer_system=True).backend == "cpu"


def test_a_program_that_is_installed_later_is_found(
    tmp_path: Path, no_server: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def state() -> str:
        return next(backend.state for backend in engine().backends() if backend.name == "system")

    assert state() == "unsupported"
    shim = llama_server_shim(tmp_path)
    monkeypatch.setattr(backends, "FRESH", 0.0)
    assert state() == "installed"
    shim.unlink()
    assert state() == "unsupported"


@pytest.mark.parametrize("backend", ["cpu", "system"])
@pytest.mark.parametrize(
    ("options", "param"),
    [
        ({"llamacpp_args": "--port 1"}, "llamacpp_args"),
        ({"llamacpp_args": "'open"}, "llamacpp_args"),
        ({"llamacpp_args": 5}, "llamacpp_args"),
        ({"ctx_size": -1}, "ctx_size"),
        ({"ctx_size": 2**31}, "ctx_size"),
        ({"ctx_size": True}, "ctx_size"),
    ],
)
def test_options_are_refused_before_anything_starts(
    shim: Path, backend: str, options: dict[str, Any], param: str
) -> None:
    with pytest.raises(InvalidArgument) as caught:
        plan({"llamacpp_backend": backend, **options})
    assert caught.value.param == param


def test_only_a_llama_server_has_devices_and_unknown_flags(shim: Path) -> None:
    with pytest.raises(InvalidArgument, match="'llamacpp_device' is for a llama-server"):
        plan({"llamacpp_device": "CUDA0"})
    with pytest.raises(InvalidArgument, match="--new-flag"):
        plan({"llamacpp_args": "--new-flag"})
    assert plan({"llamacpp_args": "--new-flag", "llamacpp_backend": "system"}).argv[-1] == "--new-flag"


def test_no_file_of_the_model() -> None:
    with pytest.raises(ModelLoadError, match="no GGUF file"):
        plan(files={})


async def test_a_llama_server_from_path_is_run(shim: Path, tmp_path: Path) -> None:
    options = {"llamacpp_backend": "system", "ctx_size": 4096, "llamacpp_args": "--parallel 1"}
    launch = engine().plan(CHAT, {"main": tmp_path / "m.gguf"}, options, alias="M", port=take_port())
    process = await EngineProcess.start(launch)
    connection = Connection(process)
    try:
        await process.wait_ready(30)
        props = await (await connection.request("GET", "/props")).read()
        assert b'"model_alias": "M"' in props
    finally:
        await connection.close()
        await process.stop()


def test_the_table_knows_every_recipe(no_server: None) -> None:
    engines = Engines(Settings([]))
    assert engines.get("llamacpp").recipe == "llamacpp"
    assert engines.unsupported("llamacpp") is None
    assert engines.unsupported("collection.omni") is None
    for recipe in ("vllm", "flm", "ryzenai-llm"):
        assert f"`{recipe}`" in (engines.unsupported(recipe) or "")
    assert "no recipe" in (engines.unsupported("nonsense") or "")
    with pytest.raises(ModelNotSupported, match="trellis"):
        engines.get("trellis")
