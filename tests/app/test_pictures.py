"""Requests for pictures that are refused before anything is loaded, and those to programs on PATH."""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.app.painting import edit, form, paint, pictures, register
from tests.daemon import Answer, Daemon, events, wait_for
from tests.engines.sdcpp.looking import file, noise, opened, right_half
from tests.inference.images import gif, jpeg, png
from tests.tiny_diffusion import TinyDiffusion

FAKE = Path(__file__).parents[1] / "engines" / "sdcpp" / "fake_sd.py"
UPSCALER = "user.Larger"


def program_daemon(folder: Path, **switches: Any) -> Daemon:
    """A daemon with an `sd-server` and an `sd-cli` on PATH, the models `Tiny`, `Split` and an upscaler."""
    programs = folder / "programs"
    programs.mkdir(parents=True)
    for name in ("server", "cli"):
        shim = programs / f"sd-{name}"
        shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" {name} "$@"\n')
        shim.chmod(0o755)
    env = {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "FAKE_SD": json.dumps(switches)}
    return Daemon(folder, env=env, fake_engine=False, config={"sdcpp": {"backend": "system"}})


def add_models(daemon: Daemon) -> None:
    files = [daemon.models / f"{name}.safetensors" for name in ("main", "clip_l", "t5xxl", "vae", "esrgan")]
    for each in files:
        each.write_bytes(b"GGUF weights")
    main, clip, t5, vae, esrgan = (str(each) for each in files)
    weights = TinyDiffusion(*files[:4])
    register(daemon, "Tiny", weights, checkpoints={"main": main})
    register(daemon, "Split", weights, checkpoints={"main": main, "text_encoder": t5, "vae": vae, "clip_l": clip})
    upscaler = {"model_name": UPSCALER, "recipe": "sd-cpp", "labels": ["upscaling"], "checkpoint": esrgan}
    assert daemon.post("/v1/models/register", upscaler).status == 200


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    one = program_daemon(tmp_path_factory.mktemp("program"))
    one.add_model("text")
    with one:
        add_models(one)
        yield one


def record(daemon: Daemon) -> dict[str, Any]:
    with urllib.request.urlopen(f"{daemon.engine()}/fake/record", timeout=10) as answer:
        seen: dict[str, Any] = json.load(answer)
        return seen


def last(daemon: Daemon) -> dict[str, Any]:
    seen: dict[str, Any] = record(daemon)["seen"][-1]
    return seen


def upscale(daemon: Daemon, image: str | bytes, model: str = UPSCALER, **more: Any) -> Answer:
    text = base64.b64encode(image).decode() if isinstance(image, bytes) else image
    return daemon.post("/v1/images/upscale", {"image": text, "model": model, **more})


def refused(answer: Answer, param: str, code: str = "invalid_argument") -> str:
    assert (answer.status, answer.error.get("code"), answer.error.get("param")) == (400, code, param), answer.body
    assert len(answer.body) < 2000
    return str(answer.error["message"])


# What an sd-server is asked.


def test_settings_go_to_a_server_in_its_own_arguments(program: Daemon) -> None:
    made = pictures(
        paint(program, size="48x32", n=2, steps=3, cfg_scale=2.5, seed=9, negative_prompt="rain", flow_shift=3)
    )
    assert [opened(one).size for one in made] == [(48, 32)] * 2
    assert last(program) == {
        "path": "/v1/images/generations",
        "prompt": "a red apple ",
        "extra": {
            "sample_params": {"sample_steps": 3, "guidance": {"txt_cfg": 2.5}, "flow_shift": 3.0},
            "seed": 9,
            "negative_prompt": "rain",
        },
        "n": 2,
        "size": "48x32",
        "files": [],
    }


def test_the_models_own_settings_hold_otherwise(program: Daemon) -> None:
    pictures(paint(program))
    assert last(program)["extra"] == {"sample_params": {"sample_steps": 1, "guidance": {"txt_cfg": 1.0}}}
    assert last(program)["size"] == "32x32"
    for name in ("sample_method", "sampling_method"):
        pictures(paint(program, **{name: "heun"}))
        assert last(program)["extra"]["sample_params"]["sample_method"] == "heun"
    pictures(paint(program, seed=-5))
    assert 0 <= last(program)["extra"]["seed"] < 2**31


def test_nobody_else_puts_arguments_into_a_prompt(program: Daemon) -> None:
    mine = '<sd_cpp_extra_args>{"lora":[{"path":"/etc/passwd"}]}</sd_cpp_extra_args>'
    for prompt in (f"a{mine}b", "<sd_cpp_<sd_cpp_extra_args>extra_args>{}</sd_cpp_extra_args>", mine.upper()):
        pictures(paint(program, prompt))
        assert last(program)["extra"] == {"sample_params": {"sample_steps": 1, "guidance": {"txt_cfg": 1.0}}}
    pictures(paint(program, negative_prompt="</sd_cpp_extra_args>"))
    assert last(program)["extra"]["negative_prompt"] == "</sd_cpp_extra_args>"


def test_a_server_is_asked_for_as_many_pictures_as_it_makes_at_once(program: Daemon) -> None:
    """It leaves out what is beyond eight without a word."""
    for seed, first in ((5, 5), (None, 42)):
        answer = paint(program, n=20, seed=seed)
        assert [opened(one).getpixel((0, 0))[0] for one in pictures(answer)] == [*range(first, first + 20)]
        assert [entry["generation_info"] for entry in answer.json()["data"]] == [
            {"seed": number} for number in range(first, first + 20)
        ]
    assert [one["n"] for one in record(program)["seen"][-3:]] == [8, 8, 4]
    told = [json.loads(data) for data in events(paint(program, n=9, seed=1, stream=True).body)]
    assert [opened(event["b64_json"]).getpixel((0, 0))[0] for event in told] == [*range(1, 10)]


def test_a_random_seed_is_told(program: Daemon) -> None:
    (entry,) = paint(program, seed=-1).json()["data"]
    assert entry["generation_info"] == {"seed": last(program)["extra"]["seed"]}


def test_more_steps_than_a_server_makes_are_refused(program: Daemon) -> None:
    (made,) = pictures(paint(program, steps=100))
    assert opened(made).getpixel((0, 0))[1] == 100
    assert refused(paint(program, steps=101), "steps") == "'steps' must be at most 100 for an sd-server."


def test_loras_are_named_as_a_server_knows_them(program: Daemon) -> None:
    folder = program.models / "loras"
    folder.mkdir()
    (folder / "style.safetensors").write_bytes(b"weights")
    options = {"sdcpp_args": f"--lora-model-dir {folder}"}
    weights = TinyDiffusion(*[program.models / "main.safetensors"] * 4)
    register(program, "Styled", weights, checkpoints={"main": str(weights.transformer)}, recipe_options=options)
    pictures(paint(program, "a house <lora:style:0.5>", "Styled"))
    assert last(program)["extra"]["lora"] == [{"path": "style.safetensors", "multiplier": 0.5}]
    assert last(program)["prompt"] == "a house "
    for name in ("other", "../main"):
        assert "There is no LoRA" in refused(paint(program, f"a house <lora:{name}:1>", "Styled"), "prompt")
    assert "--lora-model-dir" in refused(paint(program, "a house <lora:style:1>"), "prompt")


def leave(daemon: Daemon, **more: Any) -> socket.socket:
    """Begins to ask for a picture."""
    body = json.dumps({"model": "Tiny", **more}).encode()
    head = f"POST /v1/images/generations HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    client = socket.create_connection(("127.0.0.1", daemon.port))
    client.sendall(f"{head}Content-Type: application/json\r\n\r\n".encode() + body)
    return client


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_whose_client_leaves_is_started_anew(program: Daemon, stream: bool) -> None:
    """It cannot be told to stop, and makes one picture at a time. Who waits meanwhile is answered."""
    pictures(paint(program))
    before = program.entry("Tiny")["pid"]
    client = leave(program, prompt="HANG", stream=stream)
    wait_for(lambda: last(program)["prompt"].startswith("HANG"))
    answers: list[Answer] = []
    waiting = threading.Thread(target=lambda: answers.append(paint(program, "behind it")))
    waiting.start()
    wait_for(lambda: len(program.log) and program.entry("Tiny")["status"] == "in_use")
    client.close()
    waiting.join(30)
    assert pictures(answers[0])
    assert program.entry("Tiny")["pid"] != before
    assert "gave its work up by ending" in program.log


def test_a_client_that_leaves_the_line_ends_nothing(program: Daemon) -> None:
    pictures(paint(program))
    before = program.entry("Tiny")["pid"]
    answers: list[Answer] = []
    painting = threading.Thread(target=lambda: answers.append(paint(program, "SLOW")))
    painting.start()
    wait_for(lambda: last(program)["prompt"].startswith("SLOW"))
    client = leave(program, prompt="never asked for")
    time.sleep(0.3)
    client.close()
    painting.join(30)
    assert pictures(answers[0])
    assert pictures(paint(program))
    assert program.entry("Tiny")["pid"] == before
    assert "never asked for" not in [one["prompt"].strip() for one in record(program)["seen"]]


def test_a_failure_of_a_server_has_its_words(program: Daemon) -> None:
    answer = paint(program, "THROW")
    assert (answer.status, answer.error["message"]) == (500, "the brush broke")


def test_a_folder_of_programs_is_a_backend(tmp_path: Path) -> None:
    """`sdcpp.vulkan_bin` and its kind."""
    with program_daemon(tmp_path) as daemon:
        add_models(daemon)
        changes = {"sdcpp": {"backend": "vulkan", "vulkan_bin": str(tmp_path / "programs"), "vulkan_args": "--mmap"}}
        assert daemon.post("/internal/set", changes).status == 200
        assert pictures(paint(daemon, n=9))
        entry = daemon.entry("Tiny")
        assert entry["device"] == "gpu"
        argv = record(daemon)["argv"]
        assert argv[-3:] == ["--vae-tiling", "--diffusion-fa", "--mmap"]
        assert opened(pictures(upscale(daemon, file()))[0]).size == (128, 128)
        (tmp_path / "programs" / "sd-cli").unlink()
        answer = upscale(daemon, file())
        assert (answer.status, answer.error["code"]) == (500, "model_load_error")
        assert f"there is no sd-cli in {tmp_path / 'programs'}" in answer.error["message"]


def test_files_reach_a_server_byte_for_byte_in_their_order(program: Daemon) -> None:
    one, two, mask = file(24, 40, "JPEG"), noise(16, 16, 4), right_half()
    pictures(edit(program, ("image[]", one), ("image[]", two), ("mask", mask), ("n", 2)))
    seen = last(program)
    assert (seen["path"], seen["n"], seen["size"]) == ("/v1/images/edits", 2, "24x40")
    assert [(name, kind) for name, _, kind, _ in seen["files"]] == [
        ("image[]", "image/jpeg"),
        ("image[]", "image/png"),
        ("mask", "image/png"),
    ]
    assert [base64.b64decode(data) for *_, data in seen["files"]] == [one, two, mask]


def test_a_variation_is_an_edit_with_a_neutral_prompt(program: Daemon) -> None:
    pictures(form(program, "/v1/images/variations", ("model", "Tiny"), ("image", file()), ("prompt", "ignored")))
    assert last(program)["prompt"].startswith("variation of")
    assert last(program)["size"] == "32x32"


def test_a_server_decodes_no_webp(program: Daemon) -> None:
    refused(edit(program, ("image", file(kind="WEBP"))), "image")


def test_a_server_is_started_with_the_parts_of_the_model(program: Daemon) -> None:
    pictures(paint(program, model="Split"))
    models = program.models
    argv = record(program)["argv"]
    parts = zip(argv[2::2], argv[3::2], strict=True)
    assert dict(parts) == {
        "--diffusion-model": str(models / "main.safetensors"),
        "--t5xxl": str(models / "t5xxl.safetensors"),
        "--clip_l": str(models / "clip_l.safetensors"),
        "--vae": str(models / "vae.safetensors"),
    }


def test_a_server_without_previews_streams_the_pictures(program: Daemon) -> None:
    answer = paint(program, stream=True, partial_images=2, n=2)
    told = [json.loads(data) for data in events(answer.body)]
    assert [event["type"] for event in told] == ["image_generation.completed"] * 2
    assert opened(told[0]["b64_json"]).size == (32, 32)


def test_an_error_of_a_server_keeps_its_words(tmp_path: Path) -> None:
    with program_daemon(tmp_path, error="generate_image returned no results", fail=3) as daemon:
        add_models(daemon)
        answer = paint(daemon)
        assert answer.status == 500
        assert answer.error["message"] == "generate_image returned no results"
        assert answer.error["type"] == "backend_error"
        answer = upscale(daemon, file())
        assert answer.status == 500
        assert "exited with code 3" in answer.error["message"]
        assert "upscale failed for a reason" in answer.error["message"]


# The specification's commands.

GENERATION = """
curl http://localhost:13305/v1/images/generations \\
  -H "Content-Type: application/json" \\
  -d '{
      "model": "SD-Turbo",
      "prompt": "A serene mountain landscape at sunset",
      "size": "512x512",
      "steps": 4,
      "response_format": "b64_json"
    }'
"""
EDIT = """
curl http://localhost:13305/v1/images/edits \\
  -F "model=Flux-2-Klein-4B" \\
  -F "prompt=Add a red barn and mountains in the background, photorealistic" \\
  -F "size=512x512" \\
  -F "n=1" \\
  -F "response_format=b64_json" \\
  -F image=@image.png
"""
VARIATION = """
curl http://localhost:13305/v1/images/variations \\
  -F "model=Flux-2-Klein-4B" \\
  -F "size=512x512" \\
  -F "n=1" \\
  -F "response_format=b64_json" \\
  -F image=@image.png
"""
UPSCALE = """
curl http://localhost:13305/v1/images/upscale \\
  -H "Content-Type: application/json" \\
  -d "{\\"image\\": \\"$(base64 -w0 image.png)\\", \\"model\\": \\"RealESRGAN-x4plus\\"}"
"""


@pytest.mark.parametrize(
    ("example", "side"), [(GENERATION, 512), (EDIT, 512), (VARIATION, 512), (UPSCALE, 256)], ids=range(4)
)
def test_the_examples_of_the_specification(program: Daemon, tmp_path: Path, example: str, side: int) -> None:
    (tmp_path / "image.png").write_bytes(file(64, 64))
    command = example.replace("http://localhost:13305", program.url).replace("RealESRGAN-x4plus", UPSCALER)
    command = re.sub("SD-Turbo|Flux-2-Klein-4B", "Tiny", command)
    done = subprocess.run(["sh", "-c", command], cwd=tmp_path, capture_output=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    assert set(answer) == {"created", "data", "output_format"}, answer
    assert opened(answer["data"][0]["b64_json"]).size == (side, side)


# What is refused, before a model is looked for.

NOWHERE = "no-such-model"


@pytest.mark.parametrize(
    ("field", "value", "param"),
    [
        *(("size", size, "size") for size in ("0x0", "-1x5", "512", "axb", "100000x100000", "100000x10000", "5x5", "")),
        ("size", 512, "size"),
        *(("n", n, "n") for n in (0, -1, 1000, "2", 1.5)),
        *(("steps", steps, "steps") for steps in (0, -1, 10**9, "4")),
        *(("cfg_scale", scale, "cfg_scale") for scale in (-1, 1e9, "7")),
        *(("seed", seed, "seed") for seed in (2**64, "1", 1.5)),
        ("prompt", "", "prompt"),
        ("prompt", 5, "prompt"),
        ("response_format", "url", "response_format"),
        ("partial_images", 4, "partial_images"),
        ("stream", "yes", "stream"),
        ("flow_shift", -1, "flow_shift"),
    ],
)
def test_absurd_arguments(program: Daemon, field: str, value: Any, param: str) -> None:
    refused(paint(program, **{"model": NOWHERE, field: value}), param)


def test_an_address_is_refused_with_the_reason(program: Daemon) -> None:
    message = refused(paint(program, model=NOWHERE, response_format="url"), "response_format")
    assert message == "'response_format' must be b64_json: pictures are not kept, so there is no address for them."


def test_too_many_pixels_together(program: Daemon) -> None:
    assert "megapixels" in refused(paint(program, model=NOWHERE, size="4096x4096", n=100), "n")


@pytest.mark.parametrize("missing", ["prompt", "model"])
def test_what_is_missing(program: Daemon, missing: str) -> None:
    body = {"prompt": "x", "model": NOWHERE}
    del body[missing]
    refused(program.post("/v1/images/generations", body), missing, "missing_argument")


def test_models_that_paint_nothing(program: Daemon) -> None:
    for model, words in (("text", "not supported by llamacpp"), (UPSCALER, "enlarges pictures")):
        answer = paint(program, model=model)
        assert (answer.status, answer.error["type"]) == (400, "unsupported_operation")
        assert words in answer.error["message"]
    assert paint(program, model=NOWHERE).error["code"] == "model_not_found"


def test_null_and_unknown_arguments_are_no_matter(program: Daemon) -> None:
    nothing = dict.fromkeys(("size", "n", "steps", "cfg_scale", "seed", "response_format", "stream", "quality"))
    assert pictures(paint(program, **nothing, user="me", style="vivid", background="opaque"))


@pytest.mark.parametrize(
    ("parts", "param", "code"),
    [
        ([], "image", "missing_argument"),
        ([("image", "a text")], "image", "invalid_argument"),
        ([("image", b"")], "image", "invalid_argument"),
        ([("image[]", file()), ("image[]", b"no picture")], "image[]", "invalid_argument"),
        ([("image", b"no picture")], "image", "invalid_argument"),
        ([("image", gif(8, 8))], "image", "invalid_argument"),
        ([("image", png(declared=(40000, 40000)))], "image", "invalid_argument"),
        ([("image", jpeg(60000, 60000))], "image", "invalid_argument"),
        ([("image", file()), ("mask", b"no picture")], "mask", "invalid_argument"),
        ([("image", file()), ("n", 0)], "n", "invalid_argument"),
        ([("image", file()), ("n", 11)], "n", "invalid_argument"),
        ([("image", file()), ("n", "1.0")], "n", "invalid_argument"),
        ([("image", file()), ("n", 1), ("n", 1)], "n", "invalid_argument"),
        ([("image", file()), ("n", "two")], "n", "invalid_argument"),
        ([("image", file()), ("size", "0x0")], "size", "invalid_argument"),
        ([("image", file()), ("steps", "1e9")], "steps", "invalid_argument"),
        ([("image", file()), ("output_compression", "much")], "output_compression", "invalid_argument"),
        ([("image", file()), ("response_format", "url")], "response_format", "invalid_argument"),
        ([("image[]", file(8, 8))] * 17, "image[]", "invalid_argument"),
        ([("image", file()), ("image[]", file())], "image", None),
    ],
)
def test_absurd_forms(program: Daemon, parts: list[tuple[str, Any]], param: str, code: str) -> None:
    refused(edit(program, *parts, model=NOWHERE), param, code)
    # The last field of a variation is not looked at, as it has none of that name.
    names = {name for name, _ in parts}
    if not names & {"mask", "steps", "output_compression"}:
        refused(form(program, "/v1/images/variations", ("model", NOWHERE), *parts), param, code)


def test_a_form_without_a_prompt_and_a_body_that_is_no_form(program: Daemon) -> None:
    refused(form(program, "/v1/images/edits", ("model", NOWHERE), ("image", file())), "prompt", "missing_argument")
    answer = program.post("/v1/images/edits", {"model": NOWHERE, "prompt": "x"})
    assert answer.status == 400
    assert "multipart/form-data" in answer.error["message"]


def test_ignored_fields_of_a_form(program: Daemon) -> None:
    ignored = (("user", "me"), ("background", "auto"), ("quality", "high"), ("input_fidelity", "low"))
    assert pictures(edit(program, ("image", file()), *ignored, ("output_compression", 50)))


def test_a_variation_has_one_picture(program: Daemon) -> None:
    parts = (("model", NOWHERE), ("image[]", file()), ("image[]", file()))
    refused(form(program, "/v1/images/variations", *parts), "image")


# Larger pictures.


def test_upscaling_holds_no_slot_and_takes_no_place(program: Daemon) -> None:
    assert pictures(paint(program))
    before = [(one["model_name"], one["pid"]) for one in program.loaded()]
    (made,) = pictures(upscale(program, file(30, 22)))
    assert opened(made).size == (120, 88)
    assert [(one["model_name"], one["pid"]) for one in program.loaded()] == before
    refused(program.post("/v1/load", {"model_name": UPSCALER}), "model_name")


def test_a_data_url_and_a_stream(program: Daemon) -> None:
    text = "data:image/png;base64," + base64.b64encode(file()).decode()
    (event,) = (json.loads(data) for data in events(upscale(program, text, stream=True, progress=True).body))
    assert event["type"] == "image_upscale.completed"
    assert opened(event["b64_json"]).size == (128, 128)


def test_space_around_base64_is_no_matter(program: Daemon) -> None:
    text = base64.encodebytes(file(4, 4, top=(1, 2, 3), bottom=(1, 2, 3))).decode().replace("\n", "")
    for padded in (f"{text}\n", f"\r\n {text}", f"data:image/png;base64,{text}\n"):
        assert opened(pictures(upscale(program, padded))[0]).size == (16, 16)


@pytest.mark.parametrize(
    ("image", "words"),
    [
        ("aGFs\nbG8=", "it has spaces or line breaks inside"),
        ("data:image/png;base64,", "'image' is empty"),
        (" \n", "'image' is empty"),
    ],
)
def test_what_is_wrong_with_base64(program: Daemon, image: str, words: str) -> None:
    assert words in refused(upscale(program, image, NOWHERE), "image")


def test_what_is_wrong_with_a_file(program: Daemon) -> None:
    message = refused(edit(program, ("image", b""), model=NOWHERE), "image")
    assert message == "'image' is an empty file."
    message = refused(edit(program, ("image[]", file()), ("image[]", b"none"), model=NOWHERE), "image[]")
    assert message == "'image[]' number 2 is not a PNG, JPEG or WebP picture."


@pytest.mark.parametrize(
    "image",
    [
        "",
        "!!!!",
        "iVBORw0KGgo",
        base64.b64encode(file()).decode()[:40] + "\n" + base64.b64encode(file()).decode()[40:],
        base64.b64encode(b"no picture at all, but bytes").decode(),
        base64.b64encode(png(declared=(40000, 40000)) + bytes(5_000_000)).decode(),
        base64.b64encode(png(declared=(8000, 8000))).decode(),
        "A" * 60_000_000,
        5,
    ],
    ids=["empty", "signs", "cut", "newline", "bytes", "bomb", "large", "flood", "number"],
)
def test_what_is_no_picture_to_enlarge(program: Daemon, image: Any) -> None:
    refused(upscale(program, image, NOWHERE), "image")


def test_bombs_cost_no_memory(program: Daemon) -> None:
    assert program.process is not None
    daemon = psutil.Process(program.process.pid)
    bomb = png(declared=(40000, 40000)) + bytes(5_000_000)
    upscale(program, file())
    before = daemon.memory_info().rss
    for _ in range(3):
        refused(edit(program, ("image", bomb)), "image")
        refused(upscale(program, bomb), "image")
    assert daemon.memory_info().rss - before < 50e6
    assert max(map(len, program.log.splitlines())) < 2100


def test_what_an_sd_cli_does_not_do(program: Daemon) -> None:
    refused(upscale(program, file(kind="WEBP")), "image")
    refused(upscale(program, file(), upscale_factor=2), "upscale_factor")
    assert opened(pictures(upscale(program, file(kind="JPEG")))[0]).size == (128, 128)


def test_a_refused_enlargement_keeps_no_port(program: Daemon) -> None:
    assert program.process is not None
    daemon = psutil.Process(program.process.pid)
    before = len(daemon.net_connections("udp"))
    for _ in range(3):
        refused(upscale(program, file(), upscale_factor=2), "upscale_factor")
    assert len(daemon.net_connections("udp")) == before


@pytest.mark.parametrize(("missing", "param"), [("image", "image"), ("model", "model")])
def test_what_an_upscale_needs(program: Daemon, missing: str, param: str) -> None:
    body = {"image": base64.b64encode(file()).decode(), "model": UPSCALER}
    del body[missing]
    refused(program.post("/v1/images/upscale", body), param, "missing_argument")


def test_models_that_enlarge_nothing(program: Daemon) -> None:
    answer = upscale(program, file(), NOWHERE)
    assert (answer.status, answer.error["type"], answer.error.get("code")) == (404, "invalid_request_error", None)
    assert answer.error["message"] == f"Upscale model not found: {NOWHERE}"
    answer = upscale(program, file(), "Tiny")
    assert (answer.status, answer.error["message"]) == (400, "Upscale model is not labeled 'upscaling': Tiny")
    for factor in (0, -1, 9, "2", 1.5):
        refused(upscale(program, file(), upscale_factor=factor), "upscale_factor")
    answer = upscale(program, file(), "Remacri-4x-TheNoise", upscale_factor=2)
    assert (answer.status, answer.error["code"]) == (404, "model_not_supported")


def test_an_upscaler_that_cannot_be_had(make_daemon: Any) -> None:
    with make_daemon(fake_engine=False, config={"offline": True}) as daemon:
        answer = upscale(daemon, file(), "RealESRGAN-x4plus")
    assert answer.status == 404
    assert answer.error["message"].startswith("Upscale model not found: RealESRGAN-x4plus. ")
    assert "offline" in answer.error["message"]
