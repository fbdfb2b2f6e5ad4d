from __future__ import annotations

import json
from typing import Any

import pytest

from lemonade.errors import EngineReplied, LemonadeError
from lemonade.inference.omni.answer import MAX_DELTA, Stream, whole
from lemonade.inference.omni.loop import GAVE_UP, MAX_CALLS, MAX_TURNS, NO_SOURCE, Loop
from lemonade.inference.omni.tools import offered
from lemonade.model import Model

Tree = dict[str, Any]

PLANNER = Model(name="planner", recipe="llamacpp", labels=("chat", "tool-calling"))
PAINTER = Model(name="painter", recipe="sd-cpp", labels=("image", "edit"))
SPEAKER = Model(name="speaker", recipe="kokoro", labels=("tts",))

PNG = "![generated image](data:image/png;base64,cGljdHVyZQ==)"
EDITED = "![generated image](data:image/png;base64,ZWRpdGVk)"
MP3 = "<audio>data:audio/mpeg;base64,c291bmQ=</audio>"


class FakeHands:
    """A planner that says what it was told to, and tools that work at once."""

    def __init__(self, *messages: Tree | LemonadeError) -> None:
        self.messages = list(messages)
        self.bodies: list[Tree] = []
        self.work: list[tuple[str, str, Tree]] = []
        self.sources: list[bytes] = []
        self.failure: LemonadeError | None = None

    async def plan(self, body: Tree) -> Tree:
        self.bodies.append(json.loads(json.dumps(body)))
        message = self.messages.pop(0)
        if isinstance(message, LemonadeError):
            raise message
        message = {"role": "assistant", **message}
        reason = message.pop("finish_reason", "tool_calls" if message.get("tool_calls") else "stop")
        choice = {"index": 0, "message": message, "finish_reason": reason}
        turn = len(self.bodies)
        return {"id": f"id{turn}", "model": "planner", "choices": [choice], "usage": {"total_tokens": turn}}

    def _do(self, what: str, model: Model, request: Tree) -> None:
        if self.failure is not None:
            raise self.failure
        self.work.append((what, model.name, request))

    async def draw(self, model: Model, request: Tree) -> bytes:
        self._do("draw", model, request)
        return b"picture"

    async def edit(self, model: Model, request: Tree, picture: bytes) -> bytes:
        self._do("edit", model, request)
        self.sources.append(picture)
        return b"edited"

    async def speak(self, model: Model, request: Tree) -> bytes:
        self._do("speak", model, request)
        return b"sound"


class FakeSink:
    started = False

    def __init__(self) -> None:
        self.data = b""

    async def start(self) -> None:
        self.started = True

    async def write(self, data: bytes) -> None:
        self.data += data

    async def end(self, data: bytes = b"") -> None:
        self.data += data

    async def reply(self, body: bytes) -> None:
        raise AssertionError

    def events(self) -> list[Tree]:
        *events, done, rest = self.data.decode().split("\n\n")
        assert (done, rest) == ("data: [DONE]", "")
        return [json.loads(one.removeprefix("data: ")) for one in events]


def call(name: str, number: int = 1, **arguments: Any) -> Tree:
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": f"call{number}", "type": "function", "function": function}


def user(text: Any) -> Tree:
    return {"role": "user", "content": text}


async def answer(
    hands: FakeHands, body: Tree | None = None, *, components: tuple[Model, ...] = (PLANNER, PAINTER, SPEAKER)
) -> tuple[Loop, Tree]:
    """The loop and its answer; the same has to come out as a stream."""
    sink = FakeSink()
    stream = Stream(sink, "omni")
    await stream.begin()
    planner = components[0]
    loop = Loop(planner, offered(components), "", hands, stream.show)
    await loop.run(body or {"messages": [user("hello")]})
    await stream.finish(loop, usage=True)
    *events, last = sink.events()
    assert last["usage"] == loop.reply["usage"]
    answered = whole(loop, "omni")
    message = answered["choices"][0]["message"]
    deltas = [event["choices"][0]["delta"] for event in events]
    assert deltas[0]["role"] == "assistant"
    content = "".join(delta.get("content", "") for delta in deltas)
    assert set(content.split("\n\n")) >= set((message["content"] or "").split("\n\n"))
    calls = [
        {key: value for key, value in one.items() if key != "index"} for d in deltas for one in d.get("tool_calls", ())
    ]
    assert calls == message.get("tool_calls", [])
    assert events[-1]["choices"][0]["finish_reason"] == answered["choices"][0]["finish_reason"]
    assert {event["model"] for event in events} == {answered["model"]} == {"omni"}
    return loop, answered


def said(answered: Tree) -> Any:
    return answered["choices"][0]["message"]["content"]


async def test_without_a_call_the_planner_just_answers() -> None:
    hands = FakeHands({"content": "Hi."})
    _, answered = await answer(hands)
    assert said(answered) == "Hi."
    assert (answered["id"], answered["usage"]) == ("id1", {"total_tokens": 1})
    assert answered["choices"][0]["finish_reason"] == "stop"


async def test_a_picture_is_drawn_and_the_planner_is_told_without_seeing_it() -> None:
    hands = FakeHands(
        {"content": None, "tool_calls": [call("generate_image", prompt="an apple")]}, {"content": "Here you are."}
    )
    _, answered = await answer(hands)
    assert said(answered) == f"Here you are.\n\n{PNG}"
    assert hands.work == [("draw", "painter", {"prompt": "an apple", "size": "512x256"})]
    assert hands.bodies[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": "call1",
        "content": "Image generated successfully.",
    }
    assert "base64" not in json.dumps(hands.bodies)
    assert answered["usage"] == {"total_tokens": 2}


async def test_all_arguments_reach_the_painter() -> None:
    given = {"prompt": "p", "steps": 4, "cfg_scale": 1.5, "seed": 7, "sample_method": "euler", "flow_shift": 3}
    hands = FakeHands({"tool_calls": [call("generate_image", **given, size="300 by 5000")]}, {"content": "."})
    await answer(hands)
    assert hands.work == [("draw", "painter", {**given, "size": "304x2048"})]


async def test_speech_is_mp3() -> None:
    hands = FakeHands({"tool_calls": [call("text_to_speech", input="hello")]}, {"content": "Listen."})
    _, answered = await answer(hands)
    assert said(answered) == f"Listen.\n\n{MP3}"
    assert hands.work == [("speak", "speaker", {"input": "hello", "response_format": "mp3"})]


async def test_several_calls_of_one_turn_run_in_their_order() -> None:
    calls = [call("text_to_speech", 1, input="a"), call("generate_image", 2, prompt="b")]
    hands = FakeHands({"content": "", "tool_calls": calls}, {"content": "Both."})
    _, answered = await answer(hands)
    assert said(answered) == f"Both.\n\n{MP3}\n\n{PNG}"
    assert [message["tool_call_id"] for message in hands.bodies[1]["messages"][-2:]] == ["call1", "call2"]


async def test_the_same_picture_is_drawn_once() -> None:
    one = call("generate_image", 1, prompt="a", seed=1)
    same = call("generate_image", 2, seed=1, prompt="a")
    other = call("generate_image", 3, prompt="a", seed=2)
    hands = FakeHands({"tool_calls": [one, same, other]}, {"content": "Two."})
    _, answered = await answer(hands)
    assert len(hands.work) == 2
    assert said(answered).count(PNG) == 2


async def test_an_edit_starts_from_the_picture_of_this_answer_and_takes_its_place() -> None:
    hands = FakeHands(
        {"tool_calls": [call("generate_image", 1, prompt="a")]},
        {"tool_calls": [call("edit_image", 2, prompt="b")]},
        {"content": "Done."},
    )
    _, answered = await answer(hands)
    assert hands.sources == [b"picture"]
    assert hands.work[1] == ("edit", "painter", {"prompt": "b"})
    assert said(answered) == f"Done.\n\n{EDITED}"


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": f"Look:\n\n{PNG}"},
        user([{"type": "text", "text": "x"}, {"type": "image_url", "image_url": {"url": PNG[19:-1]}}]),
    ],
)
async def test_an_edit_starts_from_the_newest_picture_of_the_history(message: Tree) -> None:
    old = {"role": "assistant", "content": f"Old: {EDITED}"}
    hands = FakeHands({"tool_calls": [call("edit_image", prompt="b", size="64x64")]}, {"content": "Done."})
    _, answered = await answer(hands, {"messages": [user("a"), old, message, user("make it blue")]})
    assert hands.sources == [b"picture"]
    assert hands.work == [("edit", "painter", {"prompt": "b", "size": "64x64"})]
    assert said(answered) == f"Done.\n\n{EDITED}"


async def test_an_edit_without_a_picture_is_told_to_the_planner() -> None:
    hands = FakeHands({"tool_calls": [call("edit_image", prompt="b")]}, {"content": "There is none."})
    _, answered = await answer(hands)
    assert hands.bodies[1]["messages"][-1]["content"] == f"Error: {NO_SOURCE}"
    assert said(answered) == "There is none."


async def test_a_tool_that_fails_does_not_fail_the_request() -> None:
    hands = FakeHands({"tool_calls": [call("generate_image", prompt="a")]}, {"content": "It did not work."})
    hands.failure = EngineReplied("out of paint", status=500)
    _, answered = await answer(hands)
    assert hands.bodies[1]["messages"][-1]["content"] == "Error: out of paint"
    assert said(answered) == "It did not work."


@pytest.mark.parametrize(
    ("broken", "told"),
    [
        ({"name": "paint_image", "arguments": "{}"}, "there is no tool paint_image"),
        ({"name": "generate_image", "arguments": "{"}, "not valid"),
        ({"name": "generate_image", "arguments": "{}"}, "prompt"),
        ({"name": "generate_image", "arguments": '{"prompt": "a", "steps": 0}'}, "steps"),
        ({"name": "generate_image", "arguments": '{"prompt": "a", "size": "huge"}'}, "size"),
        ({"name": "text_to_speech", "arguments": '{"input": ""}'}, "input"),
        ({"name": "text_to_speech"}, "input"),
    ],
)
async def test_what_a_planner_gets_wrong_it_is_told(broken: Tree, told: str) -> None:
    hands = FakeHands({"tool_calls": [{"id": "1", "type": "function", "function": broken}]}, {"content": "Well."})
    _, answered = await answer(hands)
    message = hands.bodies[1]["messages"][-1]["content"]
    assert message.startswith("Error: ")
    assert told in message
    assert said(answered) == "Well."
    assert hands.work == []


async def test_a_planner_that_calls_for_ever_is_stopped() -> None:
    turns = [{"tool_calls": [call("edit_image", prompt="b")]} for _ in range(50)]
    hands = FakeHands(*turns)
    _, answered = await answer(hands)
    assert len(hands.bodies) == MAX_TURNS
    assert said(answered) == GAVE_UP


async def test_one_turn_cannot_draw_without_end() -> None:
    calls = [call("generate_image", number, prompt="a", seed=number) for number in range(50)]
    hands = FakeHands({"tool_calls": calls}, {"content": "Enough."})
    _, answered = await answer(hands)
    assert len(hands.work) == MAX_CALLS
    assert said(answered).count(PNG) == MAX_CALLS
    assert "no more than" in hands.bodies[1]["messages"][-1]["content"]


WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


async def test_a_clients_tool_is_handed_back_with_what_was_made_before() -> None:
    mixed = [call("weather", 2), call("generate_image", 3, prompt="b")]
    hands = FakeHands(
        {"tool_calls": [call("generate_image", 1, prompt="a")]}, {"content": "Wait.", "tool_calls": mixed}
    )
    _, answered = await answer(hands, {"messages": [user("x")], "tools": [WEATHER]})
    choice = answered["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"] == [call("weather", 2)]
    assert said(answered) == f"Wait.\n\n{PNG}"
    assert len(hands.work) == 1


async def test_a_clients_tool_of_the_same_name_gives_way() -> None:
    clash = {"type": "function", "function": {"name": "generate_image", "parameters": {}}}
    hands = FakeHands({"content": "Hi."})
    await answer(hands, {"messages": [user("x")], "tools": [clash, WEATHER]})
    tools = hands.bodies[0]["tools"]
    assert [tool["function"]["name"] for tool in tools] == ["generate_image", "edit_image", "text_to_speech", "weather"]
    schema = tools[0]["function"]["parameters"]
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["prompt"]
    assert schema["properties"]["steps"]["maximum"] == 100


async def test_only_what_a_component_can_do_is_offered() -> None:
    hands = FakeHands({"content": "Hi."})
    await answer(hands, components=(PLANNER,))
    assert "tools" not in hands.bodies[0]


async def test_the_planner_gets_the_clients_body_but_for_what_is_ours() -> None:
    hands = FakeHands({"content": "Hi."})
    body = {
        "model": "omni",
        "messages": [{"role": "system", "content": "Be brief."}, user("x")],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0.5,
        "tool_choice": "auto",
    }
    await answer(hands, body)
    sent = hands.bodies[0]
    assert sent["model"] == "planner"
    assert (sent["temperature"], sent["tool_choice"]) == (0.5, "auto")
    assert not {"stream", "stream_options"} & sent.keys()
    system = sent["messages"][0]["content"]
    assert "- generate_image: " in system
    assert system.endswith("\n\nBe brief.")
    assert [message["role"] for message in sent["messages"]] == ["system", "user"]
    assert body["messages"][0]["content"] == "Be brief."


async def test_a_choice_that_was_obeyed_does_not_bind_the_next_turn() -> None:
    hands = FakeHands({"tool_calls": [call("generate_image", prompt="a")]}, {"content": "Done."})
    choice = {"type": "function", "function": {"name": "generate_image"}}
    await answer(hands, {"messages": [user("x")], "tool_choice": choice})
    assert [body["tool_choice"] for body in hands.bodies] == [choice, "auto"]


async def test_media_of_earlier_turns_become_notes() -> None:
    photo = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    sound = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    messages = [
        user([{"type": "text", "text": "look"}, photo, photo, sound]),
        {"role": "assistant", "content": f"Here.\n\n{PNG}\n\n{MP3}"},
        {"role": "assistant", "content": [photo]},
        user("more"),
    ]
    hands = FakeHands({"content": "Hi."})
    await answer(hands, {"messages": messages})
    contents = [message["content"] for message in hands.bodies[0]["messages"][1:]]
    assert [part["text"] for part in contents[0]] == [
        "look",
        "[User provided image #1]",
        "[User provided image #2]",
        "[User provided audio file]",
    ]
    assert contents[1] == "Here.\n\n[generated image]\n\n[generated audio]"
    assert contents[2] == [{"type": "text", "text": "[Generated image]"}]

    eyes = Model(name="planner", recipe="llamacpp", labels=("chat", "vision"), checkpoints={"mmproj": "eyes.gguf"})
    hands = FakeHands({"content": "Hi."})
    await answer(hands, {"messages": messages}, components=(eyes,))
    assert hands.bodies[0]["messages"][1]["content"][1] == photo


async def test_deltas_are_bounded() -> None:
    sink = FakeSink()
    stream = Stream(sink, "omni")
    await stream.show("é" * (2 * MAX_DELTA))
    await stream.fail(EngineReplied("broken", status=500))
    deltas = [event["choices"][0]["delta"].get("content", "") for event in sink.events()]
    assert max(len(delta) for delta in deltas) == MAX_DELTA
    assert "".join(deltas) == "\n\n" + "é" * (2 * MAX_DELTA) + "\n\nError: broken"
    assert sink.events()[-1]["choices"][0]["finish_reason"] == "stop"


async def test_a_planner_that_fails_fails_the_request() -> None:
    with pytest.raises(EngineReplied):
        await answer(FakeHands(EngineReplied("broken", status=500)))


async def test_an_answer_that_was_cut_says_so() -> None:
    _, answered = await answer(FakeHands({"content": "And then", "finish_reason": "length"}))
    assert answered["choices"][0]["finish_reason"] == "length"


async def test_a_planner_that_was_cut_short_before_its_first_word_is_not_spoken_for() -> None:
    _, answered = await answer(FakeHands({"content": "", "finish_reason": "length"}))
    assert (said(answered), answered["choices"][0]["finish_reason"]) == ("", "length")


async def test_the_planner_is_told_of_tools_only_where_there_are_some() -> None:
    hands = FakeHands({"content": "Hi."})
    await answer(hands, components=(PLANNER,))
    assert "tools" not in hands.bodies[0]["messages"][0]["content"]


@pytest.mark.parametrize("text", ["![" * 300_000, "<audio" * 100_000, f"{PNG[:42]}" * 10_000, "![](" + " " * 300_000])
async def test_odd_texts_are_left_alone_in_linear_time(text: str) -> None:
    hands = FakeHands({"content": "Hi."})
    await answer(hands, {"messages": [user(text)]})
    assert hands.bodies[0]["messages"][1]["content"] == text


async def test_a_failure_before_the_first_event_begins_the_stream() -> None:
    sink = FakeSink()
    await Stream(sink, "omni").fail(EngineReplied("broken", status=500))
    assert sink.events()[0]["choices"][0]["delta"]["role"] == "assistant"
