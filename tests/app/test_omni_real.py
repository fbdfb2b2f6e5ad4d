"""Collections with real engines: a small model that plans, one that paints, one that speaks, and one that listens."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Iterator
from typing import Any

import av
import pytest
from PIL import Image

from tests.app.omni import content, define, deltas, finish, media, parts
from tests.app.painting import ONE_THREAD, form, register
from tests.daemon import Answer, Daemon, alive, wait_for
from tests.engines.sdcpp.looking import opened
from tests.kokoro import kokoro
from tests.stream import Stream, text_of
from tests.tiny_diffusion import tiny_diffusion
from tests.weights import smollm2
from tests.whisper import tiny_en

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    env = {"OMP_WAIT_POLICY": "passive"}
    one = Daemon(
        tmp_path_factory.mktemp("together"),
        fake_engine=False,
        env=env,
        config={"sdcpp": ONE_THREAD, "log_level": "debug"},
    )
    with one:
        register(one, "Painter", tiny_diffusion(), labels=["image", "edit"])
        define(one, "Voice", "kokoro", checkpoint=str(kokoro()))
        define(one, "Ear", "whispercpp", checkpoint=str(tiny_en()))
        define(one, "Planner", "llamacpp", checkpoint=str(smollm2()), recipe_options={"ctx_size": 4096})
        define(one, "Together", "collection.omni", components=["Planner", "Painter", "Voice", "Ear"])
        yield one


#: What the small model is shown, so that it fills in the arguments of a call as a larger one would.
SHOWN = {
    "generate_image": [
        ("Draw a dog.", '{"prompt": "a dog", "size": "64x64"}'),
        ("Draw a house.", '{"prompt": "a house", "size": "64x64"}'),
        ("Draw the sea.", '{"prompt": "the sea", "size": "64x64"}'),
    ],
    "edit_image": [("Make it blue.", '{"prompt": "blue"}'), ("Make it red.", '{"prompt": "red"}')],
    "text_to_speech": [
        ("Say: The day is long.", '{"input": "The day is long.", "voice": "lady"}'),
        ("Say: We like to read.", '{"input": "We like to read.", "voice": "lady"}'),
    ],
}


def request(text: str, tool: str | None, **more: Any) -> dict[str, Any]:
    """A chat in which the small model has to call `tool`, which it would not do by itself."""
    choice = {"type": "function", "function": {"name": tool}} if tool else "none"
    messages = list(more.pop("before", ()))
    for question, answer in SHOWN.get(tool or "", ()):
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    messages.append({"role": "user", "content": text})
    limits = {"temperature": 0, "max_tokens": 60}
    return {"model": "Together", "messages": messages, "tool_choice": choice, **limits, **more}


def ask(daemon: Daemon, text: str, tool: str | None, **more: Any) -> Answer:
    return daemon.post("/v1/chat/completions", request(text, tool, **more), timeout=120)


def streamed(daemon: Daemon, text: str, tool: str | None, **more: Any) -> list[str]:
    return Stream(daemon, request(text, tool, stream=True, **more), timeout=120).rest()


def test_a_picture_is_drawn(together: Daemon) -> None:
    answer = ask(together, "Draw a red apple.", "generate_image")
    pictures = [opened(each) for each in media(content(answer))]
    assert pictures
    assert {picture.format for picture in pictures} == {"PNG"}
    assert answer.json()["usage"]["completion_tokens"] > 0
    assert {"Planner", "Painter", "Voice", "Ear"} == {one["model_name"] for one in together.loaded()}


def test_a_picture_is_changed_and_a_stream_says_the_same(together: Daemon) -> None:
    file = io.BytesIO()
    Image.new("RGB", (64, 64), "red").save(file, "PNG")
    photo = base64.b64encode(file.getvalue()).decode()
    before = [
        {"role": "user", "content": "Draw an apple."},
        {"role": "assistant", "content": f"![generated image](data:image/png;base64,{photo})"},
    ]
    whole = content(ask(together, "Make it green.", "edit_image", before=before))
    (changed,) = media(whole)
    assert opened(changed).size == (64, 64)
    assert changed != photo
    events = streamed(together, "Make it green.", "edit_image", before=before)
    assert parts(text_of(events)) == parts(whole)
    assert max(len(delta.get("content", "")) for delta in deltas(events)) <= 16_000
    assert finish(events) in ("stop", "length")


def test_what_is_spoken_is_heard_by_another_model_of_the_collection(together: Daemon) -> None:
    """Even when the planner names a voice that there is not, as small ones do."""
    events = streamed(together, "Say: The weather is nice today.", "text_to_speech")
    (sound,) = media(text_of(events))
    data = base64.b64decode(sound)
    assert "data:audio/mpeg;base64," in text_of(events)
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    assert sum(frame.samples for frame in frames) / frames[0].sample_rate > 0.5
    answer = form(together, "/v1/audio/transcriptions", ("model", "Ear"), ("file", data))
    assert answer.status == 200, answer.body
    assert len(answer.json()["text"].split()) >= 2
    assert '"voice": "lady"' in together.log


def test_a_plain_answer_and_a_components_own_name(together: Daemon) -> None:
    assert media(content(ask(together, "Hello!", None))) == []
    alone = ask(together, "Draw a red apple.", None, model="Planner").json()
    assert alone["model"] == "Planner"
    refused = ask(together, "Draw a red apple.", "generate_image", model="Planner")
    assert (refused.status, refused.error["param"]) == (400, "tool_choice")


def test_a_client_that_leaves_stops_the_painter(together: Daemon) -> None:
    register(together, "Slow", tiny_diffusion(), labels=["image"], image_defaults={"steps": 100, "cfg_scale": 1.0})
    define(together, "Dawdler", "collection.omni", components=["Planner", "Slow"])
    body = json.loads(json.dumps(request("Draw a red apple.", "generate_image")).replace("64x64", "256x256"))
    stream = Stream(together, {**body, "model": "Dawdler"}, timeout=120)
    slow = wait_for(lambda: [e for e in together.loaded() if e["model_name"] == "Slow" and e["is_busy"]], seconds=60)
    stream.hang_up()
    # The library cannot be stopped in the middle of a picture, so its process is.
    wait_for(lambda: not alive(slow[0]["pid"]), seconds=30)
    assert not any(one["is_busy"] for one in together.loaded())
    assert ask(together, "Hello!", None, model="Dawdler").status == 200
