"""Speech by Kokoro with real weights: how fast it is through the daemon and straight from its process, how soon it is
heard, and how well it is understood.

python -m bench speech          speed and time to the first sound
python -m bench understood      twenty sentences by three voices, heard back by Whisper
KOKORO=/path/to/model python -m bench speech      another export
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lemonade.engines.backends import physical_cores
from lemonade.engines.worker_launch import KEY_HEADER, KEY_VARIABLE, PATIENT
from tests.daemon import Daemon, free_port
from tests.hearing import SENTENCES, Listener, word_errors
from tests.kokoro import kokoro

Row = tuple[str, str, str]

ROUNDS = 3
TEXT = " ".join(SENTENCES[:10])
SHORT = " ".join(SENTENCES[:4])
WARM = SENTENCES[0]
#: Texts of one sentence that does not end: with gaps between the words, and in a script without.
ENDLESS = (
    ("af_heart", "nobody told this person where a sentence could end and so it goes on and on without a rest " * 3),
    ("zf_xiaobei", "今天天气很好我们一起去公园散步然后再去吃饭看电影买东西回家休息睡觉明天还要上班" * 2),
)
VOICES = ("af_heart", "am_michael", "bf_emma")
#: Bytes of a second of PCM.
SECOND = 48_000
HOST = "lemonade.engines.kokoro.host"


def figures() -> Iterator[Row]:
    """Real-time factors and times to the first sound."""
    with running() as daemon, alone(1, physical_cores()) as direct:
        through_rates, direct_rates, through_first, direct_first = [], [], [], []
        body: dict[str, Any] = {"model": "speaker", "input": TEXT}
        measure(*direct, stream=True, text=WARM)
        measure(f"{daemon.url}/v1/audio/speech", {**body, "stream": True}, text=WARM)
        for _ in range(ROUNDS):
            first, rate, _ = measure(f"{daemon.url}/v1/audio/speech", {**body, "stream": True})
            through_first.append(first)
            through_rates.append(rate)
            first, rate, _ = measure(*direct, stream=True)
            direct_first.append(first)
            direct_rates.append(rate)
        ratio = statistics.median(through_rates) / statistics.median(direct_rates)
        yield "speech, 10 sentences: seconds of sound per second, direct", f"{statistics.median(direct_rates):.2f}", ""
        yield "speech, 10 sentences: through / direct", f"{ratio:.2f}", "want >= 0.95"
        yield "speech: first sound direct", f"{statistics.median(direct_first):.2f} s", ""
        yield "speech: first sound through", f"{statistics.median(through_first):.2f} s", ""
        for voice, text in ENDLESS:
            asked = {"model": "speaker", "input": text, "voice": voice, "stream": True}
            measure(f"{daemon.url}/v1/audio/speech", {**asked, "input": text[:20]})
            found = [measure(f"{daemon.url}/v1/audio/speech", asked) for _ in range(ROUNDS)]
            first, rate, late = (statistics.median(values) for values in zip(*found, strict=True))
            yield f"speech, one endless sentence, {voice}: first sound", f"{first:.2f} s", f"then {rate:.2f} x"
            yield f"speech, one endless sentence, {voice}: a player waits", f"{late:.2f} s", "want 0"


def threads() -> Iterator[Row]:
    """Ways to use the cores: threads for each piece of a text, and pieces at once."""
    cores = physical_cores()
    ways = sorted({(1, 1), (cores, 1), (1, cores), (cores, cores)})
    for each, pieces in ways:
        with alone(each, pieces) as direct:
            measure(*direct, stream=True, text=WARM)
            found = [measure(*direct, stream=True, text=SHORT) for _ in range(ROUNDS)]
        first, rate, _ = (statistics.median(values) for values in zip(*found, strict=True))
        yield f"speech, {each} threads for each of {pieces} pieces", f"{rate:.2f} x", f"first sound {first:.2f} s"


def understood() -> Iterator[Row]:
    """Word error rates."""
    listener = Listener()
    with running() as daemon:
        for voice in VOICES:
            errors = words = 0
            for sentence in SENTENCES:
                body = {"model": "speaker", "input": sentence, "voice": voice, "response_format": "pcm"}
                wrong, said = word_errors(sentence, listener.hear(daemon.post("/v1/audio/speech", body).body))
                errors, words = errors + wrong, words + said
            yield f"speech, {voice}: word error rate", f"{errors / words:.3f}", "want <= 0.1"


def model() -> str:
    return os.environ.get("KOKORO") or str(kokoro())


@contextmanager
def running() -> Iterator[Daemon]:
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder)) as daemon:
        definition = {"model_name": "user.speaker", "recipe": "kokoro", "checkpoint": model()}
        assert daemon.post("/v1/models/register", definition).status == 200
        assert daemon.post("/v1/load", {"model_name": "speaker"}).status == 200
        yield daemon


@contextmanager
def alone(threads: int, workers: int) -> Iterator[tuple[str, dict[str, Any], str]]:
    """The engine's process without a daemon: its address, what it is asked, and its key."""
    port, key = free_port(), "bench"
    config = json.dumps({"main": model(), "threads": threads, "workers": workers})
    command = [sys.executable, "-m", "lemonade.engines.worker", HOST, "--port", str(port), config]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, **PATIENT, KEY_VARIABLE: key}
    ) as process:
        try:
            while True:
                try:
                    request = urllib.request.Request(f"http://127.0.0.1:{port}/health", headers={KEY_HEADER: key})
                    urllib.request.urlopen(request, timeout=5).close()
                    break
                except OSError:
                    assert process.poll() is None, "the engine ended"
                    time.sleep(0.05)
            yield f"http://127.0.0.1:{port}/speak", {"input": TEXT, "format": "pcm"}, key
        finally:
            process.kill()


def measure(
    url: str, body: dict[str, Any], key: str = "", *, stream: bool | None = None, text: str = ""
) -> tuple[float, float, float]:
    """Seconds until the first sound, seconds of sound per second of work, and the seconds for which a player that
    begins with the first sound has to wait later."""
    if stream is not None:
        body = {**body, "stream": stream}
    if text:
        body = {**body, "input": text}
    headers = {"Content-Type": "application/json", KEY_HEADER: key}
    begin = time.perf_counter()
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=600) as answer:
        sound = answer.read1(1 << 16)
        first = time.perf_counter() - begin
        late = 0.0
        while piece := answer.read1(1 << 16):
            late = max(late, time.perf_counter() - begin - first - len(sound) / SECOND)
            sound += piece
    return first, len(sound) / SECOND / (time.perf_counter() - begin), late
