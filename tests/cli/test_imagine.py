from __future__ import annotations

import base64
import io
import os
import pty
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from lemonade.cli.picture import SHOWN, escaped, protocol
from tests.cli.conftest import PATIENCE, Shell
from tests.cli.fake_daemon import PICTURE, FakeDaemon
from tests.engines.sdcpp.looking import file, noise


@pytest.fixture(autouse=True)
def labels(daemon: FakeDaemon) -> None:
    daemon.labels = {"good": ["image"], "long": ["image"], "echo": ["upscaling", "image"]}


def asked(daemon: FakeDaemon, path: str = "/v1/images/generations") -> dict[str, Any]:
    (body,) = daemon.bodies(path)
    assert isinstance(body, dict)
    return body


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.is_file())


def test_a_prompt_becomes_a_file(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    ended = lemonade("imagine", "a", "red apple", "-o", str(tmp_path / "out.png"))
    assert (ended.code, ended.out) == (0, "")
    assert (tmp_path / "out.png").read_bytes() == PICTURE
    assert ended.err.splitlines() == [
        "good: step 1 of 3",
        "good: step 2 of 3",
        "good: step 3 of 3",
        f"The picture is in {tmp_path / 'out.png'}.",
    ]
    assert names(tmp_path) == ["out.png"]
    assert asked(daemon) == {
        "model": "good",
        "prompt": "a red apple",
        "n": 1,
        "seed": -1,
        "stream": True,
        "progress": True,
    }


def test_all_that_can_be_said(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    words = ["--model", "long", "--size", "64x32", "--steps", "4", "--cfg-scale", "1.5", "--seed", "7", "-n", "2"]
    ended = lemonade("imagine", "x", *words, "--negative", "rain", "-o", str(tmp_path / "fox.png"))
    assert ended.code == 0, ended.err
    assert names(tmp_path) == ["fox-1.png", "fox-2.png"]
    wanted = {"model": "long", "size": "64x32", "steps": 4, "cfg_scale": 1.5, "seed": 7, "n": 2}
    assert wanted.items() <= asked(daemon).items()
    assert asked(daemon)["negative_prompt"] == "rain"


def test_a_model_that_is_loaded_is_taken_first(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    daemon.loaded["long"] = {"model_name": "long", "type": "image", "recipe": "sd-cpp", "device": "cpu"}
    assert lemonade("imagine", "x", "-o", str(tmp_path / "out.png")).code == 0
    assert asked(daemon)["model"] == "long"


def test_a_first_model_is_fetched(lemonade: Shell, daemon: FakeDaemon) -> None:
    daemon.labels = {}
    ended = lemonade("imagine", "x", "-o", "-")
    assert ended.code == 1
    assert "SD-Turbo-GGUF" in ended.err, "it is not in this daemon's catalog, but was asked for"


def test_run_draws_with_a_model_that_does(lemonade: Shell, daemon: FakeDaemon) -> None:
    words = lemonade.command("run", "good", "a", "red apple")
    ended = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, env=lemonade.env, timeout=PATIENCE, check=True
    )
    assert ended.stdout == PICTURE
    assert asked(daemon)["prompt"] == "a red apple"
    assert "n" not in asked(daemon)


@pytest.mark.parametrize(
    ("label", "prompt", "hint"),
    [
        ("upscaling", "x.png", "lemonade upscale in.png"),
        ("transcription", "no.wav", "lemonade transcribe"),
    ],
)
def test_run_downloads_nothing_for_a_prompt_of_no_use(
    lemonade: Shell, daemon: FakeDaemon, label: str, prompt: str, hint: str
) -> None:
    daemon.labels = {"absent": [label]}
    ended = lemonade("run", "absent", prompt)
    assert ended.code == 2
    assert hint in " ".join(ended.err.replace("│", " ").split())
    assert daemon.bodies("/v1/pull") == []


def test_a_pipe_gets_the_picture(lemonade: Shell) -> None:
    ended = subprocess.run(
        lemonade.command("imagine", "x"), capture_output=True, env=lemonade.env, timeout=PATIENCE, check=True
    )
    assert ended.stdout == PICTURE


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["imagine", "x", "-o", "out.jpg"], "must end in .png"),
        (["imagine", "x", "-n", "2"], "Several pictures need files"),
        (["imagine", " ", "-o", "out.png"], "The prompt is empty"),
        (["imagine", "x", "-o", "no-such-folder/out.png"], "There is no folder"),
    ],
)
def test_a_wrong_command_line(lemonade: Shell, daemon: FakeDaemon, words: list[str], message: str) -> None:
    ended = lemonade(*words)
    assert ended.code == 2
    assert message in " ".join(ended.err.split())
    assert daemon.requests == []


def test_a_file_that_is_not_there(lemonade: Shell, daemon: FakeDaemon) -> None:
    ended = lemonade("upscale", "no-such-file.png", "-o", "out.png")
    assert (ended.code, ended.err) == (1, "Error: no-such-file.png: No such file or directory\n")
    assert daemon.requests == []


def test_a_broken_connection_leaves_no_file(lemonade: Shell, tmp_path: Path) -> None:
    ended = lemonade("imagine", "x", "--model", "cut", "-o", str(tmp_path / "out.png"))
    assert ended.code == 1
    assert "connection" in ended.err
    assert names(tmp_path) == []


def test_a_larger_picture(lemonade: Shell, daemon: FakeDaemon, tmp_path: Path) -> None:
    (tmp_path / "in.png").write_bytes(file())
    ended = lemonade("upscale", str(tmp_path / "in.png"), "-o", str(tmp_path / "out.png"), "--factor", "2")
    assert ended.code == 0, ended.err
    assert (tmp_path / "out.png").read_bytes() == PICTURE
    assert "echo: part 2 of 3" in ended.err
    body = asked(daemon, "/v1/images/upscale")
    assert base64.b64decode(body["image"]) == file()
    assert (body["model"], body["upscale_factor"]) == ("echo", 2)


def in_terminal(lemonade: Shell, tmp_path: Path, **env: str) -> str:
    """What the command writes on a terminal."""
    master, slave = pty.openpty()
    command = lemonade.command("imagine", "x", "-o", str(tmp_path / "out.png"))
    quiet = {key: value for key, value in lemonade.env.items() if key not in ("TMUX", "TERM_PROGRAM", "LC_TERMINAL")}
    process = subprocess.Popen(command, stdout=slave, stderr=slave, stdin=slave, env={**quiet, **env})
    os.close(slave)
    seen = b""
    try:
        while chunk := os.read(master, 65536):
            seen += chunk
    except OSError:
        pass
    assert process.wait(PATIENCE) == 0
    os.close(master)
    return seen.decode()


def test_a_terminal_that_can_shows_it(lemonade: Shell, tmp_path: Path) -> None:
    shown = in_terminal(lemonade, tmp_path, TERM="xterm-kitty")
    assert f"\x1b_Gf=100,a=T,m=0;{base64.b64encode(PICTURE).decode()}\x1b\\" in shown
    assert "3/3" in shown, "the bar"
    assert "\x1b_G" not in in_terminal(lemonade, tmp_path, TERM="xterm-256color")


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"TERM": "xterm-256color"}, None),
        ({}, None),
        ({"TERM": "xterm-kitty"}, "kitty"),
        ({"TERM": "xterm-256color", "KITTY_WINDOW_ID": "1"}, "kitty"),
        ({"TERM": "xterm-ghostty"}, "kitty"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "iTerm.app"}, "iterm"),
        ({"TERM": "xterm-256color", "TERM_PROGRAM": "WezTerm"}, "iterm"),
        ({"TERM": "xterm-256color", "LC_TERMINAL": "iTerm2"}, "iterm"),
        ({"TERM": "foot"}, "sixel"),
        ({"TERM": "screen-256color", "KITTY_WINDOW_ID": "1"}, None),
        ({"TERM": "xterm-kitty", "TMUX": "/tmp/tmux"}, None),
    ],
)
def test_terminals_are_known_by_the_environment(env: dict[str, str], expected: str | None) -> None:
    assert protocol(env) == expected


def test_kitty_gets_pieces(lemonade: Shell) -> None:
    pieces = re.findall(r"\x1b_G(.*?);(.*?)\x1b\\", escaped(noise(200, 200), "kitty"))
    assert [head for head, _ in pieces[:2]] == ["f=100,a=T,m=1", "m=1"]
    assert pieces[-1][0] == "m=0"
    assert all(len(data) <= 4096 for _, data in pieces)
    assert base64.b64decode("".join(data for _, data in pieces)) == noise(200, 200)


def test_large_pictures_are_shown_small() -> None:
    text = re.search(r":(.*)\x07", escaped(file(2000, 100), "iterm"))
    assert text is not None
    assert Image.open(io.BytesIO(base64.b64decode(text[1]))).size == (SHOWN, SHOWN // 20)


def test_sixel_says_which_rows_have_a_colour() -> None:
    shown = escaped(file(4, 8, top=(255, 0, 0), bottom=(0, 0, 255)), "sixel")
    assert shown.startswith('\x1bP0;1q"1;1;4;8')
    assert shown.endswith("\x1b\\")
    colours = {match[2]: match[1] for match in re.finditer(r"#(\d+);2;(\d+;\d+;\d+)", shown)}
    red, blue = colours["100;0;0"], colours["0;0;100"]
    first, second, _ = shown.partition(f"#{max(map(int, colours.values()))};2")[2].split("-")
    # Rows 0 to 3 are red, 4 to 7 blue: in the band of rows 0 to 5 the bits 0 to 3, and 4 and 5; then the bits 0 and 1.
    assert f"#{red}{chr(63 + 0b001111) * 4}$" in first
    assert f"#{blue}{chr(63 + 0b110000) * 4}$" in first
    assert f"#{blue}{chr(63 + 0b000011) * 4}$" in second
