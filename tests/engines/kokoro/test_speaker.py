"""The order in which things are computed, with a network that only counts."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from lemonade.engines.kokoro.espeak import Espeak
from lemonade.engines.kokoro.network import MOST_PHONEMES, RATE, Stop
from lemonade.engines.kokoro.phonemes import VOCABULARY, Phonemizer
from lemonade.engines.kokoro.speaker import Speaker
from lemonade.engines.kokoro.voices import Blend
from lemonade.errors import InvalidArgument
from tests.daemon import wait_for

VOICE = Blend((("af_heart", 1.0),))
SENTENCE = "This is a sentence of some length. "


class CountingNetwork:
    """A second of sound for each piece; `gate` holds them up."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.stops: list[Stop] = []
        self.gate = threading.Event()
        self.gate.set()

    def speak(self, phonemes: str, voice: Blend, speed: float, stop: Stop) -> Any:
        self.asked.append(phonemes)
        self.stops.append(stop)
        assert self.gate.wait(20)
        return np.full(int(RATE / speed), len(self.asked), dtype=np.float32)


@pytest.fixture
def network() -> CountingNetwork:
    return CountingNetwork()


def speaker(network: Any, workers: int = 2) -> Speaker:
    return Speaker(network, Phonemizer(Espeak(), VOCABULARY), workers)


def go_on() -> None:
    """The listener is still there."""


def test_the_first_sound_comes_long_before_the_last_is_computed(network: CountingNetwork) -> None:
    sounds = speaker(network).speak(SENTENCE * 10, VOICE, 1.0, go_on)
    next(sounds)
    assert len(network.asked) < 10 / 3
    assert len(list(sounds)) == 9
    assert len(network.asked) == 10


def test_nothing_is_computed_for_a_listener_who_waits(network: CountingNetwork) -> None:
    sounds = speaker(network).speak(SENTENCE * 10, VOICE, 1.0, go_on)
    next(sounds)
    next(sounds)
    assert len(network.asked) <= 4


def test_nothing_is_computed_for_a_listener_who_left(network: CountingNetwork) -> None:
    class Left(Exception):
        pass

    def check() -> None:
        raise Left

    with pytest.raises(Left):
        list(speaker(network).speak(SENTENCE * 10, VOICE, 1.0, check))
    assert len(network.asked) <= 2

    sounds = speaker(network).speak(SENTENCE * 10, VOICE, 1.0, go_on)
    next(sounds)
    sounds.close()  # type: ignore[attr-defined]
    assert len(network.asked) <= 5


def test_what_is_being_computed_for_a_listener_who_leaves_is_given_up(network: CountingNetwork) -> None:
    class Left(Exception):
        pass

    def check() -> None:
        if network.asked:
            raise Left

    network.gate.clear()
    try:
        with pytest.raises(Left):
            list(speaker(network).speak(SENTENCE * 10, VOICE, 1.0, check))
        assert all(stop.options.terminate for stop in network.stops)
    finally:
        network.gate.set()


def test_a_listener_hears_something_before_the_end_of_a_sentence(network: CountingNetwork) -> None:
    text = "nobody told this person where a sentence could end " * 4
    assert len(list(speaker(network).speak(text, VOICE, 1.0, go_on))) == 1
    whole = network.asked.pop()
    assert len(list(speaker(network).speak(text, VOICE, 1.0, go_on, soon=True))) >= 3
    assert len(network.asked[0]) < len(whole) / 3
    assert len(network.asked[1]) < len(network.asked[2])


def test_texts_take_turns(network: CountingNetwork) -> None:
    """A second listener hears something while the first one's long text is far from its end."""
    one = speaker(network, workers=1)
    long = one.speak(SENTENCE * 50, VOICE, 1.0, go_on)
    next(long)
    short = list(one.speak("Hello there, my friend.", VOICE, 1.0, go_on))
    assert len(short) == 1
    assert len(network.asked) <= 3


def test_whoever_runs_out_of_sound_first_comes_first(network: CountingNetwork) -> None:
    """A newcomer is heard before what others will hear later is computed."""
    one = speaker(network, workers=1)
    others = [one.speak(SENTENCE * 50, VOICE, 0.25, go_on) for _ in range(5)]
    for other in others * 4:
        next(other)
    network.gate.clear()
    asked = len(network.asked)
    with ThreadPoolExecutor(6) as listeners:
        try:
            waiting = [listeners.submit(next, other) for other in others]
            wait_for(lambda: len(network.asked) == asked + 1 and len(one._pool._waiting) == 4)
            newcomer = listeners.submit(next, one.speak("Hello there, my friend.", VOICE, 1.0, go_on))
            wait_for(lambda: len(one._pool._waiting) == 5)
        finally:
            network.gate.set()
        newcomer.result()
        for sound in waiting:
            sound.result()
    assert "həlˈO" in network.asked[asked + 1]


def test_pieces_come_in_order_and_with_their_silence(network: CountingNetwork) -> None:
    sounds = list(speaker(network).speak(SENTENCE * 3, VOICE, 1.0, go_on))
    assert [len(sound) / RATE for sound in sounds] == pytest.approx([1.3, 1.3, 1.6])
    fast = list(speaker(network).speak(SENTENCE * 3, VOICE, 2.0, go_on))
    assert [len(sound) / RATE for sound in fast] == pytest.approx([0.65, 0.65, 0.8])


def test_no_piece_is_too_long_for_the_model(network: CountingNetwork) -> None:
    list(speaker(network).speak("1234567890 " * 200 + "x" * 3000, VOICE, 1.0, go_on))
    assert network.asked
    assert max(map(len, network.asked)) <= MOST_PHONEMES


@pytest.mark.parametrize("text", ["🎉", "...", "---", "\u200b"])
def test_nothing_to_say(network: CountingNetwork, text: str) -> None:
    with pytest.raises(InvalidArgument, match="nothing that can be spoken"):
        list(speaker(network).speak(text, VOICE, 1.0, go_on))
    assert not network.asked
