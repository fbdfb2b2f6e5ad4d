"""OpenAI's realtime client, in an environment of its own, with a key."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.environment import run_python
from tests.daemon import Daemon
from tests.speech import add_listener, recording, silence, voice
from tests.whisper import tiny_en

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
    talk = (voice(3000, rate=RATE) + silence(1100, rate=RATE)) * 2
    seen = transcribe(locked, "ear", talk, tmp_path, pace=4)
    assert [item for item, _ in seen["texts"]] == seen["order"]
    assert [text for _, text in seen["texts"]] == ["3880 ms", "4100 ms"]
    assert seen["whole"] == "8200 ms"
    assert seen["deltas"][0][0] == seen["order"][0], "a turn is shown while it is spoken"
    assert [kind.rpartition(".")[2] for kind in seen["kinds"]] == ["updated", "committed", "completed"]


@pytest.mark.real
@pytest.mark.slow
def test_speech_at_its_own_pace_with_a_real_engine(tmp_path: Path) -> None:
    one = Daemon(tmp_path / "real", env={"LEMONADE_ADMIN_API_KEY": KEY}, fake_engine=False)
    with one:
        definition = {"model_name": "user.tiny", "recipe": "whispercpp", "checkpoint": str(tiny_en())}
        assert one.post("/v1/models/register", definition).status == 200
        load = {"model_name": "tiny", "whispercpp_args": "--threads 1"}
        assert one.post("/v1/load", load).status == 200
        seen = transcribe(one, "tiny", recording(rate=RATE), tmp_path, pace=1)
        assert one.entry("tiny")["is_busy"] is False
    assert [item for item, _ in seen["texts"]] == seen["order"]
    assert len(seen["order"]) == 3
    said = " ".join(text for _, text in seen["texts"])
    for text in (said, seen["whole"]):
        assert words(text) == words("Ever tried, ever failed. No matter. Try again. Fail again. Fail better.")
    # How many there are depends on what else the machine does.
    assert {item for item, _ in seen["deltas"]} <= set(seen["order"])


def words(text: str) -> list[str]:
    return re.findall(r"[a-z]+", text.lower())
