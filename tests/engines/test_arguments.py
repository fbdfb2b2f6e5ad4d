from __future__ import annotations

import pytest

from lemonade.engines.arguments import Flag, parse
from lemonade.errors import InvalidArgument

FLAGS = (
    Flag(("-t", "--threads"), "threads", int),
    Flag(("--quick",), "speed", None, 2.0),
    Flag(("--slow",), "speed", None, 0.5),
    Flag(("--name",), "name", str),
)


def read(text: str) -> dict[str, object]:
    return parse(text, FLAGS, option="x_args", reserved={"--port": "the daemon chooses it"})


def test_flags_set_what_the_table_says() -> None:
    assert read("") == {}
    assert read("-t 4 --quick --name 'two words'") == {"threads": 4, "speed": 2.0, "name": "two words"}
    assert read("--threads=4") == {"threads": 4}
    assert read("--quick --slow") == {"speed": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("--thread 4", "'--thread' is not known. Did you mean '--threads'"),
        ("stray", "'stray' is not known"),
        ("--port 1", "'--port' cannot be set here: the daemon chooses it"),
        ("--threads", "'--threads' needs a value"),
        ("--threads many", "'--threads' invalid literal"),
        ("'open", "No closing quotation"),
    ],
)
def test_what_is_wrong_is_named(text: str, message: str) -> None:
    with pytest.raises(InvalidArgument, match="x_args") as caught:
        read(text)
    assert message in caught.value.message
    assert caught.value.param == "x_args"
