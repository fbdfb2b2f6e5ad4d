from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.hub.layout import Folder, is_safe
from lemonade.hub.store import Store
from lemonade.model import Model
from tests.hub.conftest import model, tree
from tests.hub.gguf_file import gguf

A, B = "a" * 40, "b" * 40
GGUF = gguf()


def put(
    cache: Path, repository: str, path: str, content: bytes = GGUF, *, revision: str = A, blob: bool = True
) -> Path:
    """One file as the library, or (without a blob) the original, writes it; the commit counts."""
    folder = Folder(cache, "huggingface", repository)
    place = folder.file(revision, path)
    place.parent.mkdir(parents=True, exist_ok=True)
    if blob:
        bytes_of = folder.path / "blobs" / f"{abs(hash((content, path))):x}"
        bytes_of.parent.mkdir(exist_ok=True)
        bytes_of.write_bytes(content)
        place.symlink_to(os.path.relpath(bytes_of, place.parent))
    else:
        place.write_bytes(content)
    folder.publish(revision)
    return place


def age(cache: Path) -> None:
    """Makes everything old enough that answers are kept."""
    for parent, folders, files in os.walk(cache):
        for name in (*folders, *files, "."):
            os.utime(Path(parent, name), (1_000_000_000, 1_000_000_000), follow_symlinks=False)


@pytest.mark.parametrize("blob", [True, False])
def test_located(store: Store, cache: Path, blob: bool) -> None:
    path = put(cache, "o/n", "m-Q4_K_M.gguf", blob=blob)
    put(cache, "o/n", "mmproj-F16.gguf", blob=blob)
    one = model("o/n:Q4_K_M", roles={"mmproj": "o/n:mmproj-F16.gguf"})
    assert store.locate(one)["main"] == path
    assert store.is_downloaded(one)
    assert store.size(one) == 2 * len(GGUF)
    assert not store.is_downloaded(model("o/n:Q8_0"))


def test_nothing_is_there_without_a_cache(store: Store) -> None:
    one = model("o/n:Q4_K_M")
    assert store.locate(one) == {"main": None}
    assert not store.is_downloaded(one)
    assert store.size(one) == 0
    store.delete(one, [])


def test_without_checkpoints(store: Store) -> None:
    assert not store.is_downloaded(Model(name="c", recipe="collection.omni"))


@pytest.mark.parametrize("main", ["gemma3:4b", "gpt-4", "../../etc/passwd", "/etc/passwd", "a/b/c:d", ":", "a--b/c:d"])
def test_checkpoints_that_are_no_repositories(store: Store, cache: Path, main: str) -> None:
    cache.mkdir()
    assert not store.is_downloaded(model(main))


def test_a_commit_that_does_not_count_yet(store: Store, cache: Path) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf")
    (cache / "models--o--n" / "refs" / "main").unlink()
    assert not store.is_downloaded(model("o/n:Q4_K_M"))


def test_another_snapshot_when_the_current_one_lacks_it(store: Store, cache: Path) -> None:
    old = put(cache, "o/n", "m-Q8_0.gguf", revision=A)
    put(cache, "o/n", "m-Q4_K_M.gguf", revision=B)
    assert store.locate(model("o/n:Q8_0"))["main"] == old


@pytest.mark.parametrize(
    "damage",
    [
        lambda path: path.resolve().unlink(),
        lambda path: path.resolve().write_bytes(b"<html>"),
        lambda path: path.resolve().write_bytes(b""),
        lambda path: path.unlink(),
    ],
)
def test_what_is_not_whole(store: Store, cache: Path, damage: Callable[[Path], None]) -> None:
    path = put(cache, "o/n", "m-Q4_K_M.gguf")
    age(cache)
    one = model("o/n:Q4_K_M")
    assert store.is_downloaded(one)
    assert store.is_downloaded(one)
    damage(path)
    assert not store.is_downloaded(one)


@pytest.mark.parametrize("mark", ["m-Q4_K_M.gguf.partial", ".download_manifest.json"])
def test_the_marks_of_the_original(store: Store, cache: Path, mark: str) -> None:
    path = put(cache, "o/n", "m-Q4_K_M.gguf", blob=False)
    one = model("o/n:Q4_K_M")
    assert store.is_downloaded(one)
    path.with_name(mark).write_bytes(b"{}")
    assert not store.is_downloaded(one)


def test_a_folder_with_a_partial(store: Store, cache: Path) -> None:
    path = put(cache, "o/n", "onnx/tiny/a.ort", b"x", blob=False)
    one = model("o/n:onnx/tiny", recipe="moonshine")
    assert store.locate(one)["main"] == path.parent
    path.with_name(".download_manifest.json").write_bytes(b"{}")
    assert not store.is_downloaded(one)


def test_a_missing_shard(store: Store, cache: Path) -> None:
    put(cache, "o/n", "m-Q8_0-00001-of-00002.gguf")
    one = model("o/n:Q8_0")
    assert not store.is_downloaded(one)
    put(cache, "o/n", "m-Q8_0-00002-of-00002.gguf")
    assert store.is_downloaded(one)


def test_what_appears_is_seen_at_once(store: Store, cache: Path) -> None:
    one = model("o/n:Q4_K_M")
    for _ in range(5):
        assert not store.is_downloaded(one)
        put(cache, "o/n", "m-Q4_K_M.gguf")
        assert store.is_downloaded(one)
        store.delete(one, [])


def test_many_models_are_listed_with_few_looks(store: Store, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    models = [model(f"o/n{number}:Q4_K_M", name=f"m{number}") for number in range(220)]
    for number in range(0, 220, 10):
        put(cache, f"o/n{number}", "m-Q4_K_M.gguf")
    age(cache)
    assert sum(map(store.is_downloaded, models)) == 22
    looks: list[object] = []
    real = os.stat
    monkeypatch.setattr(os, "stat", lambda *args, **more: looks.append(args) or real(*args, **more))
    monkeypatch.setattr(os, "scandir", lambda *args: pytest.fail("a folder was read again"))
    assert sum(map(store.is_downloaded, models)) == 22
    assert len(looks) < 220 + 22 * 8


# Local files.


def test_local_files(store: Store, tmp_path: Path) -> None:
    (tmp_path / "own.gguf").write_bytes(GGUF)
    (tmp_path / "proj.gguf").write_bytes(GGUF)
    one = model(str(tmp_path / "own.gguf"), source="local_path", roles={"mmproj": "proj.gguf"})
    assert store.locate(one) == {"main": tmp_path / "own.gguf", "mmproj": tmp_path / "proj.gguf"}
    assert store.is_downloaded(one)
    store.delete(one, [])
    assert store.is_downloaded(one)
    (tmp_path / "own.gguf").write_bytes(b"no")
    assert not store.is_downloaded(one)


def test_a_local_folder(store: Store, tmp_path: Path) -> None:
    folder = tmp_path / "big"
    folder.mkdir()
    for name in ("m-00001-of-00002.gguf", "mmproj.gguf"):
        (folder / name).write_bytes(GGUF)
    one = model(str(folder), source="extra_models_dir", roles={"mmproj": "mmproj.gguf"})
    assert not store.is_downloaded(one)
    (folder / "m-00002-of-00002.gguf").write_bytes(GGUF)
    assert store.locate(one) == {"main": folder / "m-00001-of-00002.gguf", "mmproj": folder / "mmproj.gguf"}
    assert store.locate(model(str(folder), source="local_path", recipe="onnxruntime"))["main"] == folder


def test_a_local_file_of_several_parts(store: Store, tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(GGUF)
    one = model(str(first), source="local_path")
    assert not store.is_downloaded(one)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(GGUF)
    assert store.is_downloaded(one)


def test_uploads_stay_inside_the_cache(store: Store, cache: Path, tmp_path: Path) -> None:
    (cache / "models--user.x").mkdir(parents=True)
    (cache / "models--user.x" / "m.gguf").write_bytes(GGUF)
    (tmp_path / "outside.gguf").write_bytes(GGUF)
    one = model("models--user.x/m.gguf", source="local_upload")
    assert store.is_downloaded(one)
    assert not store.is_downloaded(model("../outside.gguf", source="local_upload"))
    assert not store.is_downloaded(model(str(tmp_path / "outside.gguf"), source="local_upload"))
    store.delete(one, [])
    assert tree(cache) == set()


# Deleting.


def test_a_repository_of_one_model_goes_as_a_whole(store: Store, cache: Path) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf")
    put(cache, "o/n", "README.md", b"x")
    (cache / "models--o--n" / "blobs" / "f00.incomplete").write_bytes(b"x")
    (cache / ".locks" / "models--o--n").mkdir(parents=True)
    (cache / ".locks" / "models--o--n" / "f00.lock").touch()
    store.delete(model("o/n:Q4_K_M"), [])
    assert tree(cache) == set()


def test_a_shared_repository_loses_the_models_files_only(store: Store, cache: Path) -> None:
    put(cache, "o/n", "config.json", b"{}")
    put(cache, "o/n", "sub/m-Q4_K_M.gguf", GGUF + b"4")
    kept = put(cache, "o/n", "m-Q8_0.gguf", GGUF + b"8")
    one, other = model("o/n:sub/m-Q4_K_M.gguf", name="one"), model("o/n:Q8_0", name="other")
    store.delete(one, [one, other])
    assert store.is_downloaded(other)
    assert kept.read_bytes() == GGUF + b"8"
    assert {path.name for path in kept.parent.iterdir()} == {"config.json", "m-Q8_0.gguf"}
    assert len(list((cache / "models--o--n" / "blobs").iterdir())) == 2
    store.delete(other, [])
    assert tree(cache) == set()


def test_a_model_that_is_not_here_protects_nothing(store: Store, cache: Path) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf")
    store.delete(model("o/n:Q4_K_M", name="one"), [model("o/n:Q8_0", name="other")])
    assert tree(cache) == set()


def test_a_role_in_a_shared_repository(store: Store, cache: Path) -> None:
    put(cache, "o/a", "m-Q4_K_M.gguf")
    vae = put(cache, "o/vae", "ae.safetensors", b"v")
    one = model("o/a:Q4_K_M", name="one", roles={"vae": "o/vae:ae.safetensors"})
    put(cache, "o/b", "m-Q4_K_M.gguf")
    other = model("o/b:Q4_K_M", name="other", roles={"vae": "o/vae:ae.safetensors"})
    store.delete(one, [other])
    assert vae.exists()
    assert not (cache / "models--o--a").exists()
    assert store.is_downloaded(other)


def test_links_are_not_followed_out_of_the_cache(store: Store, cache: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    (outside / "snapshots" / A).mkdir(parents=True)
    (outside / "m-Q4_K_M.gguf").write_bytes(GGUF)
    put(cache, "o/n", "x-Q8_0.gguf")
    snapshot = cache / "models--o--n" / "snapshots" / A
    (snapshot / "m-Q4_K_M.gguf").symlink_to(outside / "m-Q4_K_M.gguf")
    (snapshot / "folder").symlink_to(outside)
    before = tree(outside)
    store.delete(model("o/n:Q4_K_M", name="one"), [model("o/n:Q8_0", name="other")])
    assert tree(outside) == before
    store.delete(model("o/n:Q8_0", name="other"), [])
    assert tree(outside) == before
    assert tree(cache) == set()
    (cache / "models--o--linked").symlink_to(outside)
    store.delete(model("o/linked:Q4_K_M"), [])
    assert tree(outside) == before
    assert not (cache / "models--o--linked").is_symlink()


@pytest.mark.parametrize("main", ["../outside:Q4_0", "../..:x", "..", ".:x", "/:x"])
def test_delete_stays_inside_the_cache(store: Store, cache: Path, tmp_path: Path, main: str) -> None:
    cache.mkdir()
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "file").touch()
    before = tree(tmp_path)
    store.delete(model(main), [])
    assert tree(tmp_path) == before


@pytest.mark.parametrize(
    ("path", "safe"),
    [
        ("a.gguf", True),
        ("a/b/c d.gguf", True),
        ("..a/b..c", True),
        ("ümlaut/模型.gguf", True),
        ("", False),
        ("../a", False),
        ("a/../b", False),
        ("/a", False),
        ("a//b", False),
        ("a/", False),
        ("a\\b", False),
        ("C:/x", False),
        ("a\0b", False),
        ("a\nb", False),
        ("x" * 300, False),
        ("a/" * 600 + "b", False),
        ("nul", False),
        ("dir/COM1.gguf", False),
        ("trailing.", False),
    ],
)
def test_safe_paths(path: str, safe: bool) -> None:
    assert is_safe(path) is safe


def test_a_clock_that_ticks_coarsely(store: Store, cache: Path) -> None:
    snapshot = put(cache, "o/n", "m-Q4_K_M.gguf").parent
    tick = time.time_ns() - 1_000_000_000
    os.utime(snapshot, ns=(tick, tick))
    assert not store.is_downloaded(model("o/n:Q8_0"))
    put(cache, "o/n", "m-Q8_0.gguf")
    os.utime(snapshot, ns=(tick, tick))
    assert store.is_downloaded(model("o/n:Q8_0"))


def test_time_is_what_makes_an_answer_old(cache: Path, store: Store) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf")
    age(cache)
    assert store.is_downloaded(model("o/n:Q4_K_M"))
    put(cache, "o/n", "m-Q8_0.gguf")
    assert (cache / "models--o--n").stat().st_mtime < time.time()
    assert store.is_downloaded(model("o/n:Q8_0"))


def other_commit(cache: Path) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf", gguf(tail=b"new"), revision=B)


@pytest.mark.parametrize(
    "change",
    [
        lambda cache: next((cache / "models--o--n" / "blobs").iterdir()).unlink(),
        lambda cache: (cache / "models--o--n" / "snapshots" / A / "m-Q4_K_M.gguf").unlink(),
        lambda cache: next((cache / "models--o--n" / "blobs").iterdir()).write_bytes(GGUF + b"more"),
        lambda cache: (cache / "models--o--n" / "snapshots" / A / "m-Q4_K_M.gguf.partial").touch(),
        lambda cache: (cache / "models--o--n" / "refs" / "main").unlink(),
        lambda cache: (cache / "models--o--n").rename(cache / "away"),
        lambda cache: put(cache, "o/other", "m-Q4_K_M.gguf"),
        other_commit,
    ],
)
def test_a_witness_of_a_look_holds_until_something_changes(
    store: Store, cache: Path, change: Callable[[Path], None]
) -> None:
    models = [model("o/n:Q4_K_M"), model("o/other:Q4_K_M")]
    put(cache, "o/n", "m-Q4_K_M.gguf")
    age(cache)
    witnesses = [store.look(one).witness for one in models]
    assert None not in witnesses and all(store.holds(one) for one in witnesses if one)
    change(cache)
    with store.at_once():
        assert not all(store.holds(one) for one in witnesses if one)


def test_no_witness_of_what_has_just_changed(store: Store, cache: Path) -> None:
    put(cache, "o/n", "m-Q4_K_M.gguf")
    age(cache)
    file = next((cache / "models--o--n" / "blobs").iterdir())
    os.utime(file)
    assert store.look(model("o/n:Q4_K_M")).witness is None


def test_witnesses_of_local_files(store: Store, tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(GGUF)
    age(tmp_path)
    witness = store.look(model(str(file), source="local_path")).witness
    assert witness is not None and store.holds(witness)
    file.unlink()
    assert not store.holds(witness)
    # Deep inside a folder everything may change without a trace on the way.
    folder = model(str(tmp_path), recipe="kokoro", source="local_path")
    assert store.look(folder).located["main"] == tmp_path
    assert store.look(folder).witness is None
