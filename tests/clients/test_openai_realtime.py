"""OpenAI's realtime client, in an environment of its own, with a key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environment import run_python
from tests.daemon import Daemon
from tests.speech import add_listener, silence, voice

KEY = "sesame-open-1234"
RATE = 24000


def transcribe(daemon: Daemon, model: str, audio: bytes, folder: Path, *, pace: float) -> dict[str, Any]:
    """What the client saw."""
    (folder / "audio.raw").write_bytes(audio)
    seen: dict[str, Any] = run_python(
        "with_openai_realtime.py",
        f"{daemon.url}/v1",
        model,
        KEY,
        str(folder / "audio.raw"),
        str(pace),
        requirements="realtime-requirements.txt",
    )
    return seen


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("locked"), env={"LEMONADE_ADMIN_API_KEY": KEY}) as one:
        add_listener(one)
        one.stop()
        one.env = {"LEMONADE_API_KEY": KEY}
        one.start()
        yield one


def test_turns_come_in_order_with_the_fake_engine(locked: Daemon, tmp_path: Path) -> None:
    talk = (voice(1000, rate=RATE) + silence(1100, rate=RATE)) * 2
    seen = transcribe(locked, "ear", talk, tmp_path, pace=10)
    assert [item for item, _ in seen["texts"]] == seen["order"]
    assert [text for _, text in seen["texts"]] == ["1880 ms", "2100 ms"]
    assert seen["whole"] == "4200 ms"
    assert [kind.rpartition(".")[2] for kind in seen["kinds"]] == ["updated", "committed", "completed"]
