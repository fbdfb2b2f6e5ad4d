from __future__ import annotations

import json
from pathlib import Path

import pytest

from lemonade.address import Address
from lemonade.errors import ConfigError


@pytest.mark.parametrize(
    ("host", "port", "env", "config", "url"),
    [
        (None, None, {}, {}, "http://localhost:13305"),
        (None, None, {}, {"port": 1234, "host": "0.0.0.0"}, "http://localhost:1234"),
        (None, None, {}, {"port": "wrong", "host": "box"}, "http://box:13305"),
        (None, None, {"LEMONADE_PORT": "99", "LEMONADE_HOST": "h"}, {"port": 1234}, "http://h:99"),
        (None, None, {"LEMONADE_HOST": "0.0.0.0"}, {}, "http://localhost:13305"),
        ("a", 5, {"LEMONADE_PORT": "99", "LEMONADE_HOST": "h"}, {"port": 1234}, "http://a:5"),
        ("::1", 5, {}, {}, "http://[::1]:5"),
        ("https://box.lan", None, {"LEMONADE_PORT": "99"}, {}, "https://box.lan:443"),
        ("http://box:8000", None, {}, {}, "http://box:8000"),
        ("http://box:8000", 9, {}, {}, "http://box:9"),
    ],
)
def test_where_the_daemon_is(
    tmp_path: Path, host: str | None, port: int | None, env: dict[str, str], config: dict[str, object], url: str
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(config))
    assert str(Address.find(host, port, env=env, config=tmp_path)) == url


@pytest.mark.parametrize(
    "host", ["http://", "http://[", "ftp://x", "http://x:0", "http://x:99999", "a b", "a/b", "a\n", "\udcff", "me@box"]
)
def test_what_is_no_address(host: str) -> None:
    with pytest.raises(ConfigError):
        Address.find(host, env={})


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1"])
def test_local(host: str) -> None:
    assert Address(host, 1).is_local
    assert not Address("10.0.0.1", 1).is_local
