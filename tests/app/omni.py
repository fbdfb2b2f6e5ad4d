"""Collections for tests: a planner that says what it is told to, and programs that paint and make tones."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from lemonade.engines.openmoss.protocol import PROGRAM
from tests.daemon import Answer, Daemon
from tests.engines import fake_moss
from tests.engines.sdcpp import fake_sd
from tests.stream import Stream

Tree = dict[str, Any]

_MEDIUM = re.compile(
    r"!\[generated image\]\(data:image/png;base64,([^)]+)\)|<audio>data:audio/\w+;base64,([^<]+)</audio>"
)


def studio(folder: Path, **more: Any) -> Daemon:
    """A daemon, not yet running, whose engines for chats, pictures and speech are the fake ones."""
    config = {"sdcpp": {"backend": "system"}, "openmoss": {"vulkan_bin": str(folder / "bin")}, "max_loaded_models": 4}
    daemon = Daemon(folder, **{"config": config, **more})
    (folder / "bin").mkdir(exist_ok=True)
    for program, fake, words in (("sd-server", fake_sd, " server"), (PROGRAM, fake_moss, "")):
        path = folder / "bin" / program
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{fake.__file__}"{words} "$@"\n')
        path.chmod(0o755)
    return daemon


def define(daemon: Daemon, name: str, recipe: str, **more: Any) -> None:
    answer = daemon.post("/v1/models/register", {"model_name": f"user.{name}", "recipe": recipe, **more})
    assert answer.status == 200, answer.body


def furnish(daemon: Daemon) -> None:
    """The models `Painter`, `Voice` and `planner`, and the collection `Studio`."""
    daemon.add_model("planner")
    for name in ("painter", "voice"):
        (daemon.models / f"{name}.bin").write_bytes(b"GGUF weights")
    define(daemon, "Painter", "sd-cpp", checkpoint=str(daemon.models / "painter.bin"), labels=["image", "edit"])
    define(daemon, "Voice", "openmoss", checkpoint=str(daemon.models / "voice.bin"))
    define(daemon, "Studio", "collection.omni", components=["planner", "Painter", "Voice"])


def call(name: str, **arguments: Any) -> Tree:
    return {"name": name, "arguments": json.dumps(arguments)}


def planned(*turns: Tree | list[Tree]) -> Tree:
    """The switches of a planner that answers so, turn by turn; a list stands for calls."""
    return {"turns": [{"tool_calls": turn} if isinstance(turn, list) else turn for turn in turns]}


def ask(daemon: Daemon, *turns: Tree | list[Tree], model: str = "Studio", **more: Any) -> Answer:
    """A chat whose planner answers as `planned`."""
    return daemon.chat(model, **{"fake": planned(*turns), **more})


def ask_streaming(daemon: Daemon, *turns: Tree | list[Tree], model: str = "Studio", **more: Any) -> Stream:
    return Stream(daemon, {"model": model, "fake": planned(*turns), **more})


def content(answer: Answer) -> str:
    assert answer.status == 200, answer.body[:1000]
    said = answer.json()["choices"][0]["message"]["content"]
    assert isinstance(said, str)
    return said


def media(text: str) -> list[str]:
    """In base64, in the order of the content."""
    return [match[1] or match[2] for match in _MEDIUM.finditer(text)]


def parts(text: str) -> set[str]:
    return {part for part in text.split("\n\n") if part}


def deltas(events: list[str]) -> list[Tree]:
    assert events[-1] == "[DONE]"
    return [choice["delta"] for event in events[:-1] for choice in json.loads(event)["choices"]]


def finish(events: list[str]) -> str:
    """The `finish_reason` of a stream."""
    (reason,) = {c["finish_reason"] for e in events[:-1] for c in json.loads(e)["choices"]} - {None}
    return str(reason)
