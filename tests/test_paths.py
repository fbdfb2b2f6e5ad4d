from __future__ import annotations

from pathlib import Path

import pytest

from lemonade.errors import ConfigError
from lemonade.paths import Paths, models_directory


def test_the_command_line_wins_and_a_lone_cache_is_a_portable_installation(tmp_path: Path) -> None:
    env = {"LEMONADE_CACHE_DIR": "/elsewhere", "LEMONADE_CONFIG_DIR": "/elsewhere"}
    paths = Paths.find(env, cache=tmp_path)
    assert paths.cache == paths.config == tmp_path
    assert paths.runtime == tmp_path / "run"
    assert Paths.find(env, cache=tmp_path, config=tmp_path / "etc").config == tmp_path / "etc"


def test_our_variables_win_over_the_service_managers(tmp_path: Path) -> None:
    manager = {"CACHE_DIRECTORY": "/var/c", "STATE_DIRECTORY": "/var/s", "RUNTIME_DIRECTORY": "/run/x"}
    paths = Paths.find(manager)
    assert (paths.cache, paths.config, paths.runtime) == (Path("/var/c"), Path("/var/s"), Path("/run/x"))
    ours = Paths.find({**manager, "LEMONADE_CACHE_DIR": "/our/c", "LEMONADE_CONFIG_DIR": "/our/s"})
    assert (ours.cache, ours.config) == (Path("/our/c"), Path("/our/s"))


def test_finding_creates_nothing(tmp_path: Path) -> None:
    Paths.find({}, cache=tmp_path / "a")
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize(
    ("env", "configured", "expected"),
    [
        ({"HF_HUB_CACHE": "/h"}, "/m", "/m"),
        ({"HF_HUB_CACHE": "/h", "HF_HOME": "/hh"}, "auto", "/h"),
        ({"HF_HOME": "/hh"}, "", "/hh/hub"),
        ({"XDG_CACHE_HOME": "/x"}, "auto", "/x/huggingface/hub"),
        ({"HF_HUB_CACHE": ""}, "auto", str(Path("~/.cache/huggingface/hub").expanduser())),
    ],
)
def test_the_model_cache_is_the_one_that_other_tools_use(env: dict[str, str], configured: str, expected: str) -> None:
    assert models_directory(env, configured) == Path(expected)


def test_the_home_of_nobody_is_told_with_the_variable() -> None:
    with pytest.raises(ConfigError, match="LEMONADE_CACHE_DIR names the home of somebody who is not there"):
        Paths.find({"LEMONADE_CACHE_DIR": "~nobody-here/cache"})
    with pytest.raises(ConfigError, match="HF_HOME"):
        models_directory({"HF_HOME": "~nobody-here"})
