"""What Kokoro reads: sounds in the alphabet that it was trained on, and punctuation.

Its alphabet is the International Phonetic Alphabet with letters of its own for sounds that IPA writes with two, such as
`A` for the vowel in "day". The numbers, and which letter stands for what, are those of the model's own description.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.engines.kokoro import mandarin
from lemonade.engines.kokoro.espeak import TIE
from lemonade.errors import InvalidArgument, ModelLoadError

if TYPE_CHECKING:
    from lemonade.engines.kokoro.espeak import Espeak

#: Phonemes to the model's numbers, of version 1.0. Source: `config.json` of hexgrad/Kokoro-82M.
VOCABULARY: dict[str, int] = {
    **dict(zip(';:,.!?', range(1, 7), strict=True)),
    **dict(zip('—…"()“” \u0303ʣʥʦʨᵝ\uab67AI', range(9, 26), strict=True)),
    "O": 31, "Q": 33, "S": 35, "T": 36, "W": 39, "Y": 41, "ᵊ": 42,
    **dict(zip("abcdef", range(43, 49), strict=True)),
    **dict(zip("hijklmnopqrstuvwxyzɑɐɒæ", range(50, 73), strict=True)),
    "β": 75, "ɔ": 76, "ɕ": 77, "ç": 78, "ɖ": 80, "ð": 81, "ʤ": 82, "ə": 83, "ɚ": 85, "ɛ": 86, "ɜ": 87,
    "ɟ": 90, "ɡ": 92, "ɥ": 99, "ɨ": 101, "ɪ": 102, "ʝ": 103,
    **dict(zip("ɯɰŋɳɲɴø", range(110, 117), strict=True)),
    "ɸ": 118, "θ": 119, "œ": 120, "ɹ": 123, "ɾ": 125, "ɻ": 126, "ʁ": 128, "ɽ": 129, "ʂ": 130, "ʃ": 131,
    "ʈ": 132, "ʧ": 133, "ʊ": 135, "ʋ": 136, "ʌ": 138, "ɣ": 139, "ɤ": 140, "χ": 142, "ʎ": 143, "ʒ": 147,
    "ʔ": 148, "ˈ": 156, "ˌ": 157, "ː": 158, "ʰ": 162, "ʲ": 164,
    "↓": 169, "→": 171, "↗": 172, "↘": 173, "ᵻ": 177,
}  # fmt: skip

#: Punctuation that the model makes pauses and melody of. Inside a word or a number it is none.
_MARK = re.compile(r"([…—()!?;]|[.,:](?=\s|$|[…—()!?;.,:]))")

#: Its marks for those of other scripts. Quotation marks have no sound.
_MARKS = str.maketrans(
    {
        **dict.fromkeys("。｡．।॥۔", ". "),
        **dict.fromkeys("、，،､", ", "),
        **dict.fromkeys("！", "! "),
        **dict.fromkeys("？؟", "? "),
        **dict.fromkeys("；؛", "; "),
        **dict.fromkeys("：", ": "),
        **dict.fromkeys("–―─", "—"),
        **dict.fromkeys("⋯", "…"),
        **dict.fromkeys("（[{【", "("),
        **dict.fromkeys("）]}】", ")"),
        **dict.fromkeys("’‘‛´`", "'"),
        **dict.fromkeys('"“”„«»「」『』《》〈〉¿¡', ""),
    }
)

#: Letters of a script to the language that is read when they stand in a text of another one.
_SCRIPTS = (
    (re.compile(r"[\u3040-\u30ff\uff66-\uff9f]"), "ja"),
    (re.compile(r"[\u3400-\u9fff\uf900-\ufaff]"), "zh"),
    (re.compile(r"[\uac00-\ud7af\u1100-\u11ff]"), "ko"),
    (re.compile(r"[\u0400-\u04ff]"), "ru"),
    (re.compile(r"[\u0370-\u03ff\u1f00-\u1fff]"), "el"),
    (re.compile(r"[\u0590-\u05ff]"), "he"),
    (re.compile(r"[\u0600-\u06ff]"), "ar"),
    (re.compile(r"[\u0900-\u097f]"), "hi"),
    (re.compile(r"[\u0e00-\u0e7f]"), "th"),
    (re.compile(r"[A-Za-z\u00c0-\u024f]"), "en-US"),
)
#: Languages that are not written with Latin letters, to the scripts that they are.
_OWN_SCRIPTS = {"ja": ("ja", "zh"), "zh": ("zh",), "hi": ("hi",)}

_KANJI = re.compile(r"[\u3400-\u9fff々〆]")
_KANA = re.compile(r"[\u3040-\u309f\u30a1-\u30ff]")
#: What is spelled in kana as it was spoken long ago, where that can be told without knowing the words.
_OLD_KANA = (
    (re.compile(r"(?<=こんにち)は|(?<=こんばん)は|(?<=[でに])は(?![一-龯ぁ-ん])|(?<=\s)は(?=\s|$)"), "わ"),
    (re.compile(r"(?<=\s)へ(?=\s|$)"), "え"),
)

#: espeak-ng marks words of another language with its name in brackets.
_SWITCH = re.compile(rf"\({re.escape(TIE)}?[a-z{re.escape(TIE)}-]+\)")

#: Two letters of IPA to Kokoro's one.
_JOINED = {
    f"{TIE}h": "ʰ",
    "ä": "a",
    "a^ɪ": "I",
    "a^ʊ": "W",
    "d^z": "ʣ",
    "d^ʑ": "ʥ",
    "d^ʒ": "ʤ",
    "e^ɪ": "A",
    "o^ʊ": "O",
    "ə^ʊ": "Q",
    "s^s": "S",
    "t^s": "ʦ",
    "t^ɕ": "ʨ",
    "t^ʃ": "ʧ",
    "ɔ^ɪ": "Y",
}
#: Sounds that espeak-ng writes in another way than the texts that Kokoro learnt English from.
_ENGLISH = {
    "ə^l": "ᵊl",
    "ʲə": "jə",
    "ʲo": "jo",
    "ʲ": "",
    "ɚ": "əɹ",
    "e": "A",
    "r": "ɹ",
    "x": "k",
    "ç": "k",
    "ɐ": "ə",
    "ɬ": "l",
    "\u0303": "",
}
_AMERICAN = {TIE: "", "ɜːɹ": "ɜɹ", "ɜː": "ɜɹ", "ɪə": "iə", "ː": "", "ɾ": "T", "ʔ": "t", "o": "ɔ"}
_BRITISH = {"A^ə": "ɛː", TIE: "", "iə": "ɪə", "ɾ": "T", "ʔ": "t", "o": "ɔ"}
#: The word "I": the American voices swallow it unless it has a stress, which espeak-ng gives it seldom.
_WORD_I = re.compile(r"(?<!\S)I(?!\S)")
#: Vowel marks of consonants that carry a syllable.
_SYLLABIC = re.compile("(\\S)\u0329")


def vocabulary(file: Path | None) -> Mapping[str, int]:
    """The numbers of a model's phonemes: those that its `config.json` or `tokenizer.json` tells, else the usual ones.

    Raises:
        ModelLoadError: the file is no JSON.
    """
    if file is None:
        return VOCABULARY
    try:
        said = msgspec.json.decode(file.read_bytes())
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelLoadError(f"{file.name} cannot be read: {error}") from error
    said = said if isinstance(said, dict) else {}
    model = said.get("model")
    found = said.get("vocab") or (model.get("vocab") if isinstance(model, dict) else None)
    if not isinstance(found, dict) or not all(isinstance(number, int) for number in found.values()):
        return VOCABULARY
    return {str(phoneme): number for phoneme, number in found.items() if len(phoneme) == 1}


class Phonemizer:
    """Texts to Kokoro's phonemes.

    Args:
        known: the phonemes that the model knows; others are left out.
    """

    def __init__(self, espeak: Espeak, known: Mapping[str, int]) -> None:
        self._espeak = espeak
        self._known = known

    def __call__(self, text: str, language: str) -> str:
        """The phonemes of a text in a language (BCP 47), with its punctuation. Empty when nothing in it has a sound."""
        made = ""
        for piece in _MARK.split(punctuated(text)):
            if _MARK.fullmatch(piece):
                made = f"{made} {piece}" if piece == "(" else made + piece
            else:
                for spoken, words in runs(piece, language):
                    sounds = self._sounds(words, spoken)
                    made += sounds if made.endswith("(") else f" {sounds}"
        made = " ".join("".join(one for one in made if one in self._known).split())
        return made if any(one.isalpha() for one in made) else ""

    def check(self, text: str, language: str) -> None:
        """Looks through a whole text before anything of it is spoken.

        Raises:
            InvalidArgument: it has kanji, and what reads them is not installed.
        """
        if any(is_japanese(word, language) and _KANJI.search(word) for word in text.split()) and _reader() is None:
            raise InvalidArgument(
                "'input' has kanji, which can be read once `pip install pyopenjtalk-plus` was done where the daemon is "
                "installed; kana can be read as it is.",
                param="input",
            )

    def _sounds(self, words: str, language: str) -> str:
        if language == "zh":
            return mandarin.sounds(words)
        if language == "ja":
            words = in_kana(words)
        return kokoro_alphabet(self._espeak.sounds(words, language), language)


def is_japanese(word: str, language: str) -> bool:
    """Whether the Chinese characters of a word are Japanese: beside kana they are, whatever the text's language."""
    return language == "ja" or (language != "zh" and _KANA.search(word) is not None)


def in_kana(text: str) -> str:
    """Japanese as it is spoken, without Chinese characters if what reads them is installed."""
    reader = _reader()
    if reader is not None:
        return str(reader.g2p(text, kana=True))
    for pattern, spoken in _OLD_KANA:
        text = pattern.sub(spoken, text)
    return text


def _reader() -> Any:
    """The library that knows Japanese words, or None. It is too large to be installed for everyone."""
    try:
        import pyopenjtalk
    except ImportError:
        return None
    return pyopenjtalk


def punctuated(text: str) -> str:
    """The text with the model's own punctuation in place of what other scripts write."""
    return re.sub(r"\.{2,}|(?:\. ){3,}", "…", text.translate(_MARKS))


def runs(text: str, language: str) -> list[tuple[str, str]]:
    """The text in runs of one language each: words that are written in a script which the language does not use are
    read in one that does."""
    own = _OWN_SCRIPTS.get(language, ("en-US",))
    found: list[tuple[str, str]] = []
    for word in text.split():
        begins = True
        scripts = [_foreign(letter, own) for letter in word]
        if is_japanese(word, language):
            scripts = ["ja" if script == "zh" else script for script in scripts]
        for foreign, pairs in groupby(zip(scripts, word, strict=True), lambda pair: pair[0]):
            part = "".join(letter for _, letter in pairs)
            # What belongs to no script, such as digits, goes with what stands before it in the same word.
            spoken = foreign or (found[-1][0] if foreign is None and not begins else language)
            if found and found[-1][0] == spoken:
                found[-1] = (spoken, f"{found[-1][1]}{' ' if begins else ''}{part}")
            else:
                found.append((spoken, part))
            begins = False
    return found


def _foreign(letter: str, own: tuple[str, ...]) -> str | None:
    """The language of a letter that is foreign, `""` for one that is not, None for what is no letter."""
    for script, language in _SCRIPTS:
        if script.match(letter):
            return "" if language in own else language
    return None


def kokoro_alphabet(sounds: str, language: str) -> str:
    """Sounds as espeak-ng tells them in the letters of Kokoro's alphabet."""
    sounds = _replaced(_SWITCH.sub("", sounds), _JOINED)
    if language.startswith("en"):
        sounds = _replaced(_SYLLABIC.sub(r"ᵊ\1", sounds), _ENGLISH)
        sounds = _replaced(sounds, _BRITISH if language == "en-GB" else _AMERICAN)
    if language == "en-US":
        sounds = _WORD_I.sub("ˌI", sounds)
    return sounds.replace(TIE, "").replace("-", "").strip()


def _replaced(text: str, table: Mapping[str, str]) -> str:
    for old, new in table.items():
        text = text.replace(old, new)
    return text
