"""Pictures on their whole way: a daemon, stable-diffusion.cpp itself, and a model of random weights."""

from __future__ import annotations

import base64
import json
import os
import re
import signal
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.app.painting import ONE_THREAD, edit, form, paint, pictures, register
from tests.daemon import Answer, Daemon, events, wait_for
from tests.engines.sdcpp.looking import file, opened, pixels, right_half, turned
from tests.tiny_diffusion import TinyDiffusion, quantised, tiny_diffusion

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def weights() -> TinyDiffusion:
    return tiny_diffusion()


@pytest.fixture(scope="module")
def painter(tmp_path_factory: pytest.TempPathFactory, weights: TinyDiffusion) -> Iterator[Daemon]:
    """A daemon with the models `Tiny` and `Editor`, which are the same but for a label."""
    config = {"max_loaded_models": 2, "sdcpp": ONE_THREAD}
    with Daemon(tmp_path_factory.mktemp("painter"), fake_engine=False, config=config) as one:
        for name, labels in (("Tiny", []), ("Editor", ["image", "edit"])):
            register(one, name, weights, labels=labels)
        yield one


def difference(one: str, other: str | bytes) -> float:
    return float(abs(pixels(one) - pixels(other)).mean())


def test_a_picture_is_a_png_of_the_models_size_and_the_same_again(painter: Daemon) -> None:
    answer = paint(painter)
    (first,) = pictures(answer)
    assert opened(first).format == "PNG"
    assert opened(first).size == (32, 32)
    assert abs(answer.json()["created"] - time.time()) < 60
    assert answer.json()["data"][0]["generation_info"] == {"seed": 42, "steps": 1, "cfg_scale": 1.0}
    assert pictures(paint(painter)) == [first], "without a seed it is always the same one"
    assert pictures(paint(painter, seed=42)) == [first]
    assert "Steps: 1, CFG scale: 1.0, Seed: 42, Size: 32x32, Model: Tiny" in opened(first).info["parameters"]


def test_prompts_seeds_and_options_count(painter: Daemon) -> None:
    (first,) = pictures(paint(painter))
    for more in (
        {"prompt": "a blue sky over the wide sea"},
        {"seed": 7},
        {"steps": 3},
        {"cfg_scale": 3.0, "negative_prompt": "an apple that is green"},
        {"sample_method": "lcm", "steps": 2},
    ):
        assert pictures(paint(painter, **more)) != [first], more
    guided = pictures(paint(painter, cfg_scale=3.0))
    assert guided != pictures(paint(painter, cfg_scale=3.0, negative_prompt="an apple that is green"))


def test_a_negative_seed_is_random_and_told(painter: Daemon) -> None:
    answers = [paint(painter, seed=-1) for _ in range(2)]
    assert pictures(answers[0]) != pictures(answers[1])
    seed = answers[0].json()["data"][0]["generation_info"]["seed"]
    assert 0 <= seed < 2**31
    assert pictures(paint(painter, seed=seed)) == pictures(answers[0])


def test_several_pictures_differ_and_have_the_next_seeds(painter: Daemon) -> None:
    made = pictures(paint(painter, n=3, seed=5))
    assert len(set(made)) == 3
    assert pictures(paint(painter, seed=6)) == [made[1]]


@pytest.mark.parametrize(("size", "expected"), [("48x16", (48, 16)), ("33x21", (33, 21)), ("auto", (32, 32))])
def test_sizes_are_as_asked_to_the_pixel(painter: Daemon, size: str, expected: tuple[int, int]) -> None:
    (made,) = pictures(paint(painter, size=size))
    assert opened(made).size == expected


def test_a_mask_keeps_what_is_black(painter: Daemon) -> None:
    source = file()
    (made,) = pictures(edit(painter, ("image", source), ("mask", right_half()), ("steps", 4)))
    change = abs(pixels(made) - pixels(source)).mean(axis=(0, 2))
    assert change[:16].mean() < 4
    assert change[16:].mean() > 20


def test_a_mask_keeps_its_place_in_a_picture_of_an_odd_size(painter: Daemon) -> None:
    source = file(30, 26)
    (made,) = pictures(edit(painter, ("image", source), ("mask", right_half(30, 26)), ("steps", 4)))
    assert opened(made).size == (30, 26)
    # The model's squares are of eight pixels: what is farther from the border than that is kept.
    assert abs(pixels(made) - pixels(source))[:, :7].mean() < 12


def test_see_through_parts_of_a_mask_are_painted(painter: Daemon) -> None:
    """As OpenAI's clients send them."""
    source = file()
    through = file(top=(0, 0, 0, 255), bottom=(0, 0, 0, 0))
    (made,) = pictures(edit(painter, ("image", source), ("mask", through), ("steps", 4)))
    change = abs(pixels(made) - pixels(source)).mean(axis=(1, 2))
    assert change[:16].mean() < 4
    assert change[16:].mean() > 20


def test_an_edit_starts_from_the_picture(painter: Daemon) -> None:
    one, other = (pictures(edit(painter, ("image", data)))[0] for data in (file(), file(top=(250, 250, 250))))
    assert difference(one, other) > 1
    assert difference(one, file()) > 10, "also in a single step"
    for steps in (1, 4):
        weak, strong = (
            pictures(edit(painter, ("image", file()), ("strength", each), ("steps", steps)))[0] for each in (0.1, 1)
        )
        assert difference(weak, file()) < difference(strong, file()), steps


@pytest.mark.parametrize("kind", ["JPEG", "WEBP"])
def test_other_kinds_of_files(painter: Daemon, kind: str) -> None:
    (made,) = pictures(edit(painter, ("image", file(24, 40, kind))))
    assert opened(made).size == (24, 40), "without a size it is the picture's own"


@pytest.mark.parametrize("model", ["Tiny", "Editor"])
def test_a_photo_is_edited_upright(painter: Daemon, model: str) -> None:
    upright, photo = file(24, 40), turned(file(24, 40), 6, "PNG")
    assert opened(photo).size == (40, 24), "as it lies in its file"
    (made,) = pictures(edit(painter, ("image", photo), ("strength", "0.5"), model=model))
    assert opened(made).size == (24, 40)
    assert pictures(edit(painter, ("image", upright), ("strength", "0.5"), model=model)) == [made]
    (wide,) = pictures(edit(painter, ("image", photo), ("size", "40x24"), model=model))
    assert opened(wide).size == (40, 24), "a size is what it says"


def test_an_editor_looks_at_all_pictures_in_their_order(painter: Daemon) -> None:
    one, two = file(32, 32, "JPEG"), file(16, 24, top=(250, 250, 0))
    made = [
        pictures(edit(painter, *(("image[]", data) for data in files), ("size", "32x32"), model="Editor"))[0]
        for files in ([one], [one, two], [two, one], [one, two])
    ]
    assert len(set(made)) == 3
    assert made[1] == made[3]


def test_a_photo_to_look_at_takes_no_more_than_a_small_picture(painter: Daemon) -> None:
    """The engine would look at each of its squares, for hours."""
    photo = file(1600, 1200, "JPEG")
    (made,) = pictures(edit(painter, ("image", photo), ("size", "32x32"), model="Editor"))
    (small,) = pictures(edit(painter, ("image", file(40, 30, "JPEG")), ("size", "32x32"), model="Editor"))
    (none,) = pictures(paint(painter, "make it green", "Editor"))
    assert difference(made, small) < difference(made, none)


def test_a_picture_too_small_for_a_result(painter: Daemon) -> None:
    answer = edit(painter, ("image", file(7, 9)))
    assert (answer.status, answer.error["param"]) == (400, "size")
    assert "7x9 pixels large" in answer.error["message"]
    assert pictures(edit(painter, ("image", file(7, 9)), ("size", "16x16")))


def test_the_size_of_an_edit_is_capped_by_an_option_and_not_by_a_size(painter: Daemon, weights: TinyDiffusion) -> None:
    register(painter, "Capped", weights, recipe_options={"soft_pixel_cap": "32x32"})
    (made,) = pictures(edit(painter, ("image", file(64, 32)), model="Capped"))
    assert opened(made).size == (32, 16)
    (made,) = pictures(edit(painter, ("image", file(64, 32)), ("size", "64x32"), model="Capped"))
    assert opened(made).size == (64, 32)


def test_a_variation_depends_on_the_picture_alone(painter: Daemon) -> None:
    made = [
        pictures(form(painter, "/v1/images/variations", ("model", "Tiny"), ("image", data), *more))
        for data, more in ((file(), []), (file(), [("prompt", "ignored")]), (file(top=(250, 250, 250)), [("n", 2)]))
    ]
    assert opened(made[0][0]).size == (32, 32)
    assert made[0] == made[1]
    assert len(made[2]) == 2
    assert made[2][0] != made[0][0]


def test_a_damaged_picture_is_the_clients_mistake(painter: Daemon) -> None:
    answer = edit(painter, ("image", file(640, 640, "JPEG")[:1200]))
    assert (answer.status, answer.error["code"], answer.error["param"]) == (400, "invalid_argument", "image")
    assert "damaged" in answer.error["message"]
    assert pictures(paint(painter))


def test_what_only_the_engine_knows_is_refused_by_it(painter: Daemon) -> None:
    answer = paint(painter, sample_method="magic")
    assert (answer.status, answer.error["param"]) == (400, "sample_method")
    assert "euler_a" in answer.error["message"]
    answer = paint(painter, prompt="a house <lora:lora:1>")
    assert (answer.status, answer.error["param"]) == (400, "prompt")
    assert "--lora-model-dir" in answer.error["message"]


def test_a_lora_changes_the_picture(painter: Daemon, weights: TinyDiffusion) -> None:
    folder = weights.lora.parent
    register(painter, "Styled", weights, recipe_options={"sdcpp_args": f"--lora-model-dir '{folder}'"})
    made = [pictures(paint(painter, f"a house{tag}", "Styled"))[0] for tag in ("", "<lora:lora:0.5>", " <lora:lora:2>")]
    assert difference(made[0], made[1]) > 0.5
    assert difference(made[0], made[2]) > difference(made[0], made[1]) / 2
    for name in ("other", "../lora", "/etc/passwd"):
        answer = paint(painter, f"a house <lora:{name}:1>", "Styled")
        assert (answer.status, answer.error["param"]) == (400, "prompt"), name
        assert "There is no LoRA" in answer.error["message"]


def test_a_whole_file_and_one_of_fewer_bits(painter: Daemon, weights: TinyDiffusion) -> None:
    """As the engine has them: one file for all, whose missing parts the arguments name, and GGUF."""
    (parts,) = pictures(paint(painter, steps=2))
    words = f"--taesd '{weights.autoencoder}' --clip_l '{weights.encoder}'"
    main = {"main": str(weights.transformer)}
    register(painter, "Whole", weights, checkpoints=main, recipe_options={"sdcpp_args": words})
    (whole,) = pictures(paint(painter, model="Whole", steps=2))
    assert (pixels(whole) == pixels(parts)).all()
    register(painter, "Quantised", weights, checkpoints={**weights.checkpoints, "main": str(quantised(weights))})
    (fewer,) = pictures(paint(painter, model="Quantised", steps=2))
    assert 0 < difference(fewer, parts) < 15


def test_a_stream_shows_the_picture_as_it_grows(painter: Daemon) -> None:
    answer = paint(painter, stream=True, partial_images=2, progress=True, steps=4, size="24x16")
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream"
    told = [json.loads(data) for data in events(answer.body)]
    partial = [event for event in told if event["type"] == "image_generation.partial_image"]
    assert [event["partial_image_index"] for event in partial] == [0, 1]
    assert all(opened(event["b64_json"]).size == (24, 16) for event in partial)
    steps = [(event["step"], event["steps"]) for event in told if event["type"] == "image_generation.progress"]
    assert steps == [(1, 4), (2, 4), (3, 4), (4, 4)]
    last = told[-1]
    assert last["type"] == "image_generation.completed"
    assert [last["b64_json"]] == pictures(paint(painter, steps=4, size="24x16"))
    assert (last["size"], last["output_format"]) == ("24x16", "png")
    plain = [json.loads(data) for data in events(paint(painter, stream=True, n=2).body)]
    assert [event["type"] for event in plain] == ["image_generation.completed"] * 2


def test_an_edit_is_streamed_too(painter: Daemon) -> None:
    answer = edit(painter, ("image", file()), ("stream", "true"), ("partial_images", 1), ("steps", 4))
    told = [json.loads(data)["type"] for data in events(answer.body)]
    assert told == ["image_edit.partial_image", "image_edit.completed"]


def test_the_steps_are_in_the_log(make_daemon: Any, weights: TinyDiffusion) -> None:
    daemon = make_daemon(fake_engine=False, config={"sdcpp": ONE_THREAD}).start()
    register(daemon, "Tiny", weights)
    assert paint(daemon, steps=2).status == 200
    wait_for(lambda: re.search(r"step 2 of 2, \d+\.\d\d s", daemon.log))


def start(daemon: Daemon, **more: Any) -> socket.socket:
    """Asks for more than anybody would wait for."""
    body = json.dumps({"model": "Tiny", "prompt": "x", "steps": 1000, "size": "256x256", **more}).encode()
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client = socket.create_connection(("127.0.0.1", daemon.port))
    client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return client


def until(client: socket.socket, sign: bytes) -> bytes:
    """What comes, up to a sign."""
    client.settimeout(60)
    seen = b""
    while sign not in seen:
        chunk = client.recv(65536)
        assert chunk, seen[-500:]
        seen += chunk
    return seen


def entry(daemon: Daemon) -> dict[str, Any]:
    return daemon.entry("Tiny")


def busy(daemon: Daemon) -> bool:
    return bool(entry(daemon)["status"] == "in_use")


#: Whether the library stops when it is told to; else its process has to end.
CAN_STOP = tuple(map(int, version("cyllama").split(".")[:2])) >= (0, 7)


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_stops_the_work(painter: Daemon, stream: bool) -> None:
    assert paint(painter).status == 200
    before = entry(painter)["pid"]
    client = start(painter, stream=stream, progress=stream)
    if stream:
        until(client, b"image_generation.progress")
    else:
        wait_for(lambda: busy(painter))
        time.sleep(0.3)
    client.close()
    begin = time.monotonic()
    assert pictures(paint(painter))
    assert time.monotonic() - begin < 20, "it would have taken minutes"
    assert entry(painter)["backend_health"] == "ready"
    assert (entry(painter)["pid"] == before) is CAN_STOP


def test_those_who_wait_behind_clients_that_leave_are_answered(painter: Daemon) -> None:
    assert paint(painter).status == 200
    leaving = [start(painter) for _ in range(3)]
    answers: list[Answer] = []
    waiting = threading.Thread(target=lambda: answers.append(paint(painter)))
    time.sleep(0.5)
    waiting.start()
    time.sleep(0.3)
    for client in leaving:
        client.close()
    waiting.join(60)
    assert pictures(answers[0])


def test_an_engine_that_dies_in_the_middle(painter: Daemon) -> None:
    """A picture under way is begun again by a new engine; who has seen a part of it is told."""
    assert paint(painter).status == 200
    client = start(painter, stream=True, progress=True)
    until(client, b"image_generation.progress")
    os.kill(entry(painter)["pid"], signal.SIGKILL)
    seen = until(client, b"backend_unavailable")
    client.close()
    (error,) = (json.loads(data) for data in re.findall(rb"data: (\{\"error\".*\})", seen))
    assert error["error"]["code"] == "backend_unavailable"
    assert "killed by SIGKILL" in error["error"]["message"]
    assert pictures(paint(painter))


def test_an_engine_that_dies_twice_is_a_clear_error(painter: Daemon) -> None:
    assert paint(painter).status == 200
    answers: list[Answer] = []
    asking = threading.Thread(target=lambda: answers.append(paint(painter, steps=1000, size="256x256")))
    asking.start()
    for _ in range(2):
        pid = wait_for(lambda: next((one["pid"] for one in painter.loaded() if one["model_name"] == "Tiny"), None))
        wait_for(lambda: busy(painter))
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda pid=pid: pid not in [one["pid"] for one in painter.loaded()])
    asking.join(30)
    assert (answers[0].status, answers[0].error["code"]) == (502, "backend_unavailable")
    assert pictures(paint(painter))


def test_an_unload_gives_the_memory_back(painter: Daemon) -> None:
    assert paint(painter).status == 200
    pid = entry(painter)["pid"]
    assert psutil.Process(pid).memory_info().rss > 200e6
    assert painter.post("/v1/unload", {"model_name": "Tiny"}).status == 200
    assert not psutil.pid_exists(pid)


def test_a_model_that_does_not_fit_the_engine(painter: Daemon, weights: TinyDiffusion, tmp_path: Path) -> None:
    (tmp_path / "broken.safetensors").write_bytes(b"GGUF and no weights at all")
    register(painter, "Broken", weights, checkpoints={"main": str(tmp_path / "broken.safetensors")})
    answer = paint(painter, model="Broken")
    assert (answer.status, answer.error["code"]) == (500, "model_load_error")
    assert "cannot load the model" in answer.error["message"]


def test_the_engine_answers_its_daemon_only(painter: Daemon) -> None:
    assert paint(painter).status == 200
    request = urllib.request.Request(f"{painter.engine()}/generate", data=b"\x80", method="POST")
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(request, timeout=10)
    assert base64.b64decode(pictures(paint(painter))[0]).startswith(b"\x89PNG")
