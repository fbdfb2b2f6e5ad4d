"""Speech with OpenAI's libraries, by the real engine."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import pytest
from openai import BadRequestError, OpenAI

from tests.clients.browser import browse
from tests.clients.environment import run_node
from tests.daemon import Daemon
from tests.kokoro import kokoro

pytestmark = pytest.mark.real

TEXT = "One sentence is here. Another sentence is here. A third sentence is here."


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The API of a daemon with the model `speaker`."""
    with Daemon(tmp_path_factory.mktemp("speaker")) as daemon:
        definition = {"model_name": "user.speaker", "recipe": "kokoro", "checkpoint": str(kokoro())}
        assert daemon.post("/v1/models/register", definition).status == 200
        yield f"{daemon.url}/v1"


@pytest.fixture
def client(address: str) -> Iterator[OpenAI]:
    with OpenAI(base_url=address, api_key="not needed", max_retries=0) as one:
        yield one


def seconds(data: bytes) -> float:
    with av.open(io.BytesIO(data)) as container:
        frames = list(container.decode(audio=0))
    return sum(frame.samples for frame in frames) / frames[0].sample_rate


def test_python_streams_to_a_file(client: OpenAI, tmp_path: Path) -> None:
    file = tmp_path / "speech.mp3"
    with client.audio.speech.with_streaming_response.create(model="speaker", voice="coral", input=TEXT) as answer:
        answer.stream_to_file(file)
    assert 3 < seconds(file.read_bytes()) < 8


def test_python_hears_the_beginning_first(client: OpenAI) -> None:
    speech = client.audio.speech.with_streaming_response
    more: Any = {"stream_format": "audio", "response_format": "wav"}
    with speech.create(model="speaker", voice="coral", input=TEXT, **more) as answer:
        pieces = list(answer.iter_bytes())
    assert len(pieces) >= 3
    assert pieces[0].startswith(b"RIFF")
    assert len(pieces[0]) < sum(map(len, pieces)) / 2


def test_python_gets_a_whole_file(client: OpenAI) -> None:
    answer = client.audio.speech.create(
        model="speaker", voice="fable", input="Hello.", response_format="opus", speed=1.2
    )
    assert answer.response.headers["content-type"] == "audio/opus"
    assert seconds(answer.content) > 0.3


def test_python_is_told_of_an_unknown_voice(client: OpenAI) -> None:
    with pytest.raises(BadRequestError) as caught:
        client.audio.speech.create(model="speaker", voice="nobody", input="Hello.")
    assert (caught.value.code, caught.value.param) == ("invalid_argument", "voice")


def test_javascript(address: str) -> None:
    seen = run_node("speech.mjs", address)
    assert (seen["type"], seen["begins"]) == ("audio/mpeg", "ID3")
    assert len(seen["pieces"]) >= 3
    assert seen["pieces"][0] < sum(seen["pieces"]) / 2
    assert seen["refused"] == {"name": "BadRequestError", "code": "invalid_argument", "param": "voice"}


def test_a_page_plays_it(address: str, tmp_path: Path) -> None:
    """In an `<audio>` element: each format as a file, and MP3 while it comes."""
    seen = browse("speech.html", address, tmp_path)
    assert "error" not in seen, seen["error"]
    assert list(seen["whole"]) == ["mp3", "wav", "opus", "flac", "aac"]
    wanted = seen["whole"]["wav"]["duration"]
    assert 1 < wanted < 3
    for form, one in seen["whole"].items():
        assert one["duration"] == pytest.approx(wanted, abs=0.12), form
        assert one["heard"] == pytest.approx(wanted, abs=0.2), form
    assert seen["arriving"]["type"] == "audio/mpeg"
    assert seen["arriving"]["heard"] >= 1
    assert not seen["arriving"]["done"]
