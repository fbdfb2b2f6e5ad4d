"""OpenAI's two libraries transcribe a recording; each sees the same."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.audio import TranscriptionVerbose

from tests import whisper
from tests.clients.environment import run_node
from tests.daemon import Daemon
from tests.recordings import BEGINNING, speech, wav, word_error_rate

pytestmark = [pytest.mark.real, pytest.mark.slow]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    # A window of ten seconds is enough for the recordings here, and takes a third of the time.
    config = {"whispercpp": {"args": "--threads 1 --audio-ctx 512"}}
    with Daemon(tmp_path_factory.mktemp("daemon"), config=config) as daemon:
        body = {"model_name": "user.ears", "recipe": "whispercpp", "checkpoint": str(whisper.tiny_en())}
        assert daemon.post("/v1/models/register", body).status == 200
        yield daemon


def run_python(url: str, path: Path) -> dict[str, Any]:
    """What `node/transcription.mjs` does, in Python."""
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none needed", max_retries=0) as client:
        ask: Any = client.audio.transcriptions.create
        verbose = ask(
            model="ears", file=path, response_format="verbose_json", timestamp_granularities=["word", "segment"]
        )
        # The library builds its objects without checking them.
        TranscriptionVerbose.model_validate(verbose.model_dump(), strict=True)
        events = list(ask(model="ears", file=path, stream=True))
        with pytest.raises(openai.BadRequestError) as failure:
            ask(model="ears", file=path, language="klingon")
        return {
            "json": ask(model="ears", file=path).text,
            "text": ask(model="ears", file=path, response_format="text"),
            "srt": ask(model="ears", file=path, response_format="srt"),
            "words": [word.word for word in verbose.words],
            "segment": verbose.segments[0].model_dump(),
            "language": verbose.language,
            "deltas": [event.delta for event in events if event.type == "transcript.text.delta"],
            "done": events[-1].text,
            "failure": {
                "status": failure.value.status_code,
                "code": failure.value.code,
                "param": failure.value.param,
            },
        }


@pytest.mark.parametrize("library", ["python", "node"])
def test_a_recording(library: str, world: Daemon, tmp_path: Path) -> None:
    path = tmp_path / "talk.wav"
    path.write_bytes(wav(speech()))
    seen = (
        run_python(world.url, path)
        if library == "python"
        else run_node("transcription.mjs", f"{world.url}/v1", str(path))
    )
    assert word_error_rate(seen["json"], BEGINNING) == 0
    assert seen["text"].strip() == seen["done"] == "".join(seen["deltas"]) == seen["json"]
    assert seen["srt"].startswith("1\n00:00:00")
    assert word_error_rate(" ".join(seen["words"]), BEGINNING) == 0
    assert seen["segment"]["tokens"]
    assert seen["language"] == "english"
    assert seen["failure"] == {"status": 400, "code": "invalid_argument", "param": "language"}
