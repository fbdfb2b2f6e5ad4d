"""Pictures: through the daemon against the library alone, memory, and how good enlarged ones are.

python -m bench pictures

The model is the one of the tests, whose weights are random: its work is a little of everything that a real one does.
"""

from __future__ import annotations

import base64
import io
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
from PIL import Image

from tests.app.painting import paint, pictures, register
from tests.daemon import Daemon
from tests.esrgan import PHOTO, esrgan
from tests.tiny_diffusion import TinyDiffusion, tiny_diffusion
from tests.weights import Weights

SIDE, STEPS, ROUNDS = 256, 4, 7
#: A photo of NASA's, in the public domain, that a package for working with pictures carries.
ASTRONAUT = Weights(
    "scikit-image",
    "0.25.2",
    "skimage/data/astronaut.png",
    "88431cd9653ccd539741b555fb0a46b61558b301d4110412b5bc28b5e3ea6cb5",
)
#: Of the photo, the face; and how much smaller it is made first.
FACE, FACTOR = (160, 40, 320, 200), 4

#: The library alone: a picture and its file for each line that comes.
_DIRECT = f"""
import os, sys
import cyllama.sd as sd
from lemonade.engines.backends import physical_cores
sd.set_log_callback(lambda level, text: None)
sd.set_progress_callback(lambda *steps: None)
context = sd.SDContextParams()
for name in ("free_params_immediately", "vae_decode_only"):
    if hasattr(context, name):
        setattr(context, name, False)
context.model_path, context.taesd_path, context.clip_l_path = sys.argv[1:4]
context.n_threads = physical_cores()
model = sd.SDContext(context)
print("ready", flush=True)
for line in sys.stdin:
    wanted = sd.SDImageGenParams(prompt="a red apple", width={SIDE}, height={SIDE}, seed=42, sample_steps={STEPS})
    wanted.sample_params.cfg_scale = 1.0
    model.generate_with_params(wanted)[0].save_png(sys.argv[4])
    print("done", flush=True)
"""


@contextmanager
def _direct(weights: TinyDiffusion, folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    files = [*weights.checkpoints.values(), str(folder / "direct.png")]
    command = [sys.executable, "-c", _DIRECT, *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        _await(process, b"ready\n")
        yield process
        assert process.stdin is not None
        process.stdin.close()


def _ask(process: subprocess.Popen[bytes]) -> None:
    assert process.stdin is not None
    process.stdin.write(b"go\n")
    process.stdin.flush()
    _await(process, b"done\n")


def _await(process: subprocess.Popen[bytes], word: bytes) -> None:
    """The library writes bars of its own before."""
    assert process.stdout is not None
    while not (line := process.stdout.readline()).endswith(word):
        assert line, "the library's process ended"


def _memory(daemon: Daemon) -> float:
    """Of the daemon and its children, in MB."""
    assert daemon.process is not None
    process = psutil.Process(daemon.process.pid)
    return sum(one.memory_info().rss for one in (process, *process.children(recursive=True))) / 1e6


def speed() -> Iterator[tuple[str, str, str]]:
    """Seconds per picture both ways in turn, so that what else the machine does falls on both; memory on the way."""
    weights = tiny_diffusion()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        daemon = Daemon(folder, fake_engine=False)
        with daemon:
            register(
                daemon,
                "Tiny",
                weights,
                image_defaults={"steps": STEPS, "cfg_scale": 1.0, "width": SIDE, "height": SIDE},
            )
            # With the first engine the daemon starts the guard of engines, which stays.
            pictures(paint(daemon))
            daemon.post("/v1/unload", {})
            before = _memory(daemon)
            pictures(paint(daemon))
            during = _memory(daemon)
            times: tuple[list[float], list[float]] = ([], [])
            with _direct(weights, folder) as process:
                _ask(process)
                for number in range(ROUNDS):
                    ways = [(times[0], lambda: pictures(paint(daemon))), (times[1], lambda: _ask(process))]
                    for found, ask in ways if number % 2 else reversed(ways):
                        begin = time.perf_counter()
                        ask()
                        found.append(time.perf_counter() - begin)
            daemon.post("/v1/unload", {})
            after = _memory(daemon)
    through, direct = (statistics.median(found) for found in times)
    what = f"pictures, {SIDE}x{SIDE}, {STEPS} steps"
    yield f"{what}: s direct", f"{direct:.2f}", ""
    yield f"{what}: s through / direct", f"{through / direct:.3f}", "want <= 1.03"
    yield "pictures: memory before a load", f"{before:.0f} MB", ""
    yield "pictures: memory with the model", f"{during:.0f} MB", ""
    yield "pictures: memory after the unload", f"{after:.0f} MB", "want as before"


def quality() -> Iterator[tuple[str, str, str]]:
    """How near an enlarged photo is to what it was before it was made small."""
    with Image.open(ASTRONAUT.fetch()) as photo:
        whole = photo.convert("RGB").crop(FACE)
    small = whole.resize((whole.width // FACTOR, whole.height // FACTOR), Image.Resampling.BICUBIC)
    made = io.BytesIO()
    small.save(made, "PNG")
    with tempfile.TemporaryDirectory() as folder, Daemon(Path(folder), fake_engine=False) as daemon:
        definition = {"model_name": "user.Up", "recipe": "sd-cpp", "labels": ["upscaling"]}
        daemon.post("/v1/models/register", {**definition, "checkpoint": str(esrgan(PHOTO))})
        begin = time.perf_counter()
        request = {"model": "user.Up", "image": base64.b64encode(made.getvalue()).decode()}
        answer = daemon.post("/v1/images/upscale", request, timeout=600)
        seconds = time.perf_counter() - begin
    with Image.open(io.BytesIO(base64.b64decode(pictures(answer)[0]))) as opened:
        large = opened.convert("RGB")
    bicubic = small.resize(whole.size, Image.Resampling.BICUBIC)
    yield f"upscaling, Real-ESRGAN x4plus, {small.width}x{small.height}: s", f"{seconds:.1f}", ""
    yield "upscaling, a photo: PSNR of Real-ESRGAN", f"{_psnr(large, whole):.2f} dB", ""
    yield "upscaling, a photo: PSNR of bicubic", f"{_psnr(bicubic, whole):.2f} dB", ""
    yield (
        "upscaling, a photo: sharpness of Real-ESRGAN",
        f"{_sharpness(large) / _sharpness(whole):.2f}",
        "of the photo's",
    )
    yield "upscaling, a photo: sharpness of bicubic", f"{_sharpness(bicubic) / _sharpness(whole):.2f}", "of the photo's"


def _psnr(one: Image.Image, other: Image.Image) -> float:
    error = np.mean((np.asarray(one, float) - np.asarray(other, float)) ** 2)
    return float(10 * np.log10(255**2 / error))


def _sharpness(picture: Image.Image) -> float:
    """The mean step from one pixel to the next."""
    grey = np.asarray(picture.convert("L"), float)
    return float(abs(np.diff(grey, axis=0)).mean() + abs(np.diff(grey, axis=1)).mean())


def figures() -> Iterator[tuple[str, str, str]]:
    yield from speed()
    yield from quality()
