"""What a Lemonade Server answered about models and settings when it was asked, and what this daemon answers.

`recorded.tsv` has one request per line, in the order in which they were sent: its body, the status that was answered
then, the status and the answer that are right here. An answer is an error (its code and argument, `-` for none), the
name of a shape below, or keys with their types; the recorded body had these keys, ours may have more. Where something
differs, the last column is the first cell of the line in docs/compatibility.md that says so.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.daemon import ROOT, Daemon, gguf, wait_for

WORLDS: dict[str, dict[str, Any]] = {
    "offline": {"config": {"offline": True}},
    "running": {"env": {"LEMONADE_RELEASES_ENDPOINT": "http://127.0.0.1:9"}},
    "unreachable": {"env": {"HF_ENDPOINT": "http://127.0.0.1:9", "MODELSCOPE_ENDPOINT": "http://127.0.0.1:9"}},
}


class Row(msgspec.Struct):
    world: str
    request: str
    body: str
    was: int
    status: int
    answer: str
    described: str = ""

    def __str__(self) -> str:
        return f"{self.request} {self.body}"


def read() -> list[Row]:
    lines = Path(__file__).with_name("recorded.tsv").read_text().splitlines()[1:]
    return [
        msgspec.convert(dict(zip(Row.__struct_fields__, line.split("\t"), strict=False)), Row, strict=False)
        for line in lines
    ]


ROWS = read()


def keys(text: str) -> dict[str, Any]:
    """`name:type …` as a shape."""
    types = {"str": str, "int": int, "float": float, "bool": bool, "list": list, "dict": dict, "null": None}
    return {name: types[kind] for name, _, kind in (pair.partition(":") for pair in text.split())}


MODEL = keys(
    "id:str object:str owned_by:str created:int checkpoint:str checkpoints:dict recipe:str recipe_options:dict"
    " source:str registry_source:str downloaded:bool update_available:bool suggested:bool labels:list components:list"
)
SIZED = MODEL | {"size": float}
HERE = SIZED | {"context_length": int, "max_context_window": int}
FILE = keys("name:str role:str size_bytes:int exists:bool")
LAYER = keys(
    "auto_evict:null ctx_size:int downsize_idle_timeout:int evict_idle_timeout:int evict_weight_factor:float"
    " llamacpp_args:str llamacpp_backend:str llamacpp_device:str merge_args:bool model_name:str"
)
JOB = keys(
    "id:str type:str model_name:str status:str running:bool complete:bool file:str file_index:int total_files:int"
    " percent:int bytes_downloaded:int bytes_previously_downloaded:int bytes_total:int completed_files_bytes:int"
    " cumulative_bytes_downloaded:int overall_bytes_downloaded:int total_download_size:int"
)
BINARIES = keys("backend:str cuda_bin:str rocm_bin:str vulkan_bin:str")
SHAPES: dict[str, Any] = {
    "-": None,
    "[]": [],
    "MODEL": MODEL,
    "SIZED": SIZED,
    "HERE": HERE,
    "LIST": {"object": str, "data": [SIZED]},
    "LIST_HERE": {"object": str, "data": [HERE]},
    "FILES": {"model_id": str, "files": [FILE]},
    "FILES_AND_PATHS": {"model_id": str, "files": [FILE | {"path": str}]},
    "OPTIONS": keys("model_name:str recipe:str saved:dict resolved_ctx_size:int")
    | {"effective": LAYER, "defaults": LAYER},
    "REGISTERED": keys("status:str model_name:str canonical_model_name:str") | {"model": MODEL},
    "ALIASES": {"aliases": [keys("alias:str target:str recipe:str downloaded:bool")]},
    "JOB": JOB,
    "FAILED_JOB": JOB | {"error": str},
    "FAILED_JOBS": [JOB | {"error": str}],
    "CONFIG": keys(
        "auto_check_model_updates:bool broadcast:bool cloud_providers:list config_version:int ctx_size:int"
        " default_model_source:str disable_model_filtering:bool enable_dgpu_gtt:bool extra_models_dir:str"
        " global_timeout:int host:str inhibit_suspend:bool log_level:str max_loaded_models:int models_dir:str"
        " no_fetch_executables:bool offline:bool port:int rocm_channel:str rocm_install_method:str websocket_port:str"
    )
    | {
        "acestep": BINARIES,
        "openmoss": BINARIES,
        "thinksound": BINARIES,
        "trellis": BINARIES | {"args": str},
        "flm": keys("args:str prefer_system:bool"),
        "kokoro": keys("cpu_bin:str"),
        "llamacpp": keys(
            "args:str backend:str cpu_args:str cpu_bin:str cuda_bin:str prefer_system:bool rocm_args:str rocm_bin:str"
            " vulkan_args:str vulkan_bin:str"
        ),
        "moonshine": keys("args:str cpu_args:str cpu_bin:str"),
        "onnxruntime": keys("args:str cpu_args:str cpu_bin:str"),
        "ryzenai": keys("server_bin:str"),
        "sdcpp": keys(
            "args:str backend:str cfg_scale:float cpu_args:str cpu_bin:str cuda_args:str cuda_bin:str height:int"
            " rocm_args:str rocm_bin:str steps:int vulkan_args:str vulkan_bin:str width:int"
        ),
        "telemetry": keys(
            "enabled:bool hide_inputs:bool hide_outputs:bool hide_thinking:bool max_queue_capacity:int session:dict"
            " trust_incoming_trace_context:bool"
        )
        | {
            "otlp": keys(
                "batch_timeout_s:float endpoint:str headers:dict max_retries:int protocol:str"
                " retry_backoff_base_s:float semantics:list send_batch_size:int"
            )
        },
        "thenoise": keys("backend:str lora_dir:str upscaler_dir:str"),
        "vllm": keys("args:str backend:str"),
        "whispercpp": keys("args:str backend:str cpu_args:str cpu_bin:str npu_args:str npu_bin:str"),
    },
}


def misfits(value: Any, shape: Any, place: str = "body") -> list[str]:
    """Where a value lacks what the shape has."""
    if isinstance(shape, dict):
        if not isinstance(value, dict):
            return [f"{place} is no object"]
        missing = [f"{place}.{key} is missing" for key in shape if key not in value]
        return missing + [
            each for key in shape if key in value for each in misfits(value[key], shape[key], f"{place}.{key}")
        ]
    if isinstance(shape, list):
        if not isinstance(value, list) or len(value) < len(shape) or (not shape and value):
            return [f"{place} is {value!r}"]
        return [misfit for number, one in enumerate(value) for misfit in misfits(one, shape[0], f"{place}[{number}]")]
    if shape is None:
        return [] if value is None else [f"{place} is {value!r}, not null"]
    if isinstance(value, bool) is not (shape is bool) or not isinstance(
        value, (int, float) if shape is float else shape
    ):
        return [f"{place} is {value!r}, no {shape.__name__}"]
    return []


def ask(daemon: Daemon, row: Row) -> list[str]:
    """What is wrong with the daemon's answer."""
    method, _, path = row.request.partition(" ")
    body = None if row.body == "-" else row.body.replace("{models}", str(daemon.models)).encode()
    # Straight on the socket: other libraries would tidy the path up.
    connection = http.client.HTTPConnection("127.0.0.1", daemon.port, timeout=60)
    try:
        connection.request(method, path, body)
        answer = connection.getresponse()
        content = answer.read()
    finally:
        connection.close()
    if answer.status != row.status:
        return [f"status {answer.status}: {content[:200]!r}"]
    if row.answer == "FAILED_STREAM":
        event, _, data = content.decode().strip().split("\n\n")[-1].partition("\ndata: ")
        return [] if event == "event: error" and "error" in json.loads(data) else [f"the stream is {content!r}"]
    if not row.answer.startswith("error "):
        if not content:
            return [] if row.answer == "-" else ["no body"]
        return misfits(json.loads(content), SHAPES[row.answer] if row.answer in SHAPES else keys(row.answer))
    error = json.loads(content)["error"]
    got = f"error {error.get('code') or '-'} {error.get('param') or '-'}"
    wrong = [] if got == row.answer else [f"it is: {got}"]
    return wrong + misfits(error, keys("message:str type:str"), "error")


@pytest.mark.parametrize("world", WORLDS)
def test_the_answers(make_daemon: Callable[..., Daemon], world: str) -> None:
    daemon = make_daemon(**WORLDS[world])
    large = gguf({"general.architecture": "llama", "llama.context_length": 8192}) + bytes(2 << 20)
    for name in ("Smol-Copy-Q4_1", "SmolLM2-135M-Instruct.Q4_1"):
        (daemon.models / f"{name}.gguf").write_bytes(large)
    for name in ("SmolEmb", "SmolUser"):
        (daemon.folder / "hub" / f"models--{name}").mkdir()
        (daemon.folder / "hub" / f"models--{name}" / "model.gguf").write_bytes(large)
    wrong: dict[str, list[str]] = {}
    with daemon:
        for row in ROWS:
            if row.world != world:
                continue
            if row.answer == "FAILED_JOBS":
                wait_for(lambda: not any(job["running"] for job in daemon.get("/v1/downloads").json()))
            if misfit := ask(daemon, row):
                wrong[str(row)] = misfit
    assert wrong == {}


def test_what_differs_is_described() -> None:
    page = (ROOT.parent / "docs" / "compatibility.md").read_text().splitlines()
    described = {line.split(" | ")[0].removeprefix("| ") for line in page if line.startswith("| ")}
    silent = [str(row) for row in ROWS if row.was != row.status and not row.described]
    unknown = [str(row) for row in ROWS if row.described and row.described not in described]
    assert (silent, unknown) == ([], [])


def test_a_misfit_is_seen() -> None:
    shape = SHAPES["REGISTERED"]
    good = {
        "status": "success",
        "model_name": "user.a",
        "canonical_model_name": "user.a",
        "model": {key: kind() if kind else None for key, kind in MODEL.items()},
    }
    assert misfits(good, shape) == []
    assert misfits({**good, "status": None}, shape) == ["body.status is None, no str"]
    assert misfits({**good, "model": {**MODEL, "size": 1}}, shape) != []
    assert misfits({"a": 1}, {"a": bool}) and misfits({"a": True}, {"a": int}) and misfits([1], [])
