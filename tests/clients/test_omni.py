"""Collections with OpenAI's libraries: an answer with a picture and a sound in it, whole and as a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from openai import OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk, ChatCompletionMessageParam

from tests.app.omni import call, furnish, media, parts, planned, studio
from tests.clients.environment import run_node
from tests.daemon import Daemon

FAKE = planned(
    [call("generate_image", prompt="an apple", size="32x32"), call("text_to_speech", input="An apple.")],
    {"text": "There it is."},
)
ASK: list[ChatCompletionMessageParam] = [{"role": "user", "content": "an apple"}]


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with studio(tmp_path_factory.mktemp("studio")) as one:
        furnish(one)
        yield one


def test_python(daemon: Daemon) -> None:
    with OpenAI(base_url=f"{daemon.url}/v1", api_key="not needed", max_retries=0) as client:
        whole = client.chat.completions.create(model="Studio", messages=ASK, extra_body={"fake": FAKE})
        ChatCompletion.model_validate(whole.model_dump(), strict=True)
        said = whole.choices[0].message.content or ""
        assert said.startswith("There it is.")
        assert len(media(said)) == 2
        with client.chat.completions.stream(model="Studio", messages=ASK, extra_body={"fake": FAKE}) as stream:
            for event in stream:
                if event.type == "chunk":
                    ChatCompletionChunk.model_validate(event.chunk.model_dump(), strict=True)
            final = stream.get_final_completion()
        assert parts(final.choices[0].message.content or "") == parts(said)
        assert (final.choices[0].finish_reason, final.model) == ("stop", "Studio")


def test_javascript(daemon: Daemon) -> None:
    seen = run_node("omni.mjs", f"{daemon.url}/v1", json.dumps(FAKE))
    said = seen["whole"]["choices"][0]["message"]["content"]
    assert len(media(said)) == 2
    streamed = seen["streamed"]
    assert parts(streamed["choices"][0]["message"]["content"]) == parts(said)
    assert streamed["choices"][0]["finish_reason"] == "stop"
    assert streamed["usage"]["completion_tokens"] == 3
    assert seen["largest"] == 16_000
