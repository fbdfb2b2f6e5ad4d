from __future__ import annotations

import json
import os
import signal
import subprocess
from typing import Any

import pytest

from tests.cli.conftest import PATIENCE, Shell
from tests.cli.fake_daemon import FakeDaemon


def messages(daemon: FakeDaemon) -> Any:
    return daemon.bodies("/v1/chat/completions")[-1]["messages"]


def test_prints_the_answer_and_nothing_else(lemonade: Shell) -> None:
    ended = lemonade("run", "good", "Say hello.")
    assert (ended.code, ended.out, ended.err) == (0, "Hello, wörld.\n", "")


def test_words_of_the_prompt_need_no_quotes(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("run", "good", "Why", "is", "it?", "--system", "Be brief.", "--max-tokens", "7").code == 0
    body = daemon.bodies("/v1/chat/completions")[0]
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Why is it?"}]
    assert body["max_tokens"] == 7
    assert "temperature" not in body


def test_prompt_from_stdin(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("run", "good", stdin="Grüße\n").out == "Hello, wörld.\n"
    assert messages(daemon) == [{"role": "user", "content": "Grüße"}]


def test_dash_adds_stdin_to_the_prompt(lemonade: Shell, daemon: FakeDaemon) -> None:
    assert lemonade("run", "good", "Sum up:", "-", stdin="Long text.\n").code == 0
    assert messages(daemon) == [{"role": "user", "content": "Sum up:\n\nLong text."}]


def test_stdin_that_is_not_asked_for_is_named(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("run", "good", "Sum up:", stdin="Long text.\n")
    assert ended.out == "Hello, wörld.\n"
    assert "End the prompt with -" in ended.err
    assert messages(daemon) == [{"role": "user", "content": "Sum up:"}]


def test_an_open_pipe_that_nobody_writes_to_does_not_stop_it(lemonade: Shell) -> None:
    reader, writer = os.pipe()
    try:
        ended = subprocess.run(
            lemonade.command("run", "good", "hi"),
            stdin=reader,
            capture_output=True,
            env=lemonade.env,
            timeout=PATIENCE,
            check=True,
        )
    finally:
        os.close(reader)
        os.close(writer)
    assert ended.stdout.decode() == "Hello, wörld.\n"


def test_closed_stdin(lemonade: Shell) -> None:
    import shlex

    line = shlex.join(lemonade.command("run", "good", "hi")) + " <&-"
    ended = subprocess.run(["sh", "-c", line], capture_output=True, env=lemonade.env, timeout=PATIENCE, check=False)
    assert (ended.returncode, ended.stdout.decode()) == (0, "Hello, wörld.\n")


@pytest.mark.parametrize(("arguments", "stdin"), [(("run", "good"), ""), (("run", "good", "  "), ""), (("run",), "")])
def test_no_prompt_is_a_wrong_command_line(lemonade: Shell, arguments: tuple[str, ...], stdin: str) -> None:
    ended = lemonade(*arguments, stdin=stdin)
    assert ended.code == 2
    assert ended.out == ""


@pytest.mark.parametrize(
    ("model", "printed", "reason"),
    [
        ("cut", "Hello, wö\n", "broke before the answer was complete"),
        ("unended", "Hello, wörld.\n", "closed the connection in the middle"),
        ("fails", "Hello, wö\n", "The engine died."),
        ("broken", "Hello, wö\n", "is no JSON"),
        ("nobody", "", "Model 'nobody' was not found."),
    ],
)
def test_an_answer_that_is_not_whole_is_a_failure(lemonade: Shell, model: str, printed: str, reason: str) -> None:
    ended = lemonade("run", model, "hi")
    assert ended.code == 1
    assert ended.out == printed
    assert ended.err.startswith("Error: ")
    assert ended.err.count("\n") == 1
    assert reason in ended.err


def test_an_answer_at_the_limit_says_so_beside_the_answer(lemonade: Shell) -> None:
    ended = lemonade("run", "long", "hi")
    assert (ended.code, ended.out) == (0, "Hello, wörld.\n")
    assert "limit of tokens" in ended.err


def test_thinking_is_not_the_answer(lemonade: Shell) -> None:
    ended = lemonade("run", "thinks", "hi")
    assert (ended.out, ended.err) == ("Hello, wörld.\n", "")


def test_thinking_without_an_answer_is_told(lemonade: Shell) -> None:
    ended = lemonade("run", "silent", "hi")
    assert ended.out == ""
    assert "still thinking" in ended.err


def test_a_pipe_gets_the_answer_unchanged(lemonade: Shell) -> None:
    assert lemonade("run", "controls", "hi").out == "a\x1b]0;title\x07b\n"


def test_json(lemonade: Shell) -> None:
    ended = lemonade("run", "good", "hi", "--json")
    assert json.loads(ended.out)["choices"][0]["message"]["content"] == "Hello, world."


def test_a_missing_model_is_pulled_first(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("run", "absent", "hi")
    assert ended.out == "Hello, wörld.\n"
    assert daemon.bodies("/v1/pull") == [{"model_name": "absent", "stream": True}]
    assert "absent-2.gguf: 100%" in ended.err


def test_recipe_options_load_the_model_first(lemonade: Shell, daemon: FakeDaemon) -> None:
    lemonade("run", "good", "hi")
    assert daemon.bodies("/v1/load") == []
    options = [
        "--ctx-size",
        "4096",
        "--llamacpp",
        "cpu",
        "--llamacpp-args",
        "--threads 2",
        "--pinned",
        "--save-options",
    ]
    assert lemonade("run", "good", "hi", *options).code == 0
    assert daemon.bodies("/v1/load") == [
        {
            "model_name": "good",
            "ctx_size": 4096,
            "llamacpp_backend": "cpu",
            "llamacpp_args": "--threads 2",
            "pinned": True,
            "save_options": True,
        }
    ]


def test_a_reader_that_leaves_is_no_traceback_and_ends_the_request(lemonade: Shell, daemon: FakeDaemon) -> None:
    process = subprocess.Popen(
        lemonade.command("run", "endless", "hi"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lemonade.env
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.read(4) == b"on a"
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(PATIENCE) == 1
    assert daemon.hung_up.wait(PATIENCE)


def test_ctrl_c_ends_the_request(lemonade: Shell, daemon: FakeDaemon) -> None:
    process = subprocess.Popen(
        lemonade.command("run", "endless", "hi"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=lemonade.env
    )
    assert process.stdout is not None
    assert process.stdout.read(4) == b"on a"
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    assert out.endswith(b"\n")
    assert b"Traceback" not in err
    assert daemon.hung_up.wait(PATIENCE)
