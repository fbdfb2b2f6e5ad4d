from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from lemonade.api.lemonade.system import SystemInfo, SystemStats
from lemonade.catalog.recipes import RECIPES
from lemonade.system.usage import Load
from tests.daemon import Daemon


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("site")) as one:
        yield one


def test_the_machine(site: Daemon) -> None:
    info = site.get("/v1/system-info").json()
    assert set(info) == {field.encode_name for field in msgspec.structs.fields(SystemInfo)}
    assert info["Physical Memory"].endswith(" GB")
    assert info["devices"]["cpu"]["cores"] >= 1
    storage = info["model_storage"]
    assert storage["path"] == str(site.folder / "hub")
    assert 0 < storage["free_bytes"] <= storage["total_bytes"]
    assert info["cloud"] == {"providers": []}


def test_recipes_and_their_backends(site: Daemon) -> None:
    recipes = site.get("/api/v1/system-info").json()["recipes"]
    assert set(recipes) == set(RECIPES) - {"cloud"}
    llamacpp = recipes["llamacpp"]
    assert {"cpu", "system", "cuda", "vulkan", "rocm", "metal"} <= set(llamacpp["backends"])
    assert llamacpp["default_backend"] == "cpu"
    assert llamacpp["backends"]["system"]["state"] == "installed"
    assert all(
        one["state"] in ("installed", "installable", "update_required", "unsupported")
        and (one["message"] or one["state"] == "installed")
        for one in llamacpp["backends"].values()
    )
    assert {option["name"] for option in llamacpp["options"]} == {
        "ctx_size", "llamacpp_backend", "llamacpp_device", "llamacpp_args",
    }  # fmt: skip
    assert "yet" in recipes["trellis"]["message"]


def test_a_model_cache_that_is_not_there_yet(tmp_path: Path) -> None:
    with Daemon(tmp_path, env={"HF_HUB_CACHE": str(tmp_path / "not" / "yet")}) as daemon:
        storage = daemon.get("/v1/system-info").json()["model_storage"]
    assert storage["path"] == str(tmp_path / "not" / "yet")
    assert storage["free_bytes"] > 0


def test_how_busy_it_is(site: Daemon) -> None:
    stats = site.get("/v1/system-stats").json()
    assert list(stats) == list(Load.__struct_fields__) == list(SystemStats.__struct_fields__)
    assert 0 <= stats["cpu_percent"] <= 100
    assert stats["memory_gb"] > 0
    assert stats["npu_percent"] is None


def test_the_metrics_tell_the_same(site: Daemon) -> None:
    lines = site.get("/metrics").body.decode().splitlines()
    figures = dict(line.split() for line in lines if line.startswith(("lemonade_cpu_usage", "lemonade_memory_used")))
    assert 0 <= float(figures["lemonade_cpu_usage_percent"]) <= 100
    assert float(figures["lemonade_memory_used_gb"]) > 0
