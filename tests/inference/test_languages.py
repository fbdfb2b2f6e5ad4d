from __future__ import annotations

import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference.languages import NAMES, code, name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("de-AT", "de"),
        ("pt_BR", "pt"),
        ("German", "de"),
        ("haitian_creole", "ht"),
        ("nb", "no"),
        ("jv", "jw"),
        ("yue", "yue"),
        ("", "auto"),
        ("auto", "auto"),
        (" Auto ", "auto"),
    ],
)
def test_what_clients_write(written: str, meant: str) -> None:
    assert code(written) == meant


@pytest.mark.parametrize("written", ["xx", "klingon", "e", "123", "en;de"])
def test_what_no_model_knows(written: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        code(written)
    assert caught.value.param == "language"


def test_names() -> None:
    assert len(NAMES) == 100
    assert (name("de"), name("ht"), name("")) == ("german", "haitian creole", "")
