from __future__ import annotations

from typing import Any

import pytest

from lemonade.errors import ResidencyConflict, SlotsPinned
from lemonade.residency.policy import Idler, Occupant, admit, idle_step, pressure_step, room, same_process, wants_memory


def occupant(key: str, type_: str = "llm", **more: Any) -> Occupant:
    return Occupant(**{"key": key, "name": key, "type": type_, "recipe": "llamacpp"} | more)


def npu(key: str, recipe: str, type_: str = "llm", **more: Any) -> Occupant:
    return occupant(key, type_, recipe=recipe, device="npu", **more)


A, B, C = (occupant(key, used=used) for key, used in (("A", 1.0), ("B", 2.0), ("C", 3.0)))


@pytest.mark.parametrize(
    ("others", "limit", "stops"),
    [
        pytest.param([], 1, [], id="empty"),
        pytest.param([A], 1, ["A"], id="full"),
        pytest.param([A], 2, [], id="room"),
        pytest.param([B, A], 2, ["A"], id="least recently used"),
        pytest.param([A, B, C], -1, [], id="no limit"),
        pytest.param([A, B, C], 1, ["A", "B", "C"], id="the limit was lowered"),
        pytest.param([occupant("A", "embedding"), occupant("B", "transcription")], 1, [], id="a pool per type"),
        pytest.param([occupant("A", used=1, pinned=True), B], 2, ["B"], id="pinned stays"),
        pytest.param([occupant("A", used=1, busy=True), B], 2, ["B"], id="idle goes before busy"),
        pytest.param([occupant("A", used=1, busy=True), occupant("B", used=2, busy=True)], 2, ["A"], id="all busy"),
        pytest.param([A, occupant("B", used=2, leaving=True)], 2, ["B"], id="one leaves anyway"),
        pytest.param([occupant("A", pinned=True, leaving=True)], 1, ["A"], id="pinned but leaving"),
        pytest.param([occupant("A", residency_class="routing_helper")], 1, [], id="helpers are not counted"),
        pytest.param([occupant("A", recipe="cloud")], 1, [], id="cloud is not counted"),
    ],
)
def test_who_stops_for_a_standard_load(others: list[Occupant], limit: int, stops: list[str]) -> None:
    assert admit(occupant("X"), others, limit) == stops


def test_all_pinned_is_refused_by_name() -> None:
    others = [occupant("A", pinned=True), occupant("B", pinned=True)]
    with pytest.raises(SlotsPinned, match=r"No room for 'X'.*'A', 'B'") as caught:
        admit(occupant("X"), others, 2)
    assert caught.value.status == 409


def test_helpers_never_compete() -> None:
    helpers = [occupant(key, residency_class="routing_helper") for key in "AB"]
    assert admit(occupant("X", residency_class="routing_helper"), [*helpers, C], 1) == []


@pytest.mark.parametrize(
    ("wanted", "others", "stops"),
    [
        pytest.param(npu("X", "flm"), [npu("A", "flm", "embedding")], [], id="types share"),
        pytest.param(npu("X", "flm"), [npu("A", "flm")], ["A"], id="same type does not"),
        pytest.param(npu("X", "flm"), [npu("A", "ryzenai-llm", "embedding")], ["A"], id="the other is exclusive"),
        pytest.param(npu("X", "ryzenai-llm"), [npu("A", "flm", "embedding", pinned=True)], ["A"], id="exclusive"),
        pytest.param(
            npu("X", "whispercpp", "transcription"), [npu("A", "flm"), occupant("B")], ["A"], id="whisper on the NPU"
        ),
        pytest.param(occupant("X"), [npu("A", "ryzenai-llm", "embedding")], [], id="a CPU load asks nothing"),
    ],
)
def test_npu(wanted: Occupant, others: list[Occupant], stops: list[str]) -> None:
    assert admit(wanted, others, 4) == stops


@pytest.mark.parametrize("helper", ["wanted", "other"])
def test_helpers_and_the_npu_conflict(helper: str) -> None:
    classes = {"wanted": "standard", "other": "standard"} | {helper: "routing_helper"}
    wanted = npu("X", "ryzenai-llm", residency_class=classes["wanted"])
    with pytest.raises(ResidencyConflict, match="model 'X' cannot coexist with resident model 'A' because"):
        admit(wanted, [npu("A", "flm", residency_class=classes["other"])], 4)


def test_room_after_want_of_memory_spares_the_busy_and_the_pinned() -> None:
    others = [A, occupant("B", busy=True), occupant("C", pinned=True), occupant("D", "embedding"), occupant("X")]
    assert room(occupant("X"), others) == ["A", "D"]


@pytest.mark.parametrize(
    ("said", "memory"),
    [
        ("ggml_backend_cpu_buffer_type_alloc_buffer: failed to allocate buffer of size 99", True),
        ("terminate called after throwing an instance of 'std::bad_alloc'", True),
        ("CUDA error: out of memory", True),
        ("vk::Device::allocateMemory: ErrorOutOfDeviceMemory", True),
        ("numpy._core._exceptions._ArrayMemoryError: Unable to allocate 9 GiB", True),
        ("llama-server was killed by SIGKILL", True),
        ("llama-server exited with code 1; its last log lines:\nerror: invalid argument: --foo", False),
        ("failed to allocate; open: No such file or directory", False),
        ("llama-server was not ready after 600 s", False),
        ("the memory of elephants is long", False),
    ],
)
def test_want_of_memory_is_told_from_other_failures(said: str, memory: bool) -> None:
    assert wants_memory(said) is memory


@pytest.mark.parametrize(
    ("asked", "same"),
    [
        ({"ctx_size": -1, "llamacpp_args": ""}, True),
        ({"ctx_size": 4096, "llamacpp_args": ""}, True),
        ({"ctx_size": 2048, "llamacpp_args": ""}, False),
        ({"ctx_size": -1, "llamacpp_args": "--top-k 1"}, False),
        ({"ctx_size": -1, "llamacpp_args": "", "pinned": True, "evict_idle_timeout": 9}, True),
        ({"ctx_size": -1, "llamacpp_args": "", "steps": 3}, False),
    ],
)
def test_which_options_need_another_process(asked: dict[str, Any], same: bool) -> None:
    before = {"ctx_size": -1, "llamacpp_args": "", "pinned": False}
    assert same_process(asked, before, {**before, "ctx_size": 4096}) is same


def idler(key: str, idle: float, **more: Any) -> Idler:
    return Idler(key=key, idle=idle, **more)


@pytest.mark.parametrize(
    ("models", "everyone", "result"),
    [
        pytest.param([idler("A", 59)], True, (None, []), id="young"),
        pytest.param([idler("A", 60), idler("B", 61, full=False)], True, (None, ["A"]), id="downsize once"),
        pytest.param([idler("A", 300), idler("B", 400)], True, ("B", []), id="one at a time, the oldest"),
        pytest.param([idler("A", 400)], False, (None, []), id="off"),
        pytest.param([idler("A", 400, auto_evict=True)], False, ("A", []), id="on for this one"),
        pytest.param([idler("A", 400, auto_evict=False)], True, (None, []), id="off for this one"),
        pytest.param([idler("A", 400, pinned=True), idler("B", 400, busy=True)], True, (None, []), id="spared"),
        pytest.param([idler("A", 11, evict_after=10)], True, ("A", []), id="own timeout"),
    ],
)
def test_idle(models: list[Idler], everyone: bool, result: tuple[str | None, list[str]]) -> None:
    assert idle_step(models, everyone) == result


@pytest.mark.parametrize(
    ("models", "usage", "going"),
    [
        ([idler("A", 10)], 0.89, None),
        ([idler("A", 10), idler("B", 20)], 0.9, "B"),
        ([idler("A", 10), idler("B", 20, load_seconds=30)], 0.95, "A"),
        ([idler("A", 10), idler("B", 20, weight=100)], 0.95, "A"),
        ([idler("A", 10), idler("B", 20, weight=0)], 0.95, "B"),
        ([idler("A", 10, pinned=True), idler("B", 20, busy=True)], 1.0, None),
        ([], 1.0, None),
    ],
)
def test_pressure(models: list[Idler], usage: float, going: str | None) -> None:
    assert pressure_step(models, usage, 0.9) == going
