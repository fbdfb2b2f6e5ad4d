"""Pictures at the command line: their making is followed, they are saved, and shown in terminals that can."""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

import typer

from lemonade.cli.terminal import note
from lemonade.client import StreamCut

if TYPE_CHECKING:
    from lemonade.client import Client

#: How a terminal takes a picture.
Protocol = Literal["kitty", "iterm", "sixel"]

#: Pixels of the longer side that is shown: about a window of a terminal.
SHOWN = 640
#: Between two lines about the work, in per cent of it, where there is no terminal to draw a bar on.
STEP = 10
#: Most characters of one message to kitty. Source: its graphics protocol.
_KITTY_CHUNK = 4096


def check_output(output: Path | None, count: int) -> None:
    """Raises typer.BadParameter when the pictures could go nowhere."""
    to_stdout = output is None or str(output) == "-"
    if to_stdout and sys.stdout.isatty():
        raise typer.BadParameter("Say where the picture goes: -o FILE, or a pipe.", param_hint="-o")
    if to_stdout and count > 1:
        raise typer.BadParameter("Several pictures need files: -o FILE.", param_hint="-o")
    if output is not None and not to_stdout and output.suffix.lower() != ".png":
        raise typer.BadParameter(f"{output.name} must end in .png.", param_hint="-o")
    if output is not None and not to_stdout and not output.absolute().parent.is_dir():
        raise typer.BadParameter(f"There is no folder {output.parent}.", param_hint="-o")


def follow(client: Client, path: str, request: Mapping[str, Any], title: str) -> list[bytes]:
    """The PNG files that a request makes; its steps are shown on stderr.

    Raises:
        RemoteError: it failed. StreamCut: the daemon went away before the end.
    """
    made: list[bytes] = []
    body = {**request, "stream": True, "progress": True}
    with client.stream(path, body) as events, _Bar(title) if sys.stderr.isatty() else _Lines(title) as display:
        for event in events:
            told = event.json()
            if event.name.endswith(".progress"):
                display.show(int(told["step"]), int(told["steps"]))
            elif event.name.endswith(".completed"):
                made.append(base64.b64decode(told["b64_json"]))
    if not made:
        raise StreamCut("The daemon closed the connection before the picture was there.")
    return made


def save(pictures: list[bytes], output: Path | None, *, show: bool) -> None:
    """Writes the pictures to files, numbered when there are several, or the one to stdout."""
    if output is None or str(output) == "-":
        sys.stdout.buffer.write(pictures[0])
        sys.stdout.buffer.flush()
        return
    for number, picture in enumerate(pictures, 1):
        path = output if len(pictures) == 1 else output.with_stem(f"{output.stem}-{number}")
        part = path.with_name(f".{path.name}.part")
        try:
            part.write_bytes(picture)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        note(f"The picture is in {path}.")
        if show and sys.stdout.isatty() and (kind := protocol(os.environ)):
            print(escaped(picture, kind), flush=True)


def protocol(env: Mapping[str, str]) -> Protocol | None:
    """How the terminal that the environment tells of shows pictures; None if it does not, or nobody knows."""
    term, program = env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if "TMUX" in env or term.startswith(("screen", "tmux")):
        return None
    if "KITTY_WINDOW_ID" in env or "kitty" in term or "ghostty" in term or program == "ghostty":
        return "kitty"
    if program in ("iTerm.app", "WezTerm") or env.get("LC_TERMINAL") == "iTerm2":
        return "iterm"
    if term.startswith(("foot", "mlterm", "yaft")) or "sixel" in term:
        return "sixel"
    return None


def escaped(picture: bytes, kind: Protocol) -> str:
    """The control sequence that shows a PNG file."""
    if kind == "sixel":
        return "".join(_sixel(picture))
    text = base64.b64encode(_small(picture)).decode()
    if kind == "iterm":
        return f"\x1b]1337;File=inline=1;size={len(text)}:{text}\x07"
    pieces = [text[at : at + _KITTY_CHUNK] for at in range(0, len(text), _KITTY_CHUNK)]
    heads = ["f=100,a=T,", *[""] * (len(pieces) - 1)]
    more = [*[1] * (len(pieces) - 1), 0]
    return "".join(
        f"\x1b_G{head}m={goes_on};{piece}\x1b\\" for head, goes_on, piece in zip(heads, more, pieces, strict=True)
    )


def _small(picture: bytes) -> bytes:
    import io

    from PIL import Image

    with Image.open(io.BytesIO(picture)) as opened:
        if max(opened.size) <= SHOWN:
            return picture
        opened.thumbnail((SHOWN, SHOWN))
        made = io.BytesIO()
        opened.save(made, "PNG")
        return made.getvalue()


def _sixel(picture: bytes) -> Iterator[str]:
    """Bands of six rows; in each band one line per colour, whose characters say which of the six rows have it."""
    import io

    import numpy as np
    from PIL import Image

    with Image.open(io.BytesIO(_small(picture))) as opened:
        indexed = opened.convert("RGB").quantize(255)
    palette = indexed.getpalette() or []
    pixels = np.asarray(indexed)
    yield f'\x1bP0;1q"1;1;{indexed.width};{indexed.height}'
    for colour in range(len(palette) // 3):
        shares = ";".join(str(round(value * 100 / 255)) for value in palette[3 * colour : 3 * colour + 3])
        yield f"#{colour};2;{shares}"
    for top in range(0, indexed.height, 6):
        band = pixels[top : top + 6]
        weights = 1 << np.arange(len(band))[:, None]
        for colour in np.unique(band):
            rows = ((band == colour) * weights).sum(axis=0) + 63
            yield f"#{colour}" + bytes(rows.tolist()).decode() + "$"
        yield "-"
    yield "\x1b\\"


class _Lines:
    """A line per tenth of the work."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._percent = -STEP

    def __enter__(self) -> _Lines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def show(self, step: int, steps: int) -> None:
        percent = 100 * step // steps
        if step == 1 or percent >= self._percent + STEP or step == steps:
            self._percent = percent
            note(f"{self._title} {step} of {steps}")


class _Bar:
    """A bar with the time that is left."""

    def __init__(self, title: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._progress.add_task(title, total=None)

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def show(self, step: int, steps: int) -> None:
        self._progress.update(self._task, completed=step, total=steps)
