"""Collections whose models work together: the whole way, with engines that do what the test says."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemonade.inference.omni.loop import GAVE_UP, MAX_CALLS, MAX_TURNS, NO_SOURCE
from tests.app.omni import (
    ask,
    ask_streaming,
    call,
    content,
    define,
    deltas,
    finish,
    furnish,
    media,
    parts,
    studio,
)
from tests.daemon import Daemon, alive, wait_for
from tests.engines.fake_provider import FakeProvider
from tests.engines.sdcpp.looking import opened
from tests.stream import text_of

APPLE = call("generate_image", prompt="an apple", size="64 by 32")
HELLO = call("text_to_speech", input="Hello.")
DONE = {"text": "There it is."}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}}}


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with studio(tmp_path_factory.mktemp("studio")) as one:
        furnish(one)
        yield one


def painted(daemon: Daemon) -> list[dict[str, Any]]:
    """What the painter was asked for, all tests together."""
    return list(seen(daemon, "Painter")["seen"])


def seen(daemon: Daemon, model: str) -> dict[str, Any]:
    return daemon.seen(model)


def planner_bodies(daemon: Daemon, count: int) -> list[dict[str, Any]]:
    """The last bodies that the planner got."""
    return [one["body"] for one in daemon.seen("planner")["requests"][-count:]]


def test_a_picture_and_a_voice(daemon: Daemon) -> None:
    answer = ask(daemon, [APPLE, HELLO], DONE, temperature=0)
    text = content(answer)
    assert text.startswith("There it is.\n\n![generated image](data:image/png;base64,")
    picture, sound = media(text)
    assert opened(picture).size == (64, 32)
    assert base64.b64decode(sound).startswith(b"RIFF")
    body = answer.json()
    assert body["model"] == "Studio"
    assert body["choices"][0]["finish_reason"] == "stop"
    assert body["usage"]["completion_tokens"] == 3
    assert (body["id"], body["system_fingerprint"], body["timings"]["cache_n"]) == ("chatcmpl-fake", "fake", 2)
    first, second = planner_bodies(daemon, 2)
    assert first["temperature"] == 0
    assert [tool["function"]["name"] for tool in first["tools"]] == ["generate_image", "edit_image", "text_to_speech"]
    told = [(message["role"], message["content"]) for message in second["messages"][-2:]]
    assert told == [("tool", "Image generated successfully."), ("tool", "Audio generated successfully.")]
    assert "base64" not in json.dumps(second)
    assert {"planner", "Painter", "Voice"} <= {one["model_name"] for one in daemon.loaded()}


def test_a_stream_says_the_same(daemon: Daemon) -> None:
    whole = content(ask(daemon, [APPLE, HELLO], DONE))
    stream = ask_streaming(daemon, [APPLE, HELLO], DONE, stream_options={"include_usage": True})
    events = stream.rest()
    assert stream.whole
    assert parts(text_of(events)) == parts(whole)
    told = deltas(events)
    assert told[0] == {"role": "assistant", "content": ""}
    assert max(len(delta.get("content", "")) for delta in told) <= 16_000
    assert finish(events) == "stop"
    chunks = [json.loads(event) for event in events[:-1]]
    assert {chunk["model"] for chunk in chunks} == {"Studio"}
    (id_,) = {chunk["id"] for chunk in chunks}
    assert id_.startswith("chatcmpl-omni-")
    assert (chunks[-1]["choices"], chunks[-1]["usage"]["completion_tokens"]) == ([], 3)


def test_what_is_long_comes_in_pieces(daemon: Daemon) -> None:
    events = ask_streaming(daemon, [HELLO], DONE).rest()
    lengths = [len(delta.get("content", "")) for delta in deltas(events)]
    assert max(lengths) == 16_000
    assert len(media(text_of(events))) == 1


def test_a_models_own_name_goes_around_the_loop(daemon: Daemon) -> None:
    answer = ask(daemon, [APPLE], DONE, model="planner")
    choice = answer.json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    assert choice["message"]["tool_calls"][0]["function"]["name"] == "generate_image"
    (body,) = planner_bodies(daemon, 1)
    assert [message["role"] for message in body["messages"]] == ["user"]


def test_a_heartbeat_while_a_tool_works(daemon: Daemon) -> None:
    stream = ask_streaming(daemon, [call("generate_image", prompt="SLOW river")], DONE)
    events = stream.rest()
    assert stream.comments >= 1
    assert len(media(text_of(events))) == 1


@pytest.mark.parametrize("streamed", [False, True])
def test_a_planner_that_calls_for_ever(daemon: Daemon, streamed: bool) -> None:
    before = len(painted(daemon))
    many = [call("generate_image", prompt="p", seed=number) for number in range(50)]
    asked = len(daemon.seen("planner")["requests"])
    if streamed:
        events = ask_streaming(daemon, many).rest()
        assert finish(events) == "stop"
        text = text_of(events)
    else:
        text = content(ask(daemon, many))
    assert len(daemon.seen("planner")["requests"]) - asked == MAX_TURNS
    assert len(painted(daemon)) - before == MAX_CALLS == len(media(text))


def test_nothing_to_show_at_the_end(daemon: Daemon) -> None:
    assert content(ask(daemon, [call("edit_image", prompt="blue")])) == GAVE_UP
    assert planner_bodies(daemon, 1)[0]["messages"][-1]["content"] == f"Error: {NO_SOURCE}"


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"name": "paint", "arguments": "{}"}, "there is no tool paint"),
        ({"name": "generate_image", "arguments": '{"prompt": "a'}, "not valid"),
        (call("generate_image", prompt="a", steps=10**9), "steps"),
        (call("generate_image", prompt="a", size="axb"), "size"),
        (call("generate_image", prompt="FAIL"), "out of paint"),
        (call("text_to_speech", input="FAIL"), "generation failed"),
        (call("text_to_speech", input="DIE"), "Error"),
        (call("text_to_speech", input="a" * 70_000), "length"),
        (call("text_to_speech", input="a", voice="b" * 3000), "length"),
    ],
)
def test_what_goes_wrong_with_a_tool_is_told_to_the_planner(daemon: Daemon, wrong: Any, told: str) -> None:
    assert content(ask(daemon, [wrong], {"text": "That did not work."})) == "That did not work."
    message = planner_bodies(daemon, 1)[0]["messages"][-1]
    assert message["content"].startswith("Error: ")
    assert told in message["content"]


def test_a_clients_tool_is_handed_back_and_the_conversation_goes_on(daemon: Daemon) -> None:
    body = {"tools": [WEATHER]}
    turns = ([APPLE], [call("weather"), HELLO], DONE)
    choice = ask(daemon, *turns, **body).json()["choices"][0]
    (handed,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], handed["function"]["name"]) == ("tool_calls", "weather")
    assert len(media(choice["message"]["content"])) == 1
    events = ask_streaming(daemon, *turns, **body).rest()
    assert finish(events) == "tool_calls"
    assert [call for delta in deltas(events) for call in delta.get("tool_calls", ())] == [{"index": 0, **handed}]
    history = [
        {"role": "user", "content": "A picture for the weather"},
        choice["message"],
        {"role": "tool", "tool_call_id": handed["id"], "content": "rain"},
    ]
    # Since the user spoke, the assistant has once.
    assert content(ask(daemon, [], DONE, messages=history, **body)) == "There it is."
    sent = planner_bodies(daemon, 1)[0]["messages"]
    assert sent[2]["content"] == "[generated image]"
    assert (sent[2]["tool_calls"], sent[3]["content"]) == ([handed], "rain")


def test_a_later_turn_changes_the_picture_of_an_earlier_one(daemon: Daemon) -> None:
    first = content(ask(daemon, [APPLE], DONE))
    messages = [
        {"role": "user", "content": "an apple"},
        {"role": "assistant", "content": first},
        {"role": "user", "content": "make it blue"},
    ]
    second = content(ask(daemon, [call("edit_image", prompt="a blue apple")], DONE, messages=messages))
    work = painted(daemon)[-1]
    assert work["prompt"].strip() == "a blue apple"
    assert work["size"] == "64x32", "an edit keeps the size"
    assert [file[3] for file in work["files"]] == media(first)
    assert len(media(second)) == 1
    assert planner_bodies(daemon, 1)[0]["messages"][2]["content"] == "There it is.\n\n[generated image]"


def test_a_photo_of_the_user_is_changed_by_a_planner_that_cannot_see(daemon: Daemon) -> None:
    (photo,) = media(content(ask(daemon, [APPLE], DONE)))
    shown = [
        {"type": "text", "text": "make it blue"},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{photo}"}},
    ]
    messages = [{"role": "user", "content": shown}]
    text = content(ask(daemon, [call("edit_image", prompt="blue", size="32x32")], DONE, messages=messages))
    assert opened(media(text)[0]).size == (32, 32)
    assert planner_bodies(daemon, 1)[0]["messages"][1]["content"][1] == {
        "type": "text",
        "text": "[User provided image #1]",
    }
    assert [file[3] for file in painted(daemon)[-1]["files"]] == [photo]


@pytest.mark.parametrize(
    ("more", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user", "content": [{"type": "video"}]}]}, "messages[0].content[0]"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
            "messages[0].content[0]",
        ),
        ({"tool_choice": {"type": "function", "function": {"name": "paint"}}}, "tool_choice"),
        ({"tools": [{"type": "function"}]}, "tools[0].function.name"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_bad_requests(daemon: Daemon, more: dict[str, Any], param: str, stream: bool) -> None:
    answer = ask(daemon, DONE, stream=stream, **more)
    assert (answer.status, answer.error["param"]) == (400, param), answer.body


def test_a_choice_names_a_tool_of_the_collection(daemon: Daemon) -> None:
    # The fake answers what a model does that is made to fill in the arguments.
    choice = {"type": "function", "function": {"name": "generate_image"}}
    turns = ({"text": '{"prompt": "forced"}'}, DONE)
    assert len(media(content(ask(daemon, *turns, tool_choice=choice)))) == 1
    first, second = planner_bodies(daemon, 2)
    assert first["response_format"]["json_schema"]["schema"]["required"] == ["prompt"]
    assert (second["tool_choice"], "response_format" in second) == ("auto", False)


def test_a_planner_that_fails(daemon: Daemon) -> None:
    failure = {"error": {"status": 500, "json": {"error": {"code": 500, "message": "no idea", "type": "server_error"}}}}
    answer = ask(daemon, [APPLE], failure)
    assert answer.status == 500
    assert "no idea" in answer.error["message"]
    events = ask_streaming(daemon, [APPLE], failure).rest()
    said = text_of(events)
    assert said.endswith(f"Error: {answer.error['message']}")
    assert len(media(said)) == 1, "what was made before stays"
    assert finish(events) == "stop"
    too_long = ask(daemon, {"err400": True})
    assert (too_long.status, too_long.error["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_cannot_be_loaded(daemon: Daemon, stream: bool) -> None:
    file = daemon.models / "broken.bin"
    file.write_bytes(b"GGUF weights")
    define(daemon, "Broken", "sd-cpp", checkpoint=str(file), labels=["image"])
    define(daemon, "Half", "collection.omni", components=["planner", "Broken"])
    asked = len(daemon.seen("planner")["requests"])
    answer = ask(daemon, DONE, model="Half", stream=stream)
    assert answer.status >= 400
    assert answer.error["code"]
    assert "Broken" in answer.error["message"]
    assert len(daemon.seen("planner")["requests"]) == asked


@pytest.mark.parametrize("streamed", [False, True])
def test_a_client_that_leaves_during_a_picture_leaves_nothing_behind(daemon: Daemon, streamed: bool) -> None:
    before = len(painted(daemon))
    stream = ask_streaming(daemon, [call("generate_image", prompt="HANG"), HELLO], DONE, stream=streamed)
    wait_for(lambda: len(painted(daemon)) > before)
    spoken = len(seen(daemon, "Voice")["asked"])
    asked = len(daemon.seen("planner")["requests"])
    stream.hang_up()
    wait_for(lambda: not any(one["is_busy"] for one in daemon.loaded()))
    assert len(media(content(ask(daemon, [APPLE], DONE)))) == 1
    assert len(seen(daemon, "Voice")["asked"]) == spoken
    assert len(daemon.seen("planner")["requests"]) == asked + 2


def test_a_client_that_leaves_while_the_planner_thinks(daemon: Daemon) -> None:
    content(ask(daemon, DONE))
    stream = ask_streaming(daemon, {"stall": "headers"})
    wait_for(lambda: daemon.seen("planner")["in_flight"] == 1)
    stream.hang_up()
    wait_for(lambda: daemon.seen("planner")["in_flight"] == 0)


def test_other_endpoints_say_that_a_collection_only_chats(daemon: Daemon) -> None:
    for path, body in (
        ("completions", {"prompt": "a"}),
        ("responses", {"input": "a"}),
        ("messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5}),
        ("embeddings", {"input": "a"}),
        ("rerank", {"query": "a", "documents": ["b"]}),
        ("images/generations", {"prompt": "a"}),
        ("audio/speech", {"input": "a", "voice": "alloy"}),
        ("classify", {"text": "a"}),
        ("tokenize", {"content": "a"}),
    ):
        answer = daemon.post(f"/v1/{path}", {"model": "Studio", **body})
        assert 400 <= answer.status < 500, (path, answer.body)
    told = daemon.post("/v1/completions", {"model": "Studio", "prompt": "a"}).error
    assert (told["type"], told["param"]) == ("unsupported_operation", "model")
    assert "/v1/chat/completions" in told["message"]


def test_models_come_and_go(daemon: Daemon) -> None:
    for name in ("One", "Two"):
        define(daemon, name, "sd-cpp", checkpoint=str(daemon.models / "painter.bin"), labels=["image"])
    define(daemon, "Short", "collection.omni", components=["One", "planner"], system_prompt="Tools: {tool_list} Yes.")
    assert len(media(content(ask(daemon, [APPLE], DONE, model="Short")))) == 1
    system = planner_bodies(daemon, 1)[0]["messages"][0]["content"]
    assert system == "Tools: - generate_image: Draws a new picture from a description. Yes."
    assert daemon.post("/v1/delete", {"model_name": "user.One"}).status == 200
    assert content(ask(daemon, [APPLE], {"text": "I cannot draw."}, model="Short")) == "I cannot draw."
    define(daemon, "Dumb", "collection.omni", components=["Two"])
    for reason in ("Two", "none"):
        answer = ask(daemon, DONE, model="Dumb")
        assert (answer.status, answer.error["param"]) == (400, "model")
        assert reason in answer.error["message"]
        daemon.post("/v1/delete", {"model_name": "user.Two"})


def test_a_second_llm_does_not_push_the_planner_out(tmp_path: Path) -> None:
    with studio(tmp_path, config={"max_loaded_models": 1}) as own:
        for name in ("planner", "other"):
            own.add_model(name)
        define(own, "Pair", "collection.omni", components=["planner", "other"])
        assert own.post("/v1/load", {"model_name": "Pair"}).status == 200
        before = [(one["model_name"], one["pid"]) for one in own.loaded()]
        assert [name for name, _ in before] == ["planner"]
        assert content(ask(own, DONE, model="Pair")) == content(ask(own, DONE, model="Pair"))
        assert [(one["model_name"], one["pid"]) for one in own.loaded()] == before


def test_a_model_that_makes_pictures_larger_is_neither_loaded_nor_asked_to_draw(daemon: Daemon) -> None:
    define(daemon, "Large", "collection.omni", components=["RealESRGAN-x4plus", "planner", "Painter"])
    assert len(media(content(ask(daemon, [APPLE], DONE, model="Large")))) == 1
    assert daemon.post("/v1/load", {"model_name": "user.Large"}).status == 200


def test_a_planner_at_a_provider(daemon: Daemon) -> None:
    with FakeProvider() as provider:
        body = {"backend": "cloud", "provider": "afar", "base_url": provider.url, "allow_insecure_http": True}
        assert daemon.post("/v1/install", {**body, "api_key": provider.key}).status == 200
        define(daemon, "Remote", "collection.omni", components=["afar.good", "Painter"])
        assert content(daemon.chat("Remote")) == "Hello from afar."
        sent = provider.last["body"]
        assert sent["model"] == "good"
        assert [tool["function"]["name"] for tool in sent["tools"]] == ["generate_image", "edit_image"]
        # It calls a function that nobody has, and is told so until it is stopped.
        define(daemon, "Stubborn", "collection.omni", components=["afar.calls", "Painter"])
        before = len(provider.asked())
        assert content(daemon.chat("Stubborn")) == GAVE_UP
        assert len(provider.asked()) - before == MAX_TURNS
        assert "there is no tool weather" in provider.last["body"]["messages"][-1]["content"]
        handed = daemon.chat("Stubborn", tools=[WEATHER]).json()["choices"][0]
        assert (handed["finish_reason"], len(handed["message"]["tool_calls"])) == ("tool_calls", 1)
        define(daemon, "Cut", "collection.omni", components=["afar.half"])
        assert daemon.chat("Cut").status == 502
        assert daemon.post("/v1/uninstall", {"backend": "cloud", "provider": "afar"}).status == 200


def test_the_daemons_end_is_the_end_of_all(tmp_path: Path) -> None:
    with studio(tmp_path) as own:
        furnish(own)
        stream = ask_streaming(own, [call("generate_image", prompt="HANG")], DONE)
        wait_for(lambda: [one for one in own.loaded() if one["model_name"] == "Painter"] and painted(own))
        pids = [one["pid"] for one in own.loaded()]
        assert own.stop() == 0
        stream.close()
        wait_for(lambda: not any(map(alive, pids)))
        assert "Traceback" not in own.log
