from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from lemonade.catalog import headers as module
from lemonade.catalog.headers import Headers
from lemonade.hub.store import Store
from tests.catalog.world import gguf


def test_a_file_is_read_once_per_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read = module.read_header
    monkeypatch.setattr(module, "read_header", lambda path: reads.append(path) or read(path))
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf("llama", context_length=512))
    headers = Headers(Store(tmp_path).facts)
    for _ in range(3):
        header = headers.of(file)
        assert header is not None
        assert (header.architecture, header.context_length) == ("llama", 512)
    file.write_bytes(gguf("qwen3", context_length=1024))
    assert (header := headers.of(file)) is not None
    assert header.context_length == 1024
    assert len(reads) == 2


def test_what_is_no_gguf_file(tmp_path: Path) -> None:
    headers = Headers(Store(tmp_path).facts)
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"<html>")
    assert headers.of(None) is None
    assert headers.of(tmp_path) is None
    assert headers.of(tmp_path / "none.gguf") is None
    assert headers.of(broken) is None


def test_the_next_daemon_reads_no_file_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read = module.read_header
    monkeypatch.setattr(module, "read_header", lambda path: reads.append(path) or read(path))
    facts, kept = Store(tmp_path).facts, tmp_path / "cache" / "headers.json"
    files = [tmp_path / f"{name}.gguf" for name in "abc"]
    for file in files:
        file.write_bytes(gguf("llama", context_length=512, tokenizer__chat_template="{{ x }}"))
    first = Headers(facts, kept)
    headers = [first.of(file) for file in files]
    first.save()
    files[1].write_bytes(gguf("qwen3", context_length=1024))
    files[2].unlink()
    second = Headers(facts, kept)
    assert second.of(files[0]) == headers[0] and second.of(files[2]) is None
    assert reads == files
    assert (other := second.of(files[1])) is not None and other.context_length == 1024
    second.save()
    assert set(json.loads(kept.read_bytes())["headers"]) == {str(file) for file in files[:2]}


@pytest.mark.parametrize(
    "spoil", [lambda text: "{", lambda text: "[]", lambda text: text.replace('"reader"', '"read"')]
)
def test_what_is_kept_in_another_form_is_read_anew(tmp_path: Path, spoil: Callable[[str], str]) -> None:
    file, kept = tmp_path / "a.gguf", tmp_path / "headers.json"
    file.write_bytes(gguf("llama", context_length=512))
    facts = Store(tmp_path).facts
    first = Headers(facts, kept)
    header = first.of(file)
    first.save()
    kept.write_text(spoil(kept.read_text()))
    assert Headers(facts, kept).of(file) == header is not None


def test_another_version_reads_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, kept = tmp_path / "a.gguf", tmp_path / "headers.json"
    file.write_bytes(gguf("llama", context_length=512))
    first = Headers(Store(tmp_path).facts, kept)
    first.of(file)
    first.save()
    kept.write_text(kept.read_text().replace("512", "513"))
    assert (kept_one := Headers(Store(tmp_path).facts, kept).of(file)) is not None and kept_one.context_length == 513
    monkeypatch.setattr(module, "_READER", "another")
    assert (header := Headers(Store(tmp_path).facts, kept).of(file)) is not None and header.context_length == 512


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    file = tmp_path / "a.gguf"
    file.write_bytes(gguf("llama"))
    headers = Headers(Store(tmp_path).facts, file / "headers.json")
    assert headers.of(file) is not None
    headers.save()
