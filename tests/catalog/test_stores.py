from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from lemonade.catalog.stores import ObjectFile


@pytest.fixture
def file(tmp_path: Path) -> ObjectFile:
    return ObjectFile(tmp_path / "sub" / "x.json")


def edit(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_no_file_is_an_empty_object(file: ObjectFile) -> None:
    assert file.values() == {}
    assert not file.path.parent.exists()


def test_changes_are_kept(file: ObjectFile) -> None:
    file.change(lambda values: values.update(a=1))
    assert ObjectFile(file.path).values() == {"a": 1}
    assert file.path.read_text() == '{\n  "a": 1\n}\n'


def test_hand_edits_are_seen_and_kept(file: ObjectFile) -> None:
    file.change(lambda values: values.update(a=1))
    version = file.version
    edit(file.path, '{"a": 1, "b": 2}')
    assert file.values() == {"a": 1, "b": 2}
    assert file.version > version
    edit(file.path, '{"c": 30}')
    file.change(lambda values: values.update(d=4))
    assert json.loads(file.path.read_text()) == {"c": 30, "d": 4}
    file.path.unlink()
    assert file.values() == {}


def test_the_version_tells_changes_from_looks(file: ObjectFile) -> None:
    file.change(lambda values: values.update(a=1))
    version = file.version
    file.values()
    file.change(lambda values: None)
    os.utime(file.path, ns=(1, 1))
    file.values()
    assert file.version == version


def test_a_refused_edit_changes_nothing(file: ObjectFile) -> None:
    file.change(lambda values: values.update(a={"b": 1}))

    def refuse(values: dict[str, dict[str, int]]) -> None:
        values["a"]["b"] = 2
        raise ValueError

    with pytest.raises(ValueError):
        file.change(refuse)
    assert file.values() == ObjectFile(file.path).values() == {"a": {"b": 1}}


@pytest.mark.parametrize("text", ["{", "[1]", '"x"', "\x00", "[" * 100_000])
def test_what_a_person_typed_is_never_overwritten(file: ObjectFile, text: str) -> None:
    edit(file.path, text)
    assert file.values() == {}
    with pytest.raises(OSError, match="cannot be changed"):
        file.change(lambda values: values.update(a=1))
    assert file.path.read_text() == text
    edit(file.path, '{"a": 2}')
    assert file.values() == {"a": 2}


def test_or_it_is_set_aside(tmp_path: Path) -> None:
    file = ObjectFile(tmp_path / "x.json", set_aside=True)
    edit(file.path, "{")
    assert file.values() == {}
    assert (tmp_path / "x.json.corrupted").read_text() == "{"
    file.change(lambda values: values.update(a=1))
    assert file.values() == {"a": 1}


@pytest.mark.skipif(os.name != "posix", reason="modes are POSIX's")
@pytest.mark.parametrize(("private", "mode"), [(True, 0o600), (False, 0o644)])
def test_modes(tmp_path: Path, private: bool, mode: int) -> None:
    file = ObjectFile(tmp_path / "x.json", private=private)
    file.change(lambda values: values.update(a=1))
    assert file.path.stat().st_mode & 0o777 == mode


def test_threads_lose_nothing(file: ObjectFile) -> None:
    def work(name: str) -> None:
        for number in range(20):
            file.change(lambda values, key=f"{name}{number}": values.update({key: 1}))

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(ObjectFile(file.path).values()) == 80


def test_processes_lose_nothing(file: ObjectFile) -> None:
    program = (
        "import sys; from pathlib import Path; from lemonade.catalog.stores import ObjectFile\n"
        "file = ObjectFile(Path(sys.argv[1]))\n"
        "for number in range(20):\n"
        "    file.change(lambda values: values.update({sys.argv[2] + str(number): 1}))\n"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(file.path), name]) for name in "abc"]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    assert len(file.values()) == 60
