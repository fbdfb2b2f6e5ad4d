from __future__ import annotations

import json
import signal
import subprocess

import pytest

from lemonade.cli.main import arrange
from tests.cli.conftest import PATIENCE, Shell
from tests.cli.fake_daemon import FakeDaemon

COMMANDS = [
    *("run", "pull", "search", "scan", "list", "load", "unload", "status", "pin", "unpin", "options", "alias"),
    *("check-updates", "export", "import", "delete", "logs", "serve", "config"),
]


@pytest.mark.parametrize("command", [[], *([name] for name in COMMANDS), ["config", "set"]])
def test_help_teaches_by_example(alone: Shell, command: list[str]) -> None:
    ended = alone(*command, "--help")
    assert ended.code == 0
    assert ended.err == ""
    _, _, examples = ended.out.partition("Examples:\n")
    assert any(f"lemonade {' '.join(command)}".strip() in line for line in examples.splitlines())


def test_all_commands_are_in_the_help(alone: Shell) -> None:
    shown = alone("--help").out
    assert all(f"\n  {name} " in shown for name in COMMANDS)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish", "powershell"])
def test_completion_script(alone: Shell, shell: str) -> None:
    ended = alone(env={"_LEMONADE_COMPLETE": f"source_{shell}"})
    assert ended.code == 0
    assert "_LEMONADE_COMPLETE" in ended.out


def test_completion_of_model_names(lemonade: Shell) -> None:
    asked = {"_LEMONADE_COMPLETE": "complete_bash", "COMP_WORDS": "lemonade run go", "COMP_CWORD": "2"}
    assert lemonade(env=asked).out.split() == ["good", "gone"]


def test_completion_without_a_daemon_is_silent(alone: Shell) -> None:
    asked = {"_LEMONADE_COMPLETE": "complete_bash", "COMP_WORDS": "lemonade run go", "COMP_CWORD": "2"}
    ended = alone(env=asked)
    assert (ended.out.strip(), ended.err) == ("", "")


def test_version(alone: Shell) -> None:
    assert alone("--version").out.startswith("lemonade ")


@pytest.mark.parametrize("command", [["list"], ["status"], ["unload"], ["delete", "x"], ["pin", "x"]])
def test_no_daemon(alone: Shell, command: list[str]) -> None:
    ended = alone(*command)
    assert (ended.code, ended.out) == (1, "")
    assert ended.err.count("\n") == 1
    assert "lemonade serve" in ended.err


@pytest.mark.parametrize("command", [["load", "nobody"], ["delete", "nobody"], ["unload", "nobody"], ["pin", "nobody"]])
def test_unknown_model(lemonade: Shell, command: list[str]) -> None:
    ended = lemonade(*command)
    assert (ended.code, ended.out, ended.err) == (1, "", "Error: Model 'nobody' was not found.\n")


@pytest.mark.parametrize(
    "command",
    [["status", "--port", "x"], ["status", "--port", "70000"], ["list", "--nope"], ["run", "m", "--ctx-size", "-2"]],
)
def test_wrong_command_line(alone: Shell, command: list[str]) -> None:
    ended = alone(*command)
    assert (ended.code, ended.out) == (2, "")
    assert "Traceback" not in ended.err


def test_wrong_port_in_the_environment(alone: Shell) -> None:
    ended = alone("status", env={"LEMONADE_PORT": "many"})
    assert ended.code == 1
    assert ended.err == "Error: LEMONADE_PORT must be a port from 1 to 65535, not 'many'.\n"


def test_keys(lemonade: Shell, daemon: FakeDaemon) -> None:
    daemon.key, daemon.admin_key = "secret", "admin"
    ended = lemonade("list")
    assert ended.code == 1
    assert "LEMONADE_API_KEY" in ended.err
    assert lemonade("list", env={"LEMONADE_API_KEY": "secret"}).code == 0
    assert lemonade("list", "--api-key", "secret", env={"LEMONADE_API_KEY": "old"}).code == 0
    assert lemonade("pin", "good", "--api-key", "secret").code == 1
    assert lemonade("pin", "good", env={"LEMONADE_API_KEY": "secret", "LEMONADE_ADMIN_API_KEY": "admin"}).code == 0


def test_list(lemonade: Shell) -> None:
    ended = lemonade("list")
    head, *rows = ended.out.splitlines()
    assert head.split() == ["MODEL", "DOWNLOADED", "SIZE", "RECIPE", "LABELS"]
    assert "\x1b" not in ended.out
    state = {row.split()[0]: row.split()[1] for row in rows}
    assert state["good"] == "yes"
    assert state["absent"] == "no"
    assert state["long"] == "outdated"
    here = [word != "no" for word in state.values()]
    assert here == sorted(here, reverse=True)


def test_list_of_what_is_here(lemonade: Shell) -> None:
    assert "absent" not in lemonade("list", "--downloaded").out
    assert lemonade("list", "ABSENT", "--downloaded").out == ""


@pytest.mark.parametrize(("pattern", "names"), [("oo", ["good"]), ("^g", ["good", "gone"]), ("[", [])])
def test_list_filter(lemonade: Shell, pattern: str, names: list[str]) -> None:
    ended = lemonade("list", pattern, "--json")
    assert [row["id"] for row in json.loads(ended.out)] == names


def test_status(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("status")
    assert f"Lemonade 9.8.7 runs at http://127.0.0.1:{daemon.port}" in ended.out
    assert "No model is loaded." in ended.out
    lemonade("load", "good")
    assert "good" in lemonade("status").out
    assert json.loads(lemonade("status", "--json").out)["port"] == daemon.port


def test_load_sends_what_was_said(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("load", "good", "--ctx-size", "-1", "--no-merge-args", "--json")
    assert json.loads(ended.out)["status"] == "success"
    assert daemon.bodies("/v1/load") == [{"model_name": "good", "ctx_size": -1, "merge_args": False}]


def test_load_of_a_missing_model_pulls_it(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("load", "absent").code == 0
    assert daemon.bodies("/v1/pull")
    assert daemon.bodies("/v1/load")


def test_a_name_with_a_slash(lemonade: Shell) -> None:
    assert lemonade("run", "owner/deep", "hi").out == "Hello, wörld.\n"


def test_unload_delete_pin(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("unload", "good").code == lemonade("unload").code == 0
    assert daemon.bodies("/v1/unload") == [{"model_name": "good"}, {}]
    assert lemonade("delete", "good").code == 0
    assert daemon.bodies("/v1/delete") == [{"model_name": "good"}]
    assert lemonade("pin", "good").code == lemonade("unpin", "good").code == 0
    assert [body["pinned"] for body in daemon.bodies("/internal/pin")] == [True, False]


def test_pull_shows_progress_on_stderr(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("pull", "absent")
    assert (ended.code, ended.out) == (0, "")
    assert "[1/2] absent-1.gguf: 4.0 MB, 0% here" in ended.err
    assert "[1/2] absent-1.gguf: 50%, 2.0 MB/s, 1 min 41 s left" in ended.err
    assert "[2/2] absent-2.gguf: 100%, 2.0 MB/s\n" in ended.err
    assert "\r" not in ended.err


@pytest.mark.parametrize(("model", "reason"), [("gone", "The disk is full."), ("lost", "broke"), ("nobody", "nobody")])
def test_pull_that_fails(lemonade: Shell, model: str, reason: str) -> None:
    ended = lemonade("pull", model)
    assert ended.code == 1
    assert reason in ended.err.splitlines()[-1]
    assert "is here" not in ended.err


@pytest.mark.parametrize(
    "words",
    [
        ["--checkpoint", "main", "o/r:Q4", "--checkpoint", "mmproj", "o/r:m"],
        ["--checkpoint", "o/r:Q4", "--checkpoint", "mmproj=o/r:m"],
    ],
)
def test_pull_of_an_own_model(lemonade: Shell, daemon: FakeDaemon, words: list[str]) -> None:
    ended = lemonade("pull", "Mine", *words, "--recipe", "llamacpp", "--label", "vision")
    assert ended.code == 0
    assert daemon.bodies("/v1/pull") == [
        {
            "model_name": "user.Mine",
            "recipe": "llamacpp",
            "checkpoints": {"main": "o/r:Q4", "mmproj": "o/r:m"},
            "labels": ["vision"],
            "stream": True,
        }
    ]


@pytest.mark.parametrize(
    "words", [["--checkpoint", "o/r"], ["--recipe", "llamacpp"], ["--checkpoint", "mmproj=o/r", "--recipe", "x"]]
)
def test_pull_of_half_a_definition(lemonade: Shell, daemon: FakeDaemon, words: list[str]) -> None:
    assert lemonade("pull", "Mine", *words).code == 2
    assert daemon.bodies("/v1/pull") == []


@pytest.mark.parametrize(("text", "variant"), [("owner/Repo-GGUF", "Q4_K_M"), ("owner/Repo-GGUF:Q8_0", "Q8_0")])
def test_pull_of_a_repository(lemonade: Shell, daemon: FakeDaemon, text: str, variant: str) -> None:
    assert lemonade("pull", text).code == 0
    assert daemon.bodies("/v1/pull")[0] == {
        "model_name": f"user.Repo-GGUF-{variant}",
        "recipe": "llamacpp",
        "checkpoints": {"main": f"owner/Repo-GGUF:{variant}", "mmproj": "owner/Repo-GGUF:mmproj-F16.gguf"},
        "labels": ["vision"],
        "stream": True,
    }


def test_ctrl_c_leaves_the_download_to_the_daemon(lemonade: Shell, daemon: FakeDaemon) -> None:
    process = subprocess.Popen(lemonade.command("pull", "huge"), stderr=subprocess.PIPE, env=lemonade.env)
    assert process.stderr is not None
    assert b"huge-1.gguf" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert b"lemonade pull huge --cancel" in err
    assert b"Traceback" not in err
    assert daemon.hung_up.wait(PATIENCE)


def test_pull_cancel(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("pull", "absent", "--cancel").code == 0
    assert daemon.bodies("/v1/downloads/control") == [{"id": "model:absent", "action": "cancel"}]


def test_global_options_anywhere() -> None:
    assert arrange(["status", "--port", "1", "--json"]) == ["--port", "1", "status", "--json"]
    assert arrange(["status", "--host=h"]) == ["--host=h", "status"]
    assert arrange(["run", "m", "--", "--port", "1"]) == ["run", "m", "--", "--port", "1"]
    assert arrange(["--port"]) == ["--port"]


def test_options_win_over_the_environment(lemonade: Shell, alone: Shell, daemon: FakeDaemon) -> None:
    assert alone("status", "--port", str(daemon.port)).code == 0
    assert alone("status", "--host", f"http://localhost:{daemon.port}").code == 0
