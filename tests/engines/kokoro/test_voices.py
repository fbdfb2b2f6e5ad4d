from __future__ import annotations

import pytest

from lemonade.engines.kokoro.voices import DEFAULT, NAMES, OPENAI, blend, gender, language
from lemonade.errors import InvalidArgument


def test_there_are_54_voices_and_openais_are_among_them() -> None:
    assert len(set(NAMES)) == 54
    assert set(OPENAI.values()) <= set(NAMES)
    assert DEFAULT in OPENAI


@pytest.mark.parametrize(
    "name", ["alloy", "ash", "ballad", "coral", "echo", "fable", "nova", "onyx", "sage", "shimmer", "verse"]
)
def test_every_voice_of_openai_is_heard(name: str) -> None:
    assert blend(name, NAMES).parts == ((OPENAI[name], 1.0),)


@pytest.mark.parametrize(
    ("name", "spoken"),
    [
        ("af_heart", "en-US"),
        ("bm_george", "en-GB"),
        ("ef_dora", "es"),
        ("ff_siwis", "fr"),
        ("hf_alpha", "hi"),
        ("if_sara", "it"),
        ("jf_alpha", "ja"),
        ("pm_alex", "pt-BR"),
        ("zf_xiaobei", "zh"),
        ("fable", "en-GB"),
        ("somebody", "en-US"),
    ],
)
def test_the_language_follows_the_voice(name: str, spoken: str) -> None:
    known = (*NAMES, "somebody")
    assert blend(name, known).language == spoken


def test_genders() -> None:
    assert [gender(name) for name in ("af_heart", "bm_george", "somebody")] == ["female", "male", ""]
    assert language("zz") == "en-US"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("af_sky+af_bella", (("af_sky", 0.5), ("af_bella", 0.5))),
        ("af_sky.4+af_nicole.6", (("af_sky", 0.4), ("af_nicole", 0.6))),
        ("af_sky(2)+af_bella(1)", (("af_sky", 2 / 3), ("af_bella", 1 / 3))),
        (" AF_Heart ", (("af_heart", 1.0),)),
        ("nova + onyx", (("af_nova", 0.5), ("am_onyx", 0.5))),
    ],
)
def test_mixtures(text: str, parts: tuple[tuple[str, float], ...]) -> None:
    found = blend(text, NAMES).parts
    assert [name for name, _ in found] == [name for name, _ in parts]
    assert [share for _, share in found] == pytest.approx([share for _, share in parts])


@pytest.mark.parametrize(
    "text",
    [
        "nobody",
        "",
        " ",
        "af_heart+",
        "af_heart+nobody",
        "af_heart.x",
        "../af_heart",
        "af_heart(1",
        "+",
        "a" * 500,
        f"af_heart({'9' * 400})",
    ],
)
def test_an_unknown_voice_is_refused_with_the_list(text: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        blend(text, NAMES)
    assert caught.value.param == "voice"
    assert all(name in caught.value.message for name in (*NAMES, *OPENAI))
    assert len(caught.value.message) < 1500


@pytest.mark.parametrize("text", ["af_sky(0)", "+".join(["af_sky"] * 9)])
def test_impossible_mixtures(text: str) -> None:
    with pytest.raises(InvalidArgument, match="at most 8"):
        blend(text, NAMES)


def test_a_model_with_few_voices_offers_only_those() -> None:
    with pytest.raises(InvalidArgument) as caught:
        blend("onyx", ["af_sky", "af_heart"])
    assert "af_heart, af_sky; and OpenAI's: shimmer." in caught.value.message
