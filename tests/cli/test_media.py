from __future__ import annotations

import base64
import re
from pathlib import Path

import pytest

from lemonade.cli.media import Media, free_name
from tests.cli.conftest import Shell
from tests.cli.fake_daemon import PICTURE, FakeDaemon
from tests.cli.terminal import Terminal

IMAGE = f"![generated image](data:image/png;base64,{base64.b64encode(PICTURE).decode()})"
SOUND = "<audio>data:audio/mpeg;base64,SUQz</audio>"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def read(text: str, size: int) -> str:
    media = Media()
    parts = [part for at in range(0, len(text), size) for part in media.feed(text[at : at + size])]
    return "".join(f"[{part}]" if isinstance(part, Path) else part for part in parts) + media.end()


@pytest.mark.parametrize("size", [1, 7, 16_000])
def test_media_become_files_however_the_text_is_cut(size: int) -> None:
    text = f"One ![x](y) <b> two!\n\n{IMAGE}\n\n{SOUND}{IMAGE} end <audio"
    expected = "One ![x](y) <b> two!\n\n[picture.png]\n\n[speech.mp3][picture-2.png] end <audio"
    assert read(text, size) == expected
    assert Path("picture.png").read_bytes() == Path("picture-2.png").read_bytes() == PICTURE
    assert Path("speech.mp3").read_bytes() == b"ID3"


@pytest.mark.parametrize("size", [1, 16_000])
def test_what_is_no_medium_is_shown(size: int) -> None:
    text = "![generated image](data:image/png;base64,is no base64) <audio>data:audio/ogg;base64,AAAA</audio>"
    assert read(text, size) == text


def test_a_cut_off_medium_is_not_printed() -> None:
    assert read(f"Here: {IMAGE[:60]}", 10) == "Here: (what was being made is cut off)"
    assert not list(Path().iterdir())


def test_no_file_is_overwritten() -> None:
    Path("a.png").touch()
    Path("a-2.png").touch()
    assert free_name("a", ".png") == Path("a-3.png")


def test_a_terminal_is_told_the_file(lemonade: Shell) -> None:
    terminal = Terminal(lemonade.command("run", "draws", "an apple"), lemonade.env)
    try:
        shown = terminal.expect(r"\[picture\.png\]")
        assert terminal.process.wait(20) == 0
    finally:
        terminal.close()
    assert "Here." in shown
    assert "base64" not in shown
    assert Path("picture.png").read_bytes() == PICTURE


def test_a_picture_is_shown_where_a_terminal_can(lemonade: Shell) -> None:
    terminal = Terminal(lemonade.command("run", "draws", "an apple"), {**lemonade.env, "TERM_PROGRAM": "WezTerm"})
    try:
        assert re.search(r"\x1b\]1337;File=inline=1", terminal.expect(r"\[picture\.png\]"))
    finally:
        terminal.close()


def test_a_chat_sends_its_pictures_back(lemonade: Shell, daemon: FakeDaemon) -> None:
    terminal = Terminal(lemonade.command("run", "draws"), lemonade.env)
    try:
        terminal.expect(">>> ")
        terminal.type("an apple\n")
        terminal.expect(r"\[picture\.png\][^>]*>>> ")
        terminal.type("blue\n")
        terminal.expect(r"\[picture-2\.png\][^>]*>>> ")
    finally:
        terminal.close()
    assert IMAGE in daemon.bodies("/v1/chat/completions")[-1]["messages"][1]["content"]


def test_a_pipe_gets_the_answer_as_it_is(lemonade: Shell) -> None:
    assert IMAGE in lemonade("run", "draws", "an apple").out
    assert not list(Path().iterdir())
