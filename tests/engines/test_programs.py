from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.engines.programs import Installed, Programs, program_in


def fill(*names: str) -> Callable[[Path], None]:
    def run(folder: Path) -> None:
        for name in names:
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text("x")
            (folder / name).chmod(0o755)

    return run


def test_a_program_comes_is_replaced_and_goes(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    assert programs.find("llamacpp", "vulkan") is None
    programs.put("llamacpp", "vulkan", "b1", "llama-server", fill("llama-server", "old"))
    assert programs.find("llamacpp", "vulkan") == Installed("b1", tmp_path / "llamacpp" / "vulkan")
    programs.put("llamacpp", "vulkan", "b2", "llama-server", fill("bin/llama-server"))
    found = programs.find("llamacpp", "vulkan")
    assert found is not None
    assert found.version == "b2"
    assert sorted(path.name for path in found.folder.iterdir()) == ["bin", "version.txt"]
    assert program_in(found.folder, "llama-server") == found.folder / "bin" / "llama-server"
    assert programs.remove("llamacpp", "vulkan") is True
    assert programs.find("llamacpp", "vulkan") is None
    assert programs.remove("llamacpp", "vulkan") is False
    assert list((tmp_path / "llamacpp").iterdir()) == []


def test_what_was_there_stays_until_the_new_one_is_whole(tmp_path: Path) -> None:
    programs = Programs(tmp_path)
    programs.put("llamacpp", "vulkan", "b1", "llama-server", fill("llama-server"))
    with pytest.raises(FileNotFoundError):
        programs.put("llamacpp", "vulkan", "b2", "llama-server", fill("other"))

    def fail(folder: Path) -> None:
        fill("llama-server")(folder)
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        programs.put("llamacpp", "vulkan", "b3", "llama-server", fail)
    assert programs.find("llamacpp", "vulkan") == Installed("b1", tmp_path / "llamacpp" / "vulkan")
    assert [path.name for path in (tmp_path / "llamacpp").iterdir()] == ["vulkan"]


def test_what_was_abandoned_goes_and_what_is_new_stays(tmp_path: Path) -> None:
    for name in (".vulkan.old1.new", ".vulkan.busy.new"):
        (tmp_path / "llamacpp" / name).mkdir(parents=True)
    os.utime(tmp_path / "llamacpp" / ".vulkan.old1.new", (1e9, 1e9))
    Programs(tmp_path).put("llamacpp", "vulkan", "b1", "llama-server", fill("llama-server"))
    assert sorted(path.name for path in (tmp_path / "llamacpp").iterdir()) == [".vulkan.busy.new", "vulkan"]


@pytest.mark.parametrize("name", ["..", "../x", "", "a/b", "a\\b", ".x", "C:"])
def test_a_name_never_leads_out(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="is no backend"):
        Programs(tmp_path).find("llamacpp", name)
