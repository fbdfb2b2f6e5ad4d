"""One streamed answer: its pieces as they come, and what is known at its end."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemonade.cli.media import Media
from lemonade.cli.terminal import dim, harmless, note
from lemonade.client import StreamCut

if TYPE_CHECKING:
    from lemonade.client import Client


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the answer's text, or of the thinking before it."""

    text: str
    is_reasoning: bool


class Answer:
    """The answer to one `POST /v1/chat/completions`.

    Attributes:
        text: what has come so far, without reasoning.
        finish_reason: why it ended; None until then.
        timings: the engine's figures, `{}` when it gives none.
    """

    def __init__(self, client: Client, request: Mapping[str, Any]) -> None:
        self._client = client
        self._request = request
        self.text = ""
        self.finish_reason: str | None = None
        self.timings: dict[str, Any] = {}

    def pieces(self) -> Iterator[Piece]:
        """Sends the request. Closing the iterator closes the request, and the engine stops.

        Raises:
            RemoteError: the daemon refused, or failed on the way.
            StreamCut: the stream ended without saying that it was the end.
        """
        body = {**self._request, "stream": True}
        with self._client.stream("/v1/chat/completions", body) as events:
            for event in events:
                if event.data == "[DONE]":
                    return
                yield from self._read(event.json())
        if self.finish_reason is None:
            raise StreamCut("The daemon closed the connection in the middle of the answer.")

    def _read(self, chunk: dict[str, Any]) -> Iterator[Piece]:
        self.timings = chunk.get("timings") or self.timings
        for choice in chunk.get("choices") or []:
            delta = choice.get("delta") or {}
            if thought := delta.get("reasoning_content"):
                yield Piece(thought, True)
            if text := delta.get("content"):
                self.text += text
                yield Piece(text, False)
            self.finish_reason = choice.get("finish_reason") or self.finish_reason


def show(answer: Answer, model: str) -> None:
    """Prints the answer to stdout as it comes and ends the line. Thinking goes to stderr, and only if people watch
    both: it is not the answer. For a terminal pictures and sounds are saved in files; a pipe gets them as they are."""
    watched = sys.stderr.isatty()
    thinking = watched and sys.stdout.isatty()
    if watched:
        print(dim(f"waiting for {model} …", sys.stderr), end="", file=sys.stderr, flush=True)
    pieces = answer.pieces()
    media = Media() if sys.stdout.isatty() else None
    thought = started = False
    try:
        for piece in pieces:
            if watched and not started:
                _clear_line()
            started = True
            if piece.is_reasoning:
                thought = True
                if thinking:
                    text = harmless(piece.text, sys.stderr)
                    print(dim(text, sys.stderr), end="", file=sys.stderr, flush=True)
                continue
            if thought and thinking:
                note("\n")
            thought = False
            for part in media.feed(piece.text) if media else (piece.text,):
                sys.stdout.write(_shown(part) if isinstance(part, Path) else harmless(part, sys.stdout))
            sys.stdout.flush()
    finally:
        if media:
            sys.stdout.write(harmless(media.end(), sys.stdout))
        pieces.close()  # type: ignore[attr-defined]
        if watched and not started:
            _clear_line()
        if not answer.text.endswith("\n") and answer.text:
            sys.stdout.write("\n")
            sys.stdout.flush()
    if not answer.text:
        note(f"{model} gave no answer" + (" (it was still thinking)." if thought else "."))
    elif answer.finish_reason == "length":
        note("The answer is cut off at the limit of tokens.")


def _shown(file: Path) -> str:
    """The name of a file that was saved, below the picture if the terminal shows pictures."""
    from lemonade.cli.picture import escaped, protocol

    kind = protocol(os.environ) if file.suffix == ".png" else None
    picture = escaped(file.read_bytes(), kind) + "\n" if kind else ""
    return f"{picture}[{file}]"


def _clear_line() -> None:
    print("\r\x1b[K", end="", file=sys.stderr, flush=True)
