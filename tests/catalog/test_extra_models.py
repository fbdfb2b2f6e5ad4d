from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lemonade.catalog.extra_models import ExtraModels, scan
from lemonade.errors import ModelNotFound
from tests.catalog.world import USER, World, gguf


def put(root: Path, *names: str) -> None:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gguf())


class TestScan:
    def test_files_in_the_folder_itself(self, tmp_path: Path) -> None:
        put(tmp_path, "b.GGUF", "a-Q4_0.gguf", "mmproj-a.gguf", "x.txt", ".hidden.gguf")
        models = scan(tmp_path).models
        assert sorted(models) == ["a-Q4_0", "b"]
        model = models["a-Q4_0"]
        assert model.canonical == "extra.a-Q4_0"
        assert model.checkpoints == {"main": str(tmp_path / "a-Q4_0.gguf")}
        assert model.labels == ("custom", "chat")
        assert (model.source, model.recipe, model.suggested) == ("extra_models_dir", "llamacpp", True)
        assert model.size > 0

    def test_a_series_is_one_model(self, tmp_path: Path) -> None:
        put(tmp_path, *(f"big-0000{number}-of-00003.gguf" for number in (1, 2, 3)))
        (model,) = scan(tmp_path).models.values()
        assert model.name == "big"
        assert model.checkpoints["main"].endswith("big-00001-of-00003.gguf")
        assert model.size == 3 * len(gguf()) / 1024**3

    def test_a_folder_is_one_model_with_its_projector(self, tmp_path: Path) -> None:
        put(tmp_path, "Vision/model.gguf", "Vision/mmproj-F16.gguf")
        (model,) = scan(tmp_path).models.values()
        assert model.name == "Vision"
        assert model.checkpoints == {"main": str(tmp_path / "Vision"), "mmproj": "mmproj-F16.gguf"}
        assert model.labels == ("custom", "chat", "vision")

    def test_a_folder_of_quantisations_is_a_model_each(self, tmp_path: Path) -> None:
        put(tmp_path, "F/m-Q4_0.gguf", "F/m-Q8_0-00001-of-00002.gguf", "F/m-Q8_0-00002-of-00002.gguf")
        found = scan(tmp_path)
        assert sorted(found.models) == ["m-Q4_0", "m-Q8_0"]
        assert found.folders == {"F": "m-Q4_0"}

    def test_a_folder_of_the_same_quantisation_stays_one(self, tmp_path: Path) -> None:
        put(tmp_path, "F/a-Q4_0.gguf", "F/b-Q4_0.gguf")
        assert sorted(scan(tmp_path).models) == ["F"]

    def test_clashing_names_get_the_folders_then_a_number(self, tmp_path: Path) -> None:
        put(tmp_path, "a/m/x.gguf", "b/m/x.gguf", "c/b/m/x.gguf", "m.gguf")
        assert sorted(scan(tmp_path).models) == ["a-m", "b-m", "b-m-2", "m"]

    def test_only_a_projector_is_no_model(self, tmp_path: Path) -> None:
        put(tmp_path, "F/mmproj.gguf")
        assert scan(tmp_path).models == {}

    def test_no_folder(self, tmp_path: Path) -> None:
        assert scan(tmp_path / "none").models == {}

    @pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root can read everything")
    def test_what_cannot_be_read_is_passed_over(self, tmp_path: Path) -> None:
        put(tmp_path, "a.gguf", "b.gguf", "F/c.gguf")
        (tmp_path / "a.gguf").chmod(0)
        (tmp_path / "F").chmod(0)
        assert sorted(scan(tmp_path).models) == ["b"]
        (tmp_path / "F").chmod(0o700)

    def test_links_that_lead_nowhere_or_in_circles(self, tmp_path: Path) -> None:
        put(tmp_path, "F/c.gguf")
        (tmp_path / "dead.gguf").symlink_to(tmp_path / "none")
        (tmp_path / "F" / "loop").symlink_to(tmp_path)
        assert sorted(scan(tmp_path).models) == ["F"]

    @pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
    def test_a_name_that_is_no_text_is_passed_over(self, tmp_path: Path) -> None:
        put(tmp_path, "a.gguf", os.fsdecode(b"b\xff.gguf"), os.fsdecode(b"F\xff/c.gguf"))
        assert sorted(scan(tmp_path).models) == ["a"]


class TestInTheCatalog:
    @pytest.fixture
    def extra(self, world: World) -> Path:
        folder = world.root / "extra"
        put(folder, "mine.gguf", "Qwen3-0.6B-GGUF/m-Q4_0.gguf", "Qwen3-0.6B-GGUF/m-Q8_0.gguf")
        world.settings.change({"extra_models_dir": str(folder)}, persist=False)
        return folder

    def test_listed_as_downloaded(self, world: World, extra: Path) -> None:
        assert world.ids() == ["m-Q4_0", "m-Q8_0", "mine"]
        entry = world.catalog.entry("extra.mine")
        assert (entry.id, entry.source, entry.downloaded) == ("mine", "extra_models_dir", True)
        with pytest.raises(ModelNotFound):
            world.catalog.find("extra.mine.gguf")

    def test_a_split_folders_name_beats_the_built_in_model(self, world: World, extra: Path) -> None:
        assert world.catalog.find("Qwen3-0.6B-GGUF").canonical == "extra.m-Q4_0"
        assert world.catalog.find("extra.Qwen3-0.6B-GGUF").canonical == "extra.m-Q4_0"
        assert "builtin.Qwen3-0.6B-GGUF" in world.ids(show_all=True)
        world.catalog.register({"model_name": "user.Qwen3-0.6B-GGUF", **USER})
        assert world.catalog.find("Qwen3-0.6B-GGUF").origin == "user"

    def test_a_persons_own_definition_beats_a_file(self, world: World, extra: Path) -> None:
        world.catalog.register({"model_name": "user.mine", **USER})
        assert world.catalog.find("mine").origin == "user"
        assert {"mine", "extra.mine"} <= set(world.ids(show_all=True))

    def test_the_setting_can_be_taken_back(self, world: World, extra: Path) -> None:
        assert world.ids()
        world.settings.change({"extra_models_dir": ""}, persist=False)
        assert world.ids() == []

    def test_deleting_leaves_the_file(self, world: World, extra: Path) -> None:
        asyncio.run(world.catalog.delete(world.catalog.find("mine")))
        assert (extra / "mine.gguf").exists()


class TestWatching:
    @pytest.fixture
    async def watched(self, tmp_path: Path) -> AsyncIterator[tuple[Path, ExtraModels]]:
        folder = tmp_path / "extra"
        extra = ExtraModels(lambda: folder)
        task = asyncio.create_task(extra.watch(poll_seconds=0.05))
        yield folder, extra
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    async def until(self, extra: ExtraModels, *names: str) -> None:
        async with asyncio.timeout(20):
            while sorted(extra.found().models) != sorted(names):
                await asyncio.sleep(0.02)

    async def test_files_come_and_go(self, watched: tuple[Path, ExtraModels]) -> None:
        folder, extra = watched
        await self.until(extra)
        put(folder, "a.gguf")
        await self.until(extra, "a")
        await asyncio.sleep(0.3)
        version = extra.version
        put(folder, "sub/b.gguf")
        await self.until(extra, "a", "sub")
        assert extra.version > version
        (folder / "a.gguf").unlink()
        await self.until(extra, "sub")
        shutil.rmtree(folder)
        await self.until(extra)
        put(folder, "c.gguf")
        await self.until(extra, "c")

    async def test_the_folder_may_become_another_one(self, tmp_path: Path) -> None:
        put(tmp_path, "one/a.gguf", "two/b.gguf")
        folders: list[Path | None] = [None]
        extra = ExtraModels(lambda: folders[-1])
        task = asyncio.create_task(extra.watch())
        try:
            for name, stem in (("one", "a"), ("two", "b")):
                await asyncio.sleep(0.05)
                folders.append(tmp_path / name)
                extra.relocate()
                await self.until(extra, stem)
            await asyncio.sleep(0.5)
            put(tmp_path, "two/c.gguf")
            await self.until(extra, "b", "c")
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
