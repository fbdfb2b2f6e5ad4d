from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.errors import ArchiveRefused
from lemonade.hub import archive as module
from lemonade.hub.archive import unpack
from tests.hub.fake_releases import tar, zipped


def member(name: str, kind: bytes = tarfile.REGTYPE, target: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, target, size
    return info


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], Path]:
    """Unpacks bytes and answers the folder."""

    def run(content: bytes) -> Path:
        (tmp_path / "a").write_bytes(content)
        unpack(tmp_path / "a", tmp_path / "out" / "here")
        return tmp_path / "out" / "here"

    return run


def test_a_tar_with_libraries_and_a_folder_around(opened: Callable[[bytes], Path]) -> None:
    content = tar(
        {"./llama-b1/llama-server": b"program", "./llama-b1/libggml.so.0.1": b"library"},
        member("./llama-b1", tarfile.DIRTYPE),
        member("./llama-b1/libggml.so.0", tarfile.SYMTYPE, "libggml.so.0.1"),
        member("./llama-b1/libggml.so", tarfile.SYMTYPE, "libggml.so.0"),
        member("./llama-b1/copy", tarfile.LNKTYPE, "./llama-b1/libggml.so.0.1"),
    )
    folder = opened(content)
    assert sorted(path.name for path in folder.iterdir()) == [
        "copy", "libggml.so", "libggml.so.0", "libggml.so.0.1", "llama-server",
    ]  # fmt: skip
    assert os.access(folder / "llama-server", os.X_OK)
    assert (folder / "libggml.so").read_bytes() == (folder / "copy").read_bytes() == b"library"
    assert not (folder / "libggml.so").readlink().is_absolute()


def test_a_zip_without_a_folder_around(opened: Callable[[bytes], Path]) -> None:
    folder = opened(zipped({"llama-server.exe": b"MZ", "sub/x.dll": b"y"}))
    assert (folder / "llama-server.exe").read_bytes() == b"MZ"
    assert (folder / "sub" / "x.dll").read_bytes() == b"y"


def test_owners_and_rights_of_the_archive_do_not_count(opened: Callable[[bytes], Path]) -> None:
    info = member("secret")
    info.mode, info.uid = 0o6777, 12345
    folder = opened(tar({"a": b"x"}, info))
    assert stat.S_IMODE((folder / "secret").stat().st_mode) == 0o755
    assert (folder / "secret").stat().st_uid == os.getuid()


def test_what_an_earlier_archive_brought_stays(tmp_path: Path) -> None:
    for number in (1, 2):
        (tmp_path / str(number)).write_bytes(tar({"same": b"%d" % number, f"own{number}": b""}))
        unpack(tmp_path / str(number), tmp_path / "out")
    assert (tmp_path / "out" / "same").read_bytes() == b"1"
    assert (tmp_path / "out" / "own2").exists()


def duplicate_zip() -> bytes:
    target = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with zipfile.ZipFile(target, "w") as made:
            made.writestr("a", b"1")
            made.writestr("a", b"2")
    return target.getvalue()


def zip_link() -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as made:
        info = zipfile.ZipInfo("link")
        info.external_attr = (stat.S_IFLNK | 0o777) << 16
        made.writestr(info, "/etc/passwd")
    return target.getvalue()


def pax_bomb() -> bytes:
    """A header that claims to be 512 MB long, all of which compress to nothing."""
    info = member("x", tarfile.XHDTYPE, size=512 << 20)
    return gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(8 << 20), compresslevel=9)


EVIL = {
    "a parent": tar({"ok": b"1", "../evil": b"x"}),
    "a parent inside": tar({"ok": b"1", "a/../../evil": b"x"}),
    "absolute": tar({"ok": b"1", "/tmp/evil": b"x"}),
    "a drive": tar({"ok": b"1", "C:/evil": b"x"}),
    "a backslash": tar({"ok": b"1", "..\\evil": b"x"}),
    "a link out": tar({"ok": b"1"}, member("l", tarfile.SYMTYPE, "../../../etc")),
    "an absolute link": tar({"ok": b"1"}, member("l", tarfile.SYMTYPE, "/etc/passwd")),
    "a link to nothing": tar({"ok": b"1"}, member("l", tarfile.SYMTYPE, "nothing")),
    "a link to itself": tar({"ok": b"1"}, member("l", tarfile.SYMTYPE, "l")),
    "a link to a folder": tar({"d/ok": b"1"}, member("d", tarfile.DIRTYPE), member("l", tarfile.SYMTYPE, "d")),
    "a hard link out": tar({"ok": b"1"}, member("l", tarfile.LNKTYPE, "/etc/passwd")),
    "below a link": tar({"ok": b"1", "l/evil": b"x"}, member("l", tarfile.SYMTYPE, "ok")),
    "below a file": tar({"ok": b"1", "ok/evil": b"x"}),
    "a device": tar({"ok": b"1"}, member("null", tarfile.CHRTYPE)),
    "a pipe": tar({"ok": b"1"}, member("pipe", tarfile.FIFOTYPE)),
    "two of one name": tar({"ok": b"1"}, member("ok", size=1)),
    "two of one name to Windows": tar({"ok": b"1", "OK": b"2"}),
    "a control character": tar({"ok": b"1", "a\nb": b"x"}),
    "a zip with a parent": zipped({"ok": b"1", "../evil": b"x"}),
    "a zip with a backslash": zipped({"ok": b"1", "..\\evil": b"x"}),
    "a zip with two of one name": duplicate_zip(),
    "a zip with a link": zip_link(),
    "a cut tar": tar({"ok": os.urandom(50_000)})[:-20_000],
    "a cut zip": zipped({"ok": os.urandom(50_000)})[:-20_000],
    "a huge header": pax_bomb(),
    "a page": b"<!DOCTYPE html>",
    "nothing": b"",
    "an empty tar": tar({}),
}


@pytest.mark.parametrize("content", EVIL.values(), ids=EVIL.keys())
def test_an_archive_that_no_honest_one_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a").write_bytes(content)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ArchiveRefused, match="is not unpacked: it holds"):
        unpack(tmp_path / "a", tmp_path / "out" / "here")
    assert sorted(tmp_path.rglob("*")) == before, "nothing may be written"


def test_a_bomb(tmp_path: Path) -> None:
    for content in (
        tar({}, *(member(str(number), size=1 << 20) for number in range(5))),
        zipped({"a": bytes(5 << 20)}),
    ):
        (tmp_path / "a").write_bytes(content)
        with pytest.raises(ArchiveRefused, match="more than 4 MB"):
            unpack(tmp_path / "a", tmp_path / "out", max_size=4 << 20)
        assert not (tmp_path / "out").exists()


def test_too_many_entries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 3)
    (tmp_path / "a").write_bytes(tar({str(number): b"" for number in range(4)}))
    with pytest.raises(ArchiveRefused, match="more than 3 entries"):
        unpack(tmp_path / "a", tmp_path / "out")


def test_it_can_be_called_off(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(tar({"a": b"x"}))

    def stop() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        unpack(tmp_path / "a", tmp_path / "out", check=stop)
