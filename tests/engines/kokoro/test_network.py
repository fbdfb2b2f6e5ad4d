from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lemonade.engines.kokoro.layout import Layout, find
from lemonade.engines.kokoro.network import MOST_PHONEMES, RATE, Network, Stop, padded
from lemonade.engines.kokoro.voices import Blend
from lemonade.errors import ModelLoadError
from tests.kokoro import kokoro

PHONEMES = "həlˈO ðˈɛɹ, mI fɹˈɛnd."


@pytest.fixture(scope="module")
def network() -> Network:
    return Network(find(kokoro()), threads=1)


def voice(*names: str) -> Blend:
    return Blend(tuple((name, 1 / len(names)) for name in names))


@pytest.mark.real
def test_sound_without_silence_around_it(network: Network) -> None:
    sound = network.speak(PHONEMES, voice("af_heart"), 1.0)
    assert 0.8 < len(sound) / RATE < 2.5
    assert np.abs(sound).max() > 0.1
    # A tenth of a second at each end has something of the speech in it.
    assert min(np.abs(sound[:2400]).max(), np.abs(sound[-2400:]).max()) > 0.001


@pytest.mark.real
def test_it_can_be_stopped(network: Network) -> None:
    stop, other = Stop(), Stop()
    with ThreadPoolExecutor(2) as pool:
        stopped = pool.submit(network.speak, PHONEMES * 20, voice("af_heart"), 1.0, stop)
        untouched = pool.submit(network.speak, PHONEMES, voice("af_heart"), 1.0, other)
        stop.set()
        with pytest.raises(Exception, match="terminate"):
            stopped.result()
        assert len(untouched.result()) > RATE / 2


@pytest.mark.real
def test_the_memory_of_a_long_piece_is_not_kept(network: Network) -> None:
    assert network._session.get_session_options().enable_cpu_mem_arena is False


@pytest.mark.real
def test_the_same_twice_is_the_same_and_a_mixture_is_between(network: Network) -> None:
    heart, george = (network.speak("hI ðˈɛɹ.", voice(name), 1.0) for name in ("af_heart", "bm_george"))
    assert np.array_equal(heart, network.speak("hI ðˈɛɹ.", voice("af_heart"), 1.0))
    mixed = network.speak("hI ðˈɛɹ.", voice("af_heart", "bm_george"), 1.0)
    assert not np.array_equal(mixed, heart)
    assert not np.array_equal(mixed, george)


@pytest.mark.real
def test_all_voices_in_one_archive_sound_as_in_files(network: Network, tmp_path: Path) -> None:
    tables: dict[str, Any] = {
        name: np.fromfile(kokoro() / "voices" / f"{name}.bin", "<f4").reshape(MOST_PHONEMES, 1, 256)
        for name in ("af_heart", "bm_george")
    }
    with (tmp_path / "voices-v1.0.bin").open("wb") as file:
        np.savez(file, **tables)
    (tmp_path / "kokoro.onnx").symlink_to(kokoro() / "kokoro-v1.0.int8.onnx")
    other = Network(find(tmp_path), threads=1)
    assert other.voices == ["af_heart", "bm_george"]
    assert np.array_equal(other.speak("hI.", voice("af_heart"), 1.0), network.speak("hI.", voice("af_heart"), 1.0))


def test_what_is_no_network(tmp_path: Path) -> None:
    (tmp_path / "k.onnx").write_bytes(b"no network")
    (tmp_path / "voices").mkdir()
    with pytest.raises(ModelLoadError, match=r"ONNX Runtime cannot open k\.onnx"):
        Network(Layout(tmp_path / "k.onnx", tmp_path / "voices"), threads=1)


def test_silence_is_put_behind() -> None:
    made = padded(np.ones(10, np.float32), 0.5)
    assert len(made) == 10 + RATE // 2
    assert not made[10:].any()
