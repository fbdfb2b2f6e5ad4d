from __future__ import annotations

import random

import pytest

from lemonade.inference.realtime import buffer as module
from lemonade.inference.realtime.buffer import LEAD_MS, WIDTH, AudioBuffer
from lemonade.inference.realtime.voice import VoiceSettings
from tests.speech import pieces, silence, voice

TALK = silence(700) + voice(900) + silence(300) + voice(500) + silence(1500) + voice(400) + silence(2000)


def turns(audio: bytes, milliseconds: int, *, rate: int = 16000, settings: VoiceSettings | None = None) -> list[object]:
    """Where turns begin and end, in milliseconds, and their audio."""
    buffer = AudioBuffer(rate, settings or VoiceSettings())
    found: list[object] = []
    for piece in pieces(audio, milliseconds, rate=rate):
        buffer.append(piece)
        for edge in buffer.listen():
            if edge == "start":
                found.append(("start", buffer.milliseconds(buffer.turn_start)))
            elif edge == "end":
                found += [("end", buffer.milliseconds(buffer.heard)), buffer.take()]
    return found


@pytest.mark.parametrize("milliseconds", [1, 7, 20, 85, 256, 1000, 60_000])
def test_the_size_of_messages_does_not_matter(milliseconds: int) -> None:
    found = turns(TALK, milliseconds)
    assert [edge[0] for edge in found if isinstance(edge, tuple)] == ["start", "end", "start", "end"]
    assert found == turns(TALK, 100)


def test_a_turn_ends_after_the_silence_that_was_asked_for() -> None:
    (start, end, audio) = turns(silence(1000) + voice(1000) + silence(3000), 85)
    assert start == ("start", 1000 - LEAD_MS)
    # The window of 100 ms hears the end of the voice for so long.
    assert isinstance(end, tuple)
    assert 2800 <= end[1] <= 2900
    assert isinstance(audio, bytes)
    assert len(audio) == (end[1] - start[1]) * 16 * WIDTH
    later = turns(silence(1000) + voice(1000) + silence(3000), 85, settings=VoiceSettings(silence_duration_ms=2000))
    assert isinstance(later[1], tuple)
    assert 4000 <= later[1][1] <= 4100


@pytest.mark.parametrize("rate", [8000, 16000, 24000])
def test_times_do_not_depend_on_the_rate(rate: int) -> None:
    talk = silence(500, rate=rate) + voice(700, rate=rate) + silence(1500, rate=rate)
    found = turns(talk, 100, rate=rate)
    assert found[0] == ("start", 200)
    assert found[1] == turns(silence(500) + voice(700) + silence(1500), 100)[1]


def test_a_click_is_no_turn() -> None:
    assert turns((voice(60) + silence(400)) * 10, 85) == []
    assert turns(voice(3000, level=0.005), 85) == []


def test_a_quiet_voice_is_one_when_the_threshold_says_so() -> None:
    quiet = voice(1000, level=0.005) + silence(1500)
    assert len(turns(quiet, 85, settings=VoiceSettings(threshold=0.002))) == 3


def test_only_what_may_belong_to_a_turn_is_kept() -> None:
    buffer = AudioBuffer(16000, VoiceSettings())
    for piece in pieces(silence(60_000), 85):
        buffer.append(piece)
        assert list(buffer.listen()).count("start") == 0
        assert buffer.size <= (LEAD_MS + 100) * 16 * WIDTH
    assert buffer.has_news


def test_nothing_is_dropped_without_detection() -> None:
    buffer = AudioBuffer(16000, None)
    buffer.append(TALK)
    assert list(buffer.listen()) == []
    assert buffer.take_all() == TALK
    assert not buffer.has_news


def test_a_turn_without_an_end_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_TURN", 3)
    found = turns(voice(10_000), 100)
    lengths = [len(audio) // 32 for audio in found if isinstance(audio, bytes)]
    assert lengths == [3000, 3000, 3000]


def test_detection_that_is_switched_off_and_on() -> None:
    buffer = AudioBuffer(16000, VoiceSettings())
    buffer.append(silence(500))
    list(buffer.listen())
    buffer.settings = None
    assert buffer.size == 0, "silence before it was switched off is nobody's turn"
    buffer.append(voice(500))
    list(buffer.listen())
    buffer.settings = VoiceSettings()
    assert list(buffer.listen()).count("start") == 1, "what was said before counts"


def test_places_go_on_after_turns_and_clears() -> None:
    buffer = AudioBuffer(16000, VoiceSettings())
    buffer.append(silence(700))
    list(buffer.listen())
    buffer.clear()
    buffer.append(voice(500))
    assert list(buffer.listen()).count("start") == 1
    assert buffer.milliseconds(buffer.turn_start) == 700


def test_any_cut_of_any_talk_gives_the_same_turns() -> None:
    chance = random.Random(5)
    for _ in range(5):
        talk = b"".join(
            voice(chance.randrange(40, 1200), level=chance.choice([0.005, 0.02, 0.5])) + silence(chance.randrange(1500))
            for _ in range(6)
        )
        want = turns(talk, 1000)
        buffer = AudioBuffer(16000, VoiceSettings())
        found: list[object] = []
        at = 0
        while at < len(talk):
            size = chance.choice([2, 34, 320, 6000, 40_000])
            buffer.append(talk[at : at + size])
            at += size
            for edge in buffer.listen():
                if edge == "start":
                    found.append(("start", buffer.milliseconds(buffer.turn_start)))
                elif edge == "end":
                    found += [("end", buffer.milliseconds(buffer.heard)), buffer.take()]
        assert found == want
