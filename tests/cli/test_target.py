from __future__ import annotations

import pytest

from lemonade.cli.target import Target


@pytest.mark.parametrize(
    ("target", "env", "flags"),
    [
        (Target(), {}, ["--port", "13305"]),
        (Target(port=1), {}, ["--port", "1"]),
        (Target("127.0.0.1", 1), {}, ["--port", "1", "--host", "127.0.0.1"]),
        (Target(), {"LEMONADE_HOST": "0.0.0.0", "LEMONADE_PORT": "2"}, ["--port", "2", "--host", "0.0.0.0"]),
        (Target(), {"LEMONADE_HOST": "http://localhost:3"}, ["--port", "3", "--host", "localhost"]),
    ],
)
def test_a_daemon_listens_where_the_command_looks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: object, target: Target, env: dict[str, str], flags: list[str]
) -> None:
    for name in ("LEMONADE_HOST", "LEMONADE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LEMONADE_CONFIG_DIR", str(tmp_path))
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    assert target.serve_flags() == flags
