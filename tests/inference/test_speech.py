from __future__ import annotations

import base64
from typing import Any

import pytest

from lemonade.engines.audio.encode import wav_header
from lemonade.errors import InvalidArgument, ModelNotApplicable, UnsupportedOperation
from lemonade.inference.speech import MAX_REFERENCE, SpeechRequest, check_model, read
from lemonade.model import Model

KOKORO = Model(name="kokoro-v1", recipe="kokoro", labels=("tts",))
MOSS = Model(name="OpenMOSS-TTS", recipe="openmoss", labels=("tts",))
WAV = base64.b64encode(wav_header(24_000, 1, 4) + bytes(4)).decode()


def asked(model: Model = KOKORO, **more: Any) -> Any:
    return read(SpeechRequest(**{"input": "Hi.", "model": model.name, **more}), model)


@pytest.mark.parametrize(
    ("labels", "recipe"), [(("chat",), "llamacpp"), ((), "llamacpp"), (("transcription",), "whispercpp")]
)
def test_only_models_that_speak(labels: tuple[str, ...], recipe: str) -> None:
    with pytest.raises(ModelNotApplicable) as caught:
        check_model(Model(name="m", recipe=recipe, labels=labels))
    assert (caught.value.status, caught.value.code, caught.value.param) == (400, "model_not_applicable", "model")
    check_model(KOKORO)
    check_model(MOSS)


def test_a_recipe_without_an_engine_for_speech() -> None:
    with pytest.raises(UnsupportedOperation):
        check_model(Model(name="m", recipe="cloud", labels=("tts",)))


@pytest.mark.parametrize("text", ["", " ", "\n\t"])
def test_an_empty_text(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        asked(input=text)
    assert caught.value.param == "input"


@pytest.mark.parametrize(
    ("more", "form", "stream", "events"),
    [
        ({}, "mp3", False, False),
        ({"stream": False}, "mp3", False, False),
        ({"stream": True}, "pcm", True, False),
        ({"stream_format": "audio"}, "pcm", True, False),
        ({"stream_format": "audio", "stream": False}, "pcm", True, False),
        ({"stream_format": "sse"}, "pcm", True, True),
        ({"stream": True, "response_format": "opus"}, "opus", True, False),
        ({"response_format": None, "stream": None, "stream_format": None}, "mp3", False, False),
    ],
)
def test_formats_and_streams_of_kokoro(more: dict[str, Any], form: str, stream: bool, events: bool) -> None:
    found = asked(**more)
    assert (found.format, found.stream, found.events) == (form, stream, events)
    assert found.body == {"input": "Hi.", "format": form, "stream": stream}


@pytest.mark.parametrize(
    ("more", "form"), [({}, "wav"), ({"response_format": "pcm"}, "pcm"), ({"stream": True}, "pcm")]
)
def test_formats_of_openmoss(more: dict[str, Any], form: str) -> None:
    assert asked(MOSS, **more).format == form


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"response_format": "mp3"}, "'mp3' is not supported by this model (supported: wav, pcm)"),
        ({"response_format": "wav", "stream": True}, "in a stream (supported: pcm)"),
    ],
)
def test_formats_that_openmoss_does_not_write(more: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        asked(MOSS, **more)
    assert says in caught.value.message
    assert caught.value.param == "response_format"


def test_what_is_not_said_is_not_asked() -> None:
    assert asked(voice=None, speed=None).body == {"input": "Hi.", "format": "mp3", "stream": False}
    assert asked(voice="onyx", speed=2.0).body["voice"] == "onyx"
    assert "instructions" not in asked(instructions="calm").body


def test_the_voice_of_openmoss_is_free_text() -> None:
    assert asked(MOSS, voice="a calm, deep voice", speed=1.5).body == {
        "input": "Hi.",
        "voice": "a calm, deep voice",
        "speed": 1.5,
    }
    assert asked(MOSS, instructions="calm").body["voice"] == "calm"
    assert asked(MOSS, instructions="calm", voice="deep").body["voice"] == "deep"


def test_a_recording_wins_over_a_description() -> None:
    assert asked(MOSS, voice_design_description=" warm ").design == "warm"
    found = asked(MOSS, voice_design_description="warm", reference_wav_b64=WAV)
    assert found.design == ""
    assert found.body["reference_wav_b64"] == WAV
    assert asked(MOSS, reference_wav_b64="\n".join(WAV)).body["reference_wav_b64"] == WAV
    assert asked(MOSS, reference_wav_b64="").body == {"input": "Hi."}
    assert asked(MOSS, voice="warm").design == ""


@pytest.mark.parametrize(
    ("recording", "says"),
    [
        ("!!!", "no base64"),
        (base64.b64encode(b"ID3 no wav").decode(), "must be a WAV"),
        ("A" * (MAX_REFERENCE * 4 // 3 + 4), "larger than 32 MiB"),
    ],
)
def test_recordings_that_are_none(recording: str, says: str) -> None:
    with pytest.raises(InvalidArgument, match=says) as caught:
        asked(MOSS, reference_wav_b64=recording)
    assert caught.value.param == "reference_wav_b64"
