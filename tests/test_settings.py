from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from lemonade.errors import ConfigError
from lemonade.settings import Layer, Settings, flatten, nest, write_json
from lemonade.settings_table import SETTINGS


def stored(directory: Path) -> Any:
    return json.loads((directory / "config.json").read_text())


def test_later_layers_win_and_say_where_a_value_comes_from(tmp_path: Path) -> None:
    base = tmp_path / "defaults.json"
    write_json(base, {"port": 1000, "host": "a", "log_level": "debug"})
    write_json(tmp_path / "config.json", {"port": 1001, "host": "b"})
    env = {"LEMONADE_DEFAULTS_PATH": str(base), "LEMONADE_PORT": "1002"}
    settings = Settings.open(tmp_path, env, {"offline": True, "broadcast": None})
    assert (settings["port"], settings.origin("port")) == (1002, "LEMONADE_PORT")
    assert (settings["host"], settings.origin("host")) == ("b", str(tmp_path / "config.json"))
    assert (settings["log_level"], settings.origin("log_level")) == ("debug", str(base))
    assert (settings["offline"], settings.origin("offline")) == (True, "command line")
    assert settings.origin("broadcast") == "default"


def test_every_default_passes_its_own_check() -> None:
    assert not {key: reason for key, setting in SETTINGS.items() if (reason := setting.check(setting.default))}
    assert dict(flatten(Settings.defaults())) == {key: setting.default for key, setting in SETTINGS.items()}


def test_nested_dotted_and_flat_keys_are_one(tmp_path: Path) -> None:
    settings = Settings.open(tmp_path, {})
    for changes in (
        {"llamacpp": {"args": "--a"}},
        {"llamacpp.args": "--b"},
        {"llamacpp_args": "--c"},
    ):
        assert settings.change(changes, persist=True) == {"llamacpp": {"args": next(flatten(changes))[1]}}
    assert stored(tmp_path) == {"llamacpp": {"args": "--c"}}
    with pytest.raises(ConfigError, match="given twice"):
        settings.change({"llamacpp_args": "--x", "llamacpp": {"args": "--y"}}, persist=False)


def test_the_file_stays_sparse_and_keeps_what_it_does_not_know(tmp_path: Path) -> None:
    write_json(tmp_path / "config.json", {"port": 2000, "future": {"key": 1}})
    settings = Settings.open(tmp_path, {})
    assert settings.problems
    settings.change({"port": 13305, "offline": True}, persist=True)
    assert stored(tmp_path) == {"future": {"key": 1}, "offline": True}


def test_a_change_while_running_outranks_the_environment(tmp_path: Path) -> None:
    settings = Settings.open(tmp_path, {"LEMONADE_PORT": "3000"})
    settings.change({"port": 4000}, persist=True)
    assert settings["port"] == 4000
    assert Settings.open(tmp_path, {"LEMONADE_PORT": "3000"})["port"] == 3000


def test_what_is_not_persisted_is_gone_after_a_restart(tmp_path: Path) -> None:
    settings = Settings.open(tmp_path, {})
    settings.change({"ctx_size": 2048}, persist=False)
    assert settings["ctx_size"] == 2048
    assert not (tmp_path / "config.json").exists()


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({}, None),
        ({"nope": 1}, "nope"),
        ({"port": 0}, "port"),
        ({"port": True}, "port"),
        ({"port": "13305"}, "port"),
        ({"ctx_size": 1.5}, "ctx_size"),
        ({"log_level": "loud"}, "log_level"),
        ({"models_dir": "~nobody-here/models"}, "models_dir"),
        ({"extra_models_dir": "~nobody-here/models"}, "extra_models_dir"),
        ({"extra_models_dir": "/" + 5000 * "a"}, "extra_models_dir"),
        ({"auto_evict_threshold_pct": 0}, "auto_evict_threshold_pct"),
        ({"cloud_providers": []}, "cloud_providers"),
        ({"telemetry": {"nope": 1}}, "telemetry.nope"),
        ({"offline": True, "host": 5}, "host"),
    ],
)
def test_a_refused_change_names_the_key_and_changes_nothing(
    tmp_path: Path, changes: Mapping[str, Any], param: str | None
) -> None:
    settings = Settings.open(tmp_path, {})
    with pytest.raises(ConfigError) as caught:
        settings.change(changes, persist=True)
    assert caught.value.param == param
    assert settings.snapshot() == Settings.defaults()
    assert not (tmp_path / "config.json").exists()


def test_listeners_hear_only_of_values_that_differ(tmp_path: Path) -> None:
    settings = Settings.open(tmp_path, {})
    heard: list[Mapping[str, Any]] = []
    settings.subscribe(heard.append)
    settings.change({"port": 13305, "offline": True}, persist=False)
    settings.change({"offline": True}, persist=False)
    assert heard == [{"offline": True}]


def test_a_higher_floor_may_constrain(tmp_path: Path) -> None:
    settings = Settings.open(tmp_path, {})
    settings.constrain("llamacpp.backend", lambda value: None if value == "cpu" else "must be one of cpu")
    with pytest.raises(ConfigError, match="must be one of cpu"):
        settings.change({"llamacpp": {"backend": "rocm"}}, persist=False)
    settings.change({"llamacpp": {"backend": "cpu"}}, persist=False)


@pytest.mark.parametrize("text", ["{", "[1]", "\xff\xfe", "", '{"a":' * 20_000])
def test_a_file_that_is_no_object_is_set_aside(tmp_path: Path, text: str) -> None:
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    settings = Settings.open(tmp_path, {})
    assert settings.snapshot() == Settings.defaults()
    assert "set aside" in settings.problems[0]
    assert (tmp_path / "config.json.corrupted").read_text(encoding="latin-1") == text


def test_a_value_that_cannot_hold_is_left_out_of_its_layer() -> None:
    settings = Settings([Layer("file", {"port": "x", "host": "h", "nope": 1})])
    assert (settings["port"], settings["host"]) == (13305, "h")
    assert len(settings.problems) == 2


def test_a_wrong_variable_names_itself(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="LEMONADE_PORT"):
        Settings.open(tmp_path, {"LEMONADE_PORT": "many"})


def test_nest_and_flatten_are_reverses() -> None:
    tree = {"a": {"b": 1, "c": {"d": 2}}, "telemetry": {"otlp": {"headers": {"x.y": "z"}}}}
    assert nest(dict(flatten(tree))) == tree


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x.json"
    write_json(file, {"a": 1})
    with pytest.raises(TypeError):
        write_json(file, {"a": object()})
    assert json.loads(file.read_text()) == {"a": 1}
    assert [path.name for path in tmp_path.iterdir()] == ["x.json"]


def test_a_bad_value_in_the_file_stays_ignored_after_a_change(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"extra_models_dir": 5, "max_loaded_models": 2}')
    settings = Settings.open(tmp_path, {})
    settings.change({"ctx_size": 4096}, persist=True)
    assert (settings["extra_models_dir"], settings["max_loaded_models"], settings["ctx_size"]) == ("", 2, 4096)
    assert json.loads((tmp_path / "config.json").read_text())["extra_models_dir"] == 5, "it is a person's to mend"


def test_a_byte_order_mark_is_no_fault(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"ctx_size": 4096}', encoding="utf-8-sig")
    settings = Settings.open(tmp_path, {})
    assert (settings["ctx_size"], settings.problems) == (4096, [])


def test_half_a_character_in_the_file_stands_in_the_way_of_no_change(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"future": "\\ud800 \u00fc"}')
    settings = Settings.open(tmp_path, {})
    settings.change({"port": 2000}, persist=True)
    assert json.loads((tmp_path / "config.json").read_text()) == {"future": "\ud800 \u00fc", "port": 2000}
