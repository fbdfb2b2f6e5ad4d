from __future__ import annotations

import json
import sys
import types
from pathlib import Path

import pytest

from lemonade.engines.kokoro.espeak import Espeak
from lemonade.engines.kokoro.phonemes import VOCABULARY, Phonemizer, kokoro_alphabet, runs, vocabulary
from lemonade.engines.kokoro.text import english
from lemonade.errors import InvalidArgument, ModelLoadError


@pytest.fixture(scope="module")
def phonemes() -> Phonemizer:
    return Phonemizer(Espeak(), VOCABULARY)


def test_the_vocabulary_is_the_models() -> None:
    assert len(VOCABULARY) == len(set(VOCABULARY.values())) == 114
    assert [VOCABULARY[one] for one in ";,…A”ʤəθɹˈᵻ"] == [1, 3, 10, 24, 15, 82, 83, 119, 123, 156, 177]


@pytest.mark.parametrize(
    ("text", "language", "read"),
    [
        ("The quick brown fox.", "en-US", "ðə kwˈɪk bɹˈWn fˈɑks."),
        ("water bottle", "en-US", "wˈɔTəɹ bˈɑTᵊl"),
        ("water bottle", "en-GB", "wˈɔːtə bˈɒtᵊl"),
        ("go home, joyfully", "en-US", "ɡˌO hˈOm, ʤˈYfəli"),
        ("nurse", "en-US", "nˈɜɹs"),
        ("Tengo 25 años.", "es", "tˈɛŋɡo βˌAntiθˈinko ˈaɲos."),
        ("¿Cómo estás?", "es", "kˈomo estˈas?"),
        ("Bonjour", "fr", "bɔ̃ʒˈuʁ"),
        ("Pizza.", "it", "pˈiʦːa."),
        ("你好，银行。", "zh", "ni↗xau↓, i↗nxa↗ŋ."),
    ],
)
def test_words_as_the_model_learnt_them(phonemes: Phonemizer, text: str, language: str, read: str) -> None:
    assert phonemes(text, language) == read


def test_languages_sound_differently(phonemes: Phonemizer) -> None:
    """An Italian voice must not read Italian as if it were English."""
    assert len({phonemes("Come stai, amore? Grazie mille.", language) for language in ("en-US", "it", "es", "fr")}) == 4


def test_marks_stay_and_those_inside_words_do_not(phonemes: Phonemizer) -> None:
    marks = "".join(
        one for one in phonemes("Wait... (really?) No; at 3.14, 10:30 — yes: it's!", "en-US") if not one.isalpha()
    )
    assert [one for one in marks if one in ";:,.!?—…()"] == ["…", "(", "?", ")", ";", ",", "—", ":", "!"]
    assert phonemes("你好。", "zh").endswith(".")


def test_words_of_another_script_are_read_in_its_language(phonemes: Phonemizer) -> None:
    assert runs("He said привет and 你好 3 times", "en-US") == [
        ("en-US", "He said"),
        ("ru", "привет"),
        ("en-US", "and"),
        ("zh", "你好"),
        ("en-US", "3 times"),
    ]
    assert runs("नमस्ते OK", "hi") == [("hi", "नमस्ते"), ("en-US", "OK")]
    assert runs("GPT-4 をつかう", "ja") == [("en-US", "GPT-4"), ("ja", "をつかう")]
    mixed = phonemes("He said привет.", "en-US")
    assert "prʲivʲˈet" in mixed
    assert "Chinese" not in phonemes("x 你好", "en-US")


@pytest.mark.parametrize(
    ("text", "language", "refused"),
    [
        ("日本語です", "ja", True),
        ("こんにちは。日本", "ja", True),
        ("こんにちは、ABC 123", "ja", False),
        ("I like 東京タワー a lot", "en-US", True),
        ("I like 北京 a lot", "en-US", False),
        ("我喜欢カラオケ", "zh", False),
    ],
)
def test_kanji_need_a_reader(
    phonemes: Phonemizer, monkeypatch: pytest.MonkeyPatch, text: str, language: str, refused: bool
) -> None:
    monkeypatch.setitem(sys.modules, "pyopenjtalk", None)
    if not refused:
        phonemes.check(text, language)
        assert phonemes(text, language)
        return
    with pytest.raises(InvalidArgument, match="pip install pyopenjtalk-plus"):
        phonemes.check(text, language)


def test_japanese_is_read_as_the_reader_says(phonemes: Phonemizer, monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"日本語です": "ニホンゴデス", "わたしは": "ワタシワ", "東京タワー": "トーキョータワー"}
    reader = types.ModuleType("pyopenjtalk")
    reader.g2p = lambda text, kana: words[text] if kana else ""  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pyopenjtalk", reader)
    phonemes.check("日本語です", "ja")
    read = {text: phonemes(text, "ja") for text in words}
    assert phonemes("see 東京タワー", "en-US").endswith(read["東京タワー"])
    monkeypatch.setitem(sys.modules, "pyopenjtalk", None)
    assert read == {text: phonemes(kana, "ja") for text, kana in words.items()}


@pytest.mark.parametrize(
    ("written", "spoken"),
    [("こんにちは", "こんにちわ"), ("それでは、また", "それでわ、また"), ("わたし は", "わたし わ"), ("はは", "はは")],
)
def test_kana_are_read_as_they_are_spoken(
    phonemes: Phonemizer, monkeypatch: pytest.MonkeyPatch, written: str, spoken: str
) -> None:
    monkeypatch.setitem(sys.modules, "pyopenjtalk", None)
    assert phonemes(written, "ja") == phonemes(spoken, "ja")


@pytest.mark.parametrize("text", ["", " ", "...", "?!", "—", "()"])
def test_nothing_to_say(phonemes: Phonemizer, text: str) -> None:
    assert phonemes(text, "en-US") == ""


def test_only_known_phonemes_come_out(phonemes: Phonemizer) -> None:
    for language in ("en-US", "en-GB", "es", "fr", "hi", "it", "ja", "pt-BR", "zh"):
        text = phonemes("Ünïcödé Straße smörgåsbord さくら дом मैं 42 %$", language)
        assert text
        assert set(text) <= set(VOCABULARY)


def test_names_of_languages_are_not_read() -> None:
    assert kokoro_alphabet("(en)hˈa^ɪ(fr)", "fr") == "hˈI"


def test_a_model_may_bring_its_own_numbers(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_text(json.dumps({"vocab": {"a": 7, "b": 8}}))
    assert vocabulary(file) == {"a": 7, "b": 8}
    file.write_text(json.dumps({"model": {"vocab": {"a": 9, "<unk>": 0}}}))
    assert vocabulary(file) == {"a": 9}
    file.write_text("{}")
    assert vocabulary(file) is VOCABULARY is vocabulary(None)
    file.write_text("{")
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        vocabulary(file)


def test_the_letter_a_is_not_read_as_eye(phonemes: Phonemizer) -> None:
    """As in "9 a.m." and "U.S.A."."""
    for language in ("en-US", "en-GB"):
        assert phonemes(english("9 a.m."), language).endswith("ˈA ˈɛm.")
        assert phonemes(english("the U.S.A."), language).endswith("ɛs ˈA.")


def test_the_word_i_is_not_swallowed(phonemes: Phonemizer) -> None:
    assert phonemes("I do not know what I said to him.", "en-US").startswith("ˌI d")
    assert " ˌI " in phonemes("That is what I said.", "en-US")
