from __future__ import annotations

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
