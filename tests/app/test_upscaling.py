"""Pictures made larger by Real-ESRGAN's own weights, through a daemon and by the engine alone."""

from __future__ import annotations

import base64
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from PIL import Image

from tests.app.painting import ONE_THREAD
from tests.daemon import Answer, Daemon, events, wait_for
from tests.engines.sdcpp.looking import file, noise, opened, packed, pixels
from tests.esrgan import esrgan

pytestmark = pytest.mark.real

DIRECT = """
import sys
import cyllama.sd as sd
sd.set_log_callback(lambda level, text: None)
sd.set_progress_callback(lambda *steps: None)
sd.Upscaler(sys.argv[1], n_threads=1).upscale(sd.SDImage.load(sys.argv[2], channels=3), 4).save(sys.argv[3])
"""


@pytest.fixture(scope="module")
def larger(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(tmp_path_factory.mktemp("larger"), fake_engine=False, config={"sdcpp": ONE_THREAD}) as one:
        definition = {"model_name": "user.Up", "recipe": "sd-cpp", "labels": ["upscaling"], "checkpoint": str(esrgan())}
        answer = one.post("/v1/models/register", definition)
        assert answer.status == 200, answer.body
        assert "on-demand" in answer.json()["model"]["labels"]
        yield one


def upscale(daemon: Daemon, image: bytes, **more: Any) -> Answer:
    return daemon.post("/v1/images/upscale", {"image": base64.b64encode(image).decode(), "model": "user.Up", **more})


def picture(answer: Answer) -> str:
    assert answer.status == 200, answer.body[:1000]
    (entry,) = answer.json()["data"]
    return str(entry["b64_json"])


def children(daemon: Daemon) -> list[psutil.Process]:
    """The engines' processes; the guard stays."""
    assert daemon.process is not None
    found = psutil.Process(daemon.process.pid).children(recursive=True)
    return [each for each in found if is_worker(each)]


def is_worker(process: psutil.Process) -> bool:
    try:
        return "lemonade.engines.worker" in process.cmdline()
    except psutil.NoSuchProcess:  # or a zombie
        return False


def test_the_result_is_the_engines_own(larger: Daemon, tmp_path: Path) -> None:
    """Also for sides that are no multiples of anything."""
    source = file(21, 13)
    (tmp_path / "in.png").write_bytes(source)
    command = [sys.executable, "-c", DIRECT, str(esrgan()), str(tmp_path / "in.png"), str(tmp_path / "out.png")]
    subprocess.run(command, check=True, timeout=100)
    made = picture(upscale(larger, source))
    assert opened(made).size == (84, 52)
    assert (pixels(made) == pixels((tmp_path / "out.png").read_bytes())).all()
    # It is the same picture: two halves in their colours.
    assert abs(pixels(made)[:16].mean(axis=(0, 1)) - (220, 60, 30)).max() < 20
    assert abs(pixels(made)[-16:].mean(axis=(0, 1)) - (20, 90, 200)).max() < 20


def test_nothing_stays_behind(larger: Daemon) -> None:
    picture(upscale(larger, file(8, 8)))
    assert larger.loaded() == []
    wait_for(lambda: not children(larger), 5)


def test_what_is_see_through_stays_so(larger: Daemon) -> None:
    through = file(16, 12, top=(220, 60, 30, 255), bottom=(220, 60, 30, 0))
    made = opened(picture(upscale(larger, through)))
    assert (made.mode, made.size) == ("RGBA", (64, 48))
    alpha = np.asarray(made.getchannel("A"))
    assert (alpha[:20] == 255).all()
    assert (alpha[-20:] == 0).all()
    colours = np.asarray(made.convert("RGB")).astype(int)
    assert abs(colours - (220, 60, 30)).max() < 60, "no colour shines through that was not there"
    assert opened(picture(upscale(larger, file(8, 8, top=(9, 9, 9, 255), bottom=(9, 9, 9, 255))))).mode == "RGB"


@pytest.mark.parametrize("kind", ["grey", "palette", "16 bits", "JPEG", "WEBP"])
def test_pictures_of_all_kinds(larger: Daemon, kind: str) -> None:
    grey = np.linspace(0, 255, 96).astype(np.uint8).reshape(8, 12)
    made = {
        "grey": lambda: packed(grey),
        "palette": lambda: packed_palette(file(12, 8)),
        "16 bits": lambda: packed(grey.astype(np.uint16) * 257),
        "JPEG": lambda: file(12, 8, "JPEG"),
        "WEBP": lambda: file(12, 8, "WEBP"),
    }
    source = made[kind]()
    result = picture(upscale(larger, source))
    assert opened(result).size == (48, 32)
    before = pixels(packed(grey)) if kind == "16 bits" else pixels(source)
    assert abs(pixels(result).mean() - before.mean()) < 12


def packed_palette(data: bytes) -> bytes:
    import io

    made = io.BytesIO()
    opened(data).convert("P", palette=Image.Palette.ADAPTIVE).save(made, "PNG")
    return made.getvalue()


def test_a_smaller_factor(larger: Daemon) -> None:
    assert opened(picture(upscale(larger, file(10, 6), upscale_factor=2))).size == (20, 12)
    answer = upscale(larger, file(8, 8), upscale_factor=5)
    assert (answer.status, answer.error["param"]) == (400, "upscale_factor")
    assert "at most 4" in answer.error["message"]


def test_a_large_picture_is_made_in_parts(larger: Daemon) -> None:
    answer = upscale(larger, file(136, 10), stream=True, progress=True)
    told = [json.loads(data) for data in events(answer.body)]
    assert [event["type"] for event in told][-1] == "image_upscale.completed"
    assert opened(told[-1]["b64_json"]).size == (544, 40)
    made = pixels(told[-1]["b64_json"])
    assert abs(np.diff(made[:12].mean(axis=0), axis=0)).max() < 12, "no seam between them"


def test_a_damaged_picture(larger: Daemon) -> None:
    answer = upscale(larger, noise(32, 32, kind="JPEG")[:900])
    assert (answer.status, answer.error["param"]) == (400, "image")


def test_a_client_that_leaves_stops_the_work(larger: Daemon) -> None:
    image = base64.b64encode(noise(400, 400)).decode()
    body = json.dumps({"model": "user.Up", "image": image}).encode()
    head = f"POST /v1/images/upscale HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client = socket.create_connection(("127.0.0.1", larger.port))
    client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    wait_for(lambda: children(larger), 20)
    time.sleep(0.5)
    client.close()
    wait_for(lambda: not children(larger), 5)
    assert opened(picture(upscale(larger, file(8, 8)))).size == (32, 32)


def test_a_file_that_is_no_upscaler(larger: Daemon, tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"GGUF and no weights at all")
    definition = {"model_name": "user.Broken", "recipe": "sd-cpp", "labels": ["upscaling"]}
    path = str(tmp_path / "broken.safetensors")
    assert larger.post("/v1/models/register", {**definition, "checkpoint": path}).status == 200
    answer = upscale(larger, file(8, 8), model="user.Broken")
    assert answer.status == 500
    assert "cannot load the upscaling model" in answer.error["message"]
