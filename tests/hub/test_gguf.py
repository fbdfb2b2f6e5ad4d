from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lemonade.hub.gguf import MAX_STRING, Header, InvalidGGUF, has_magic, read_header
from tests.hub.gguf_file import gguf, string, value

LLAMA: dict[str, Any] = {
    "general.architecture": "llama",
    "general.name": "Tiny",
    "llama.context_length": 8192,
    "llama.block_count": 4,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 8,
    "llama.attention.head_count_kv": 2,
    "tokenizer.ggml.tokens": ["a", "b", "c"],
    "tokenizer.ggml.scores": [0.0, 1.0, 2.0],
    "tokenizer.chat_template": "{{ messages }}",
}


def read(tmp_path: Path, content: bytes) -> Header:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    return read_header(path)


def test_facts(tmp_path: Path) -> None:
    header = read(tmp_path, gguf(LLAMA))
    assert header == Header(
        architecture="llama",
        context_length=8192,
        block_count=4,
        embedding_length=64,
        heads_kv=(2, 2, 2, 2),
        key_length=8,
        chat_template="{{ messages }}",
    )


def test_facts_that_come_before_the_architecture(tmp_path: Path) -> None:
    header = read(tmp_path, gguf({"gemma3.context_length": 32768, "general.architecture": "gemma3"}))
    assert header.context_length == 32768


def test_layers_that_differ(tmp_path: Path) -> None:
    pairs = {
        "general.architecture": "gemma4",
        "gemma4.block_count": 3,
        "gemma4.attention.head_count_kv": [8, 8, 1],
        "gemma4.attention.key_length": 512,
        "gemma4.attention.key_length_swa": 256,
        "gemma4.attention.value_length": 384,
        "gemma4.attention.shared_kv_layers": 18,
        "gemma4.attention.sliding_window_pattern": [True, True, False],
        "gemma4.full_attention_interval": 4,
    }
    header = read(tmp_path, gguf(pairs))
    assert header.heads_kv == (8, 8, 1)
    assert header.sliding_window_pattern == (True, True, False)
    assert (header.key_length, header.key_length_swa, header.full_attention_interval) == (512, 256, 4)
    assert (header.value_length, header.shared_kv_layers) == (384, 18)


def test_a_sliding_window_period(tmp_path: Path) -> None:
    pairs = {"general.architecture": "x", "x.block_count": 4, "x.attention.sliding_window_pattern": 2}
    assert read(tmp_path, gguf(pairs)).sliding_window_pattern == (True, False, True, False)


@pytest.mark.parametrize(
    ("pairs", "capability"),
    [
        ({"general.architecture": "qwen2vl"}, "vision"),
        ({"general.architecture": "clip", "clip.vision.image_size": 448}, "vision"),
        ({"general.name": "Llava 1.6"}, "vision"),
        ({"qwen3.nextn_predict_layers": 1}, "mtp"),
        ({"tokenizer.chat_template": "{% if tools %}<tool_call>{% endif %}"}, "tool-calling"),
        ({"tokenizer.chat_template.tool_use": "function_call"}, "tool-calling"),
    ],
)
def test_capabilities(tmp_path: Path, pairs: dict[str, Any], capability: str) -> None:
    assert read(tmp_path, gguf({"general.architecture": "llama", **pairs})).capabilities == {capability}


def test_no_capabilities_by_chance(tmp_path: Path) -> None:
    pairs = {
        "general.architecture": "llama",
        "general.description": "vision and tool_call",
        "x.nextn_predict_layers": 0,
    }
    assert read(tmp_path, gguf(pairs)).capabilities == frozenset()


def test_a_large_vocabulary_is_passed_over(tmp_path: Path) -> None:
    tokens = [f"token {number}" for number in range(150_000)]
    header = read(tmp_path, gguf({**LLAMA, "tokenizer.ggml.tokens": tokens, "last": "x", "llama.context_length": 77}))
    assert header.context_length == 77


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(1, 200), st.integers(0, 400)), max_size=12),
    st.sampled_from([b"a", b"\0", b"\x08\0\0\0\0\0\0\0", b"\xff"]),
)
def test_strings_of_all_lengths_are_passed_over(tmp_path: Path, runs: list[tuple[int, int]], fill: bytes) -> None:
    strings = [(fill * size)[:size] for count, size in runs for _ in range(count)]
    array = struct.pack("<IIQ", 9, 8, len(strings)) + b"".join(struct.pack("<Q", len(one)) + one for one in strings)
    body = (
        string("general.architecture") + value("llama") + string("a") + array + string("llama.block_count") + value(7)
    )
    assert read(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 3) + body).block_count == 7
    if strings and strings[-1]:
        with pytest.raises(InvalidGGUF, match="ends inside"):
            read(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 2) + body[: body.index(array) + len(array) - 1])


def test_what_is_read_in_all_is_bounded(tmp_path: Path) -> None:
    pairs = {f"tokenizer.chat_template.{number}": "tool_call " * 20_000 for number in range(40)}
    header = read(
        tmp_path,
        gguf({"general.architecture": "llama", **pairs, "tokenizer.chat_template": "x", "llama.block_count": 3}),
    )
    # What comes too late is not there, but what is small is.
    assert (header.block_count, header.capabilities) == (3, {"tool-calling"})
    with pytest.raises(InvalidGGUF, match="key is too long"):
        read(tmp_path, gguf({f"{number:02}" + "k" * 60_000: 1 for number in range(40)}))


def test_a_string_larger_than_the_window_is_passed_over(tmp_path: Path) -> None:
    pairs = {"general.architecture": "llama", "tokenizer.chat_template": "x" * (MAX_STRING + 1), "llama.block_count": 9}
    header = read(tmp_path, gguf(pairs))
    assert header.chat_template is None
    assert header.block_count == 9


def test_the_tensors_are_not_read(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(gguf(LLAMA))
    with path.open("r+b") as file:
        file.truncate(1 << 40)
    assert read_header(path).block_count == 4


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "ends inside"),
        (b"GGU", "ends inside"),
        (b"<!DOCTYPE html><html>a login page</html>", "begin with GGUF"),
        (gguf(version=1), "version 1"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1 << 60), "metadata entries"),
        (gguf(LLAMA)[:-1], "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 62), "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("k" * 70_000) + bytes(9), "key is too long"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<I", 99), "unknown type"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IIQ", 9, 9, 1), "unknown type"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IIQ", 9, 8, 1 << 40), "more strings"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IIQ", 9, 4, 1 << 61), "ends inside"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + string("a") + struct.pack("<IQ", 8, 1 << 50), "ends inside"),
    ],
)
def test_what_is_no_gguf(tmp_path: Path, content: bytes, reason: str) -> None:
    with pytest.raises(InvalidGGUF, match=reason):
        read(tmp_path, content)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edits=st.lists(st.tuples(st.integers(0, 2000), st.binary(min_size=1, max_size=9)), max_size=4),
    cut=st.integers(0, 2000),
)
def test_a_damaged_header_is_read_or_refused(tmp_path: Path, edits: list[tuple[int, bytes]], cut: int) -> None:
    content = bytearray(gguf({**LLAMA, "llama.attention.head_count_kv": [2, 2, 2, 2]}))
    for at, piece in edits:
        at %= len(content)
        content[at : at + len(piece)] = piece
    try:
        header = read(tmp_path, bytes(content[: len(content) - cut]))
    except InvalidGGUF:
        return
    assert header.block_count is None or 0 < header.block_count <= 4096
    assert len(header.heads_kv) <= 4096


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400))
def test_random_pairs_are_read_or_refused(tmp_path: Path, body: bytes) -> None:
    try:
        read(tmp_path, b"GGUF" + struct.pack("<IQQ", 3, 0, 3) + body)
    except InvalidGGUF:
        pass


def test_magic(tmp_path: Path) -> None:
    (tmp_path / "good").write_bytes(b"GGUFrest")
    (tmp_path / "bad").write_bytes(b"GGU")
    assert has_magic(tmp_path / "good")
    assert not has_magic(tmp_path / "bad")
    assert not has_magic(tmp_path / "none")
    assert not has_magic(tmp_path)
