"""Live speech with Whisper's models: through how much of their window it is looked at, and what is heard again.

Short sound may be looked at through a window of its own length, which takes a part of the time. With less the text
loses its end or goes round in circles; that of finished sentences suffers sooner, and from longer ones not at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from lemonade.engines.audio.transcription import Segment, Task, is_circular

#: Seconds of sound per window of the model. Source: the Whisper paper.
WINDOW = 30.0
#: Seconds that the window is longer than the sound, and that it has at least. Found out on utterances of 2 to 13
#: seconds.
MARGIN = 2.0
LEAST_DRAFT, LEAST_FINAL = 10.24, 15.36
#: Seconds of sound up to which the final text is made that way.
LONGEST_FINAL = 8.0

Result = TypeVar("Result")
Emit = Callable[[Segment], None]


def window(seconds: float, task: Task) -> float:
    """Seconds of the window through which so much sound is looked at; `WINDOW` is all of it."""
    if not task.live or (seconds > LONGEST_FINAL and not task.draft):
        return WINDOW
    return min(max(seconds + MARGIN, LEAST_DRAFT if task.draft else LEAST_FINAL), WINDOW)


def hear(run: Callable[[Task, Emit], Result], task: Task, emit: Emit) -> Result:
    """Has a model write down what it hears; live speech that comes out in circles is heard again with all care.

    Returns:
        what `run` does.
    """
    if not task.live:
        return run(task, emit)
    heard: list[Segment] = []
    found = run(task, heard.append)
    if is_circular("".join(segment.text for segment in heard)):
        heard.clear()
        found = run(replace(task, live=False, draft=False), heard.append)
    for segment in heard:
        emit(segment)
    return found
