from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator

import pytest

from tests.cli.conftest import PATIENCE, Shell
from tests.cli.fake_daemon import FakeDaemon
from tests.cli.terminal import Terminal


@pytest.fixture
def terminal(lemonade: Shell, request: pytest.FixtureRequest) -> Iterator[Terminal]:
    opened = Terminal(lemonade.command("run", *request.param), lemonade.env)
    yield opened
    opened.close()


@pytest.mark.parametrize("terminal", [("echo", "--system", "Be brief.")], indirect=True)
def test_a_conversation_remembers(terminal: Terminal, daemon: FakeDaemon) -> None:
    terminal.expect(">>> ")
    terminal.type("first\n")
    terminal.expect(r'"content": "first"\}\]\r\n.*>>> ')
    terminal.type("second\n")
    terminal.expect(r'"content": "second"\}\]\r\n.*>>> ')
    terminal.type("/clear\n")
    terminal.expect("forgotten")
    terminal.type("/system Be long.\n")
    terminal.expect("System prompt: Be long.")
    terminal.type("third \\\nand more\n")
    terminal.expect(r"third \\\\nand more|third \\nand more")
    terminal.expect(">>> ")
    terminal.type("\x04")
    assert terminal.process.wait(PATIENCE) == 0
    first, second, third = [body["messages"] for body in daemon.bodies("/v1/chat/completions")]
    assert [message["role"] for message in second] == ["system", "user", "assistant", "user"]
    assert second[:2] == first
    assert third == [{"role": "system", "content": "Be long."}, {"role": "user", "content": "third \nand more"}]


@pytest.mark.parametrize("terminal", [("endless",)], indirect=True)
def test_ctrl_c_stops_the_answer_and_keeps_the_chat(terminal: Terminal, daemon: FakeDaemon) -> None:
    terminal.expect(">>> ")
    terminal.type("go\n")
    terminal.expect("on and on and ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect(r"\(stopped\)")
    assert daemon.hung_up.wait(PATIENCE)
    terminal.expect(">>> ")
    terminal.process.send_signal(signal.SIGINT)
    terminal.expect(">>> ")
    terminal.type("/model good\n")
    terminal.expect("Model: good")
    terminal.type("again\n")
    terminal.expect("Hello, wörld.")
    messages = daemon.bodies("/v1/chat/completions")[-1]["messages"]
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    terminal.type("/exit\n")
    assert terminal.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("terminal", [("fails",)], indirect=True)
def test_a_failure_does_not_end_the_chat(terminal: Terminal) -> None:
    terminal.expect(">>> ")
    terminal.type("hi\n")
    terminal.expect("Error: The engine died.")
    terminal.type("/model nobody\n")
    terminal.expect("Error: Model 'nobody' was not found.")
    terminal.type("/what\n")
    terminal.expect("There is no command /what")
    terminal.type("/quit\n")
    assert terminal.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("terminal", [("thinks", "hi")], indirect=True)
def test_thinking_is_dimmed_on_a_terminal(terminal: Terminal) -> None:
    shown = terminal.expect("Hello, wörld.")
    assert "\x1b[2mHmm, let me see.\x1b[0m" in shown
    assert terminal.process.wait(PATIENCE) == 0


@pytest.mark.parametrize("terminal", [("controls", "hi")], indirect=True)
def test_a_model_does_not_control_the_terminal(terminal: Terminal) -> None:
    assert "\x1b]0" not in terminal.expect("a]0;title")


@pytest.mark.parametrize("terminal", [("absent", "hi")], indirect=True)
def test_a_download_has_a_bar_per_file(terminal: Terminal) -> None:
    shown = terminal.expect("Hello, wörld.")
    for name in ("[1/2] absent-1.gguf", "[2/2] absent-2.gguf"):
        assert name in shown
    assert "4.0/4.0 MB" in shown
    assert terminal.process.wait(PATIENCE) == 0


def test_prompts_do_not_get_into_a_file(lemonade: Shell) -> None:
    person, keyboard = pty.openpty()
    os.write(person, b"hi\n\x04")
    ended = subprocess.run(
        lemonade.command("run", "good"),
        stdin=keyboard,
        capture_output=True,
        env=lemonade.env,
        timeout=PATIENCE,
        check=False,
    )
    os.close(keyboard)
    os.close(person)
    assert (ended.returncode, ended.stdout.decode()) == (0, "Hello, wörld.\n")
    assert b">>> " in ended.stderr
