from __future__ import annotations

import pytest

from lemonade.errors import InvalidArgument
from lemonade.hub.address import Address, read


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("https://huggingface.co/o/n", Address("huggingface", "o/n")),
        ("https://huggingface.co/o/n/", Address("huggingface", "o/n")),
        ("http://www.huggingface.co/o/n?x=1#top", Address("huggingface", "o/n")),
        ("https://huggingface.co/o/n:Q4_K_M", Address("huggingface", "o/n", "Q4_K_M")),
        ("hf.co/o/n:Q4_K_M", Address("huggingface", "o/n", "Q4_K_M")),
        ("https://huggingface.co/o/n/tree/main", Address("huggingface", "o/n")),
        ("https://huggingface.co/o/n/tree/main/folder", Address("huggingface", "o/n")),
        ("https://huggingface.co/o/n/blob/main/a/b%20c.gguf", Address("huggingface", "o/n", "a/b c.gguf")),
        ("https://huggingface.co/o/n/resolve/main/b.gguf?download=true", Address("huggingface", "o/n", "b.gguf")),
        ("https://modelscope.cn/models/o/n", Address("modelscope", "o/n")),
        ("https://www.modelscope.cn/models/o/n/file/view/master/b.gguf", Address("modelscope", "o/n", "b.gguf")),
        ("https://www.modelscope.cn/models/o/n/resolve/master/b.gguf", Address("modelscope", "o/n", "b.gguf")),
        ("https://mirror.example:8443/o/n", Address("huggingface", "o/n")),
    ],
)
def test_addresses(text: str, expected: Address) -> None:
    assert read(text, {"HF_ENDPOINT": "https://mirror.example:8443"}) == expected


@pytest.mark.parametrize("text", ["o/n", "o/n:Q4_0", "o/n:a/b.gguf", "/home/me/x.gguf", "C:\\x.gguf", "x", "", "~/x"])
def test_what_is_no_address(text: str) -> None:
    assert read(text, {}) is None


@pytest.mark.parametrize(
    "text",
    [
        "https://example.org/o/n",
        "ftp://huggingface.co/o/n",
        "https://huggingface.co/o",
        "https://hf.co",
        "https://",
        "http://[::1",
    ],
)
def test_addresses_of_nothing(text: str) -> None:
    for env in ({}, {"HF_ENDPOINT": "http://["}):
        with pytest.raises(InvalidArgument):
            read(text, env)
