from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lemonade.errors import InvalidArgument
from lemonade.inference.realtime.configuration import Configuration
from lemonade.inference.realtime.messages import SessionFields
from lemonade.inference.realtime.voice import VoiceSettings


def changed(fields: dict[str, Any], before: Configuration | None = None) -> Configuration:
    return (before or Configuration()).changed(msgspec.convert(fields, SessionFields))


@pytest.mark.parametrize(
    "fields",
    [
        {"model": "m"},
        {"input_audio_transcription": {"model": "m"}},
        {"audio": {"input": {"transcription": {"model": "m"}}}},
        {"model": "other", "audio": {"input": {"transcription": {"model": "m"}}}},
        {"type": "transcription", "include": None, "audio": {"input": {"noise_reduction": None}}, "model": "m"},
    ],
    ids=str,
)
def test_the_model_in_every_shape(fields: dict[str, Any]) -> None:
    assert changed(fields) == Configuration(model="m")


@pytest.mark.parametrize("shape", ["flat", "nested"])
def test_turn_detection_in_both_shapes(shape: str) -> None:
    def update(turns: dict[str, Any] | None, before: Configuration | None = None) -> Configuration:
        fields = {"turn_detection": turns}
        return changed(fields if shape == "flat" else {"audio": {"input": fields}}, before)

    some = update({"threshold": 0.02, "unknown": 1})
    assert some.turns == VoiceSettings(threshold=0.02)
    more = update({"silence_duration_ms": 500}, some)
    assert more.turns == VoiceSettings(threshold=0.02, silence_duration_ms=500)
    off = update(None, more)
    assert off.turns is None
    assert changed({"model": "m"}, off).turns is None, "what is left out stays"
    assert update({}, off).turns == more.turns


def test_a_threshold_of_openais_is_a_probability() -> None:
    kind = {"type": "server_vad"}
    assert changed({"turn_detection": {**kind, "threshold": 0.5}}).turns == VoiceSettings()
    assert changed({"turn_detection": {**kind, "threshold": 0.02}}).turns == VoiceSettings(threshold=0.02)
    assert changed({"turn_detection": {"threshold": 0.5}}).turns == VoiceSettings(threshold=0.5)


def test_language_and_prompt() -> None:
    nested = changed({"audio": {"input": {"transcription": {"language": "de", "prompt": "Namen"}}}})
    assert (nested.language, nested.prompt) == ("de", "Namen")
    for reset in ("", "auto"):
        assert changed({"input_audio_transcription": {"language": reset}}, nested).language == ""
    assert changed({"input_audio_transcription": {"language": "German"}}).language == "de"
    with pytest.raises(InvalidArgument):
        changed({"input_audio_transcription": {"language": "klingon"}})


def test_formats() -> None:
    def nested(**fields: Any) -> dict[str, Any]:
        return {"audio": {"input": {"format": fields}}}

    assert changed({"input_audio_format": "pcm16"}).rate == 16000
    assert changed(nested(type="audio/pcm")).rate == 16000
    assert changed(nested(type="audio/pcm", rate=24000)).rate == 24000
    for wrong in ({"input_audio_format": "g711_ulaw"}, nested(type="audio/pcmu"), nested(rate=44100)):
        with pytest.raises(InvalidArgument) as caught:
            changed(wrong)
        assert caught.value.param is not None
        assert caught.value.param.startswith("session.")


def test_the_description_has_both_shapes() -> None:
    told = Configuration(model="m", turns=None).describe("sess_1")
    assert (told["id"], told["model"], told["turn_detection"]) == ("sess_1", "m", None)
    assert told["audio"]["input"]["transcription"]["model"] == "m"
    numbers = Configuration().describe("s")["turn_detection"]
    assert numbers == {
        "type": "server_vad",
        "threshold": 0.01,
        "silence_duration_ms": 800,
        "prefix_padding_ms": 250,
    }
