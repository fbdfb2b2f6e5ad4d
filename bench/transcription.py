"""Speech to text: through the daemon against the library itself, and how well it is understood.

python -m bench transcription      real-time factors (seconds of sound per second), through and direct
python -m bench understanding      word error rates of one recording in many kinds of files
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lemonade.engines.backends import physical_cores
from lemonade.engines.moonshine.engine import FEW_CORES
from tests import whisper
from tests.api.test_transcriptions import heard, transcribe
from tests.daemon import Daemon
from tests.recordings import RATE, TWO_CITIES, encoded, recording, speech, wav, word_error_rate
from tests.weights import cache

ROUNDS = 3
SECONDS = 44.37
MOONSHINE = "Moonshine-Base-En"

#: Each a program that reads the path of a recording per line, and answers with what it heard as a line of JSON. It is
#: the library as its own documentation has it used; what stands before is loaded once.
_WHISPER = """
import json, os, sys
import numpy as np
import _pywhispercpp as whisper
from pathlib import Path
from lemonade.engines.audio.decode import decode
whisper.whisper_log_set(lambda *_: None)
context = whisper.whisper_context_default_params()
context.use_gpu = False
context = whisper.whisper_init_from_file_with_params(sys.argv[1], context)
for line in sys.stdin:
    params = whisper.whisper_full_default_params(whisper.whisper_sampling_strategy.WHISPER_SAMPLING_GREEDY)
    params.print_progress, params.n_threads, params.language = False, int(sys.argv[2]), ""
    samples = np.concatenate(list(decode(Path(line.strip()))))
    whisper.whisper_full(context, params, samples, samples.size)
    texts = [whisper.whisper_full_get_segment_text(context, i) for i in range(whisper.whisper_full_n_segments(context))]
    print(json.dumps(b"".join(texts).decode()), flush=True)
os._exit(0)
"""
_MOONSHINE = """
import json, os, sys
import numpy as np
from moonshine_voice.moonshine_api import ModelArch
from moonshine_voice.transcriber import Transcriber
from pathlib import Path
from lemonade.engines.audio.decode import decode
transcriber = Transcriber(sys.argv[1], ModelArch.BASE, options={"return_audio_data": "false"})
for line in sys.stdin:
    samples = np.concatenate(list(decode(Path(line.strip()))))
    lines = transcriber.transcribe_without_streaming(samples.tolist(), 16000).lines
    print(json.dumps(" ".join(one.text for one in lines)), flush=True)
os._exit(0)
"""
_FASTER_WHISPER = """
import json, os, sys
import numpy as np
from faster_whisper import WhisperModel
from pathlib import Path
from lemonade.engines.audio.decode import decode
model = WhisperModel(sys.argv[1], device="cpu", compute_type="int8", cpu_threads=int(sys.argv[2]))
for line in sys.stdin:
    samples = np.concatenate(list(decode(Path(line.strip()))))
    segments, _ = model.transcribe(samples)
    print(json.dumps("".join(one.text for one in segments)), flush=True)
os._exit(0)
"""


#: The threads of all libraries are set up as the daemon does it.
_THREADS = {
    "OMP_WAIT_POLICY": "passive",
    **({"MOONSHINE_ORT_SINGLE_THREAD": "1"} if physical_cores() <= FEW_CORES else {}),
}


class Case(NamedTuple):
    """A model, and how its library is asked without the daemon.

    Attributes:
        program: see above.
        model: what it is given.
        packages: a folder in which it finds the library, if that is not installed.
    """

    name: str
    program: str
    model: str
    packages: str = ""


class Direct:
    """A library in a process of its own."""

    def __init__(self, case: Case) -> None:
        self._process = subprocess.Popen(
            (sys.executable, "-c", case.program, case.model, str(physical_cores())),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, **_THREADS, "PYTHONPATH": case.packages},
            text=True,
        )

    def __enter__(self) -> Direct:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def hear(self, path: Path) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(f"{path}\n")
        self._process.stdin.flush()
        return str(json.loads(self._process.stdout.readline()))


@contextmanager
def running() -> Iterator[tuple[Daemon, list[Case]]]:
    """A daemon, and all its cases."""
    with tempfile.TemporaryDirectory() as folder:
        daemon = Daemon(Path(folder), fake_engine=False, env={"HF_HUB_CACHE": str(cache() / "hub")})
        packages = str(whisper.keep_programs(daemon))
        cases = [
            Case("tiny.en", _WHISPER, str(whisper.tiny_en())),
            Case("base", _WHISPER, str(whisper.base())),
            Case("tiny.en-faster", _FASTER_WHISPER, str(whisper.tiny_en_folder()), packages),
            Case("base-faster", _FASTER_WHISPER, str(whisper.base_folder()), packages),
        ]
        with daemon:
            assert daemon.post("/v1/install", whisper.FASTER_WHISPER, timeout=600).status == 200
            for case in cases:
                recipe = "fasterwhisper" if case.packages else "whispercpp"
                body = {"model_name": f"user.{case.name}", "recipe": recipe, "checkpoint": case.model}
                assert daemon.post("/v1/models/register", body).status == 200
            assert transcribe(daemon, wav(speech(2)), model=MOONSHINE).status == 200
            config = json.loads(daemon.entry(MOONSHINE)["launch_command"][-1])
            yield daemon, [*cases, Case(MOONSHINE, _MOONSHINE, config["model"])]


def speed() -> Iterator[tuple[str, str, str]]:
    """Both ways in turn, so that what else the machine does falls on both."""
    path = recording()
    data = path.read_bytes()
    with running() as (daemon, cases):
        for case in cases:
            with Direct(case) as direct:
                transcribe(daemon, data, model=case.name)
                direct.hear(path)
                through, alone = [], []
                for _ in range(ROUNDS):
                    through.append(_timed(partial(_ask, daemon, case.name, data)))
                    alone.append(_timed(partial(direct.hear, path)))
            # The best round of each is the one that the rest of the machine disturbed least.
            yield f"{case.name}: seconds of sound per second, direct", f"{SECONDS / min(alone):.1f}", ""
            ratio = min(alone) / min(through)
            yield f"{case.name}: through / direct", f"{ratio:.2f}", "want >= 0.95"


def _ask(daemon: Daemon, name: str, data: bytes) -> str:
    return heard(transcribe(daemon, data, model=name))


def understanding() -> Iterator[tuple[str, str, str]]:
    """Words that are wrong, in per cent: the recording itself straight to the library, and all its kinds through."""
    whole = speech(60)
    kinds = {
        "wav, 48 kHz": recording().read_bytes(),
        "wav, 8 kHz": encoded(whole, "wav", "pcm_s16le", rate=8_000),
        "wav, stereo": encoded(whole, "wav", "pcm_s16le", rate=44_100, layout="stereo"),
        "mp3": encoded(whole, "mp3", "libmp3lame", rate=44_100, form="fltp"),
        "opus": encoded(whole, "ogg", "libopus", rate=48_000, form="flt"),
        "webm": encoded(whole, "webm", "libopus", rate=48_000, form="flt"),
        "m4a": encoded(whole, "ipod", "aac", rate=44_100, form="fltp"),
        "aac": encoded(whole, "adts", "aac", rate=44_100, form="fltp"),
    }
    assert len(whole) > 40 * RATE
    with running() as (daemon, cases):
        for case in cases:
            with Direct(case) as direct:
                alone = word_error_rate(direct.hear(recording()), TWO_CITIES) * 100
            yield f"{case.name}: words wrong, direct", f"{alone:.1f} %", ""
            for kind, data in kinds.items():
                rate = word_error_rate(_ask(daemon, case.name, data), TWO_CITIES) * 100
                yield f"{case.name}: words wrong, {kind}", f"{rate:.1f} %", f"want <= {alone + 2:.1f} %"


def _timed(work: Callable[[], str]) -> float:
    begin = time.perf_counter()
    assert work()
    return time.perf_counter() - begin
