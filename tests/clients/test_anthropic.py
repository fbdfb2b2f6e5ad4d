"""Anthropic's library for Python against a daemon with real weights."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest

from tests.app.test_vision import add_seeing_model
from tests.daemon import Daemon, wait_for
from tests.inference.images import png
from tests.tiny_models import projector, text_model

pytestmark = [pytest.mark.real]

#: The same answer each time; newer versions of the library do not know the argument.
SAME = {"temperature": 0}
ASK: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]


@pytest.fixture(scope="module")
def client(world: Daemon) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=world.url, api_key="none needed") as one:
        yield one


def ask(client: anthropic.Anthropic, **more: Any) -> Any:
    return client.messages.create(**{"model": "smol", "max_tokens": 12, "messages": ASK, "extra_body": SAME, **more})


def test_a_message_and_its_stream(client: anthropic.Anthropic) -> None:
    whole = ask(client, system="Be brief.", max_tokens=4)
    (block,) = whole.content
    assert block.text.strip()
    assert (whole.model, whole.role, whole.stop_reason) == ("smol", "assistant", "max_tokens")
    assert whole.usage.output_tokens == 4
    with client.messages.stream(
        model="smol", max_tokens=4, messages=ASK, system="Be brief.", extra_body=SAME
    ) as stream:
        assert "".join(stream.text_stream) == block.text
        assert stream.get_final_message().stop_reason == "max_tokens"


def test_stop_sequences(client: anthropic.Anthropic) -> None:
    text = ask(client).content[0].text
    word = text.split()[1]
    stopped = ask(client, stop_sequences=[word])
    assert stopped.content[0].text == text.partition(word)[0]


def test_tokens_are_counted(client: anthropic.Anthropic) -> None:
    few = client.messages.count_tokens(model="smol", messages=ASK).input_tokens
    assert 10 < few < client.messages.count_tokens(model="smol", messages=[*ASK, *ASK]).input_tokens


def test_leaving_a_stream_frees_the_model(world: Daemon, client: anthropic.Anthropic) -> None:
    with client.messages.stream(model="smol", max_tokens=1500, messages=ASK, extra_body={"ignore_eos": True}) as stream:
        next(iter(stream.text_stream))
        assert world.entry("smol")["is_busy"]
    wait_for(lambda: not world.entry("smol")["is_busy"], 15)


def test_errors_have_the_types_of_the_library(client: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.NotFoundError):
        ask(client, model="nobody")
    with pytest.raises(anthropic.BadRequestError, match="cannot be asked in this format"):
        ask(client, model="vectors")
    with pytest.raises(anthropic.BadRequestError, match="context"):
        ask(client, messages=[{"role": "user", "content": "word " * 40000}])
    with pytest.raises(anthropic.BadRequestError, match="cannot see"):
        source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png()).decode()}
        ask(client, messages=[{"role": "user", "content": [{"type": "image", "source": source}]}])


def test_a_model_sees(tmp_path: Path) -> None:
    one = Daemon(tmp_path, fake_engine=False)
    add_seeing_model(one, text_model().read_bytes(), projector().read_bytes())
    source = {"type": "base64", "media_type": "image/png", "data": base64.b64encode(png(64, 64)).decode()}
    content: list[Any] = [{"type": "text", "text": "what is this?"}, {"type": "image", "source": source}]
    with one, anthropic.Anthropic(base_url=one.url, api_key="none needed") as client:
        with_picture = ask(client, model="Eyes", messages=[{"role": "user", "content": content}], max_tokens=4)
        without = ask(client, model="Eyes", messages=[{"role": "user", "content": content[:1]}], max_tokens=4)
    assert taken(without) + 16 <= taken(with_picture)


def taken(answer: Any) -> int:
    """The tokens of the prompt."""
    return int(answer.usage.input_tokens + (answer.usage.cache_read_input_tokens or 0))
