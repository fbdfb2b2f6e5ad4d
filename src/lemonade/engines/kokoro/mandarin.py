"""Chinese characters to sounds, as Kokoro learnt them: the syllables of pinyin in the International Phonetic Alphabet,
with arrows for the tones."""

from __future__ import annotations

import re
from collections.abc import Iterator

#: Beginnings of syllables, longest first, and how they sound (Duanmu, The Phonology of Standard Chinese).
_INITIALS = {
    "zh": "\uab67", "ch": "\uab67ʰ", "sh": "ʂ", "b": "p", "p": "pʰ", "m": "m", "f": "f", "d": "t", "t": "tʰ", "n": "n",
    "l": "l", "g": "k", "k": "kʰ", "h": "x", "j": "ʨ", "q": "ʨʰ", "x": "ɕ", "r": "ɻ", "z": "ʦ", "c": "ʦʰ", "s": "s",
}  # fmt: skip
#: Ends of syllables; the tone stands where the dot is.
_FINALS = {
    "a": "a·", "ai": "ai·", "an": "a·n", "ang": "a·ŋ", "ao": "au·", "e": "ɤ·", "ei": "ei·", "en": "ə·n", "eng": "ə·ŋ",
    "er": "ɚ·", "i": "i·", "ia": "ja·", "ian": "jɛ·n", "iang": "ja·ŋ", "iao": "jau·", "ie": "je·", "in": "i·n",
    "ing": "i·ŋ", "iong": "jʊ·ŋ", "iou": "jou·", "o": "wo·", "ong": "ʊ·ŋ", "ou": "ou·", "u": "u·", "ua": "wa·",
    "uai": "wai·", "uan": "wa·n", "uang": "wa·ŋ", "uei": "wei·", "uen": "wə·n", "ueng": "wə·ŋ", "uo": "wo·", "ü": "y·",
    "üe": "ɥe·", "üan": "ɥɛ·n", "ün": "y·n",
}  # fmt: skip
#: Whole syllables as pinyin spells them, as an initial and an end, where the spelling hides them.
_SPELLINGS = {"iu": "iou", "ui": "uei", "un": "uen", "v": "ü", "ve": "üe", "ue": "üe", "van": "üan", "vn": "ün"}
_WITHOUT_INITIAL = {
    "yi": "i", "ya": "ia", "ye": "ie", "yao": "iao", "you": "iou", "yan": "ian", "yin": "in", "yang": "iang",
    "ying": "ing", "yong": "iong", "yo": "iou", "wu": "u", "wa": "ua", "wo": "uo", "wai": "uai", "wei": "uei",
    "wan": "uan", "wen": "uen", "wang": "uang", "weng": "ueng", "yu": "ü", "yue": "üe", "yuan": "üan", "yun": "ün",
}  # fmt: skip
#: Initials behind which "i" is a buzz, and those behind which "u" is "ü".
_BUZZ = {"zh", "ch", "sh", "r", "z", "c", "s"}
_PALATAL = {"j", "q", "x"}

#: The tones 1 to 4; the fifth is none.
_TONES = {"1": "→", "2": "↗", "3": "↓", "4": "↘", "5": ""}

_SYLLABLE = re.compile(rf"^({'|'.join(_INITIALS)})?([a-zü]+)([1-5])$")
_NUMBER = re.compile(r"\d+(?:\.\d+)?%?")
_DIGITS = "零一二三四五六七八九"
_LARGE = ("", "万", "亿", "万亿")


def sounds(text: str) -> str:
    """The sounds of Chinese words, apart. Characters that pinyin does not know are left out."""
    from pypinyin import Style, lazy_pinyin
    from pypinyin.seg.mmseg import seg

    spoken = []
    for word in seg.cut(numbers_in_words(text)):
        syllables = lazy_pinyin(
            word, style=Style.TONE3, neutral_tone_with_five=True, tone_sandhi=True, errors="ignore", v_to_u=True
        )
        spoken.append("".join(syllable(one) for one in syllables))
    return " ".join(filter(None, spoken))


def syllable(pinyin: str) -> str:
    """The sounds of one syllable with the number of its tone, such as `zhong1`; `""` for what is none."""
    match = _SYLLABLE.match(pinyin)
    if match is None:
        return ""
    initial, final, tone = match[1] or "", match[2], _TONES[match[3]]
    if not initial:
        final = _WITHOUT_INITIAL.get(final, final)
    elif final == "i" and initial in _BUZZ:
        return f"{_INITIALS[initial]}ɨ{tone}"
    elif initial in _PALATAL and final.startswith("u"):
        final = f"ü{final[1:]}"
    final = _SPELLINGS.get(final, final)
    if final not in _FINALS:
        return ""
    return _INITIALS.get(initial, "") + _FINALS[final].replace("·", tone)


def numbers_in_words(text: str) -> str:
    """The text with Chinese words for its numbers."""
    return _NUMBER.sub(_number, text)


def _number(match: re.Match[str]) -> str:
    whole, _, part = match[0].rstrip("%").partition(".")
    # Numbers of telephones and the like are read digit by digit.
    plain = (len(whole) > 1 and whole[0] == "0") or len(whole) > 9
    words = "".join(_DIGITS[int(digit)] for digit in whole) if plain else _counted(int(whole))
    if part:
        words += "点" + "".join(_DIGITS[int(digit)] for digit in part)
    return f"百分之{words}" if match[0].endswith("%") else words


def _counted(number: int) -> str:
    if number == 0:
        return _DIGITS[0]
    groups = list(_groups(number))
    words = ""
    for place in range(len(groups) - 1, -1, -1):
        group = groups[place]
        if not group:
            continue
        # A gap between two groups is read as one zero.
        gap = words and (group < 1000 or groups[place + 1] == 0)
        words += (_DIGITS[0] if gap else "") + _below_ten_thousand(group) + _LARGE[place]
    return words.removeprefix("一") if words.startswith("一十") else words


def _groups(number: int) -> Iterator[int]:
    while number:
        yield number % 10_000
        number //= 10_000


def _below_ten_thousand(number: int) -> str:
    words, zero = "", False
    for unit, name in ((1000, "千"), (100, "百"), (10, "十"), (1, "")):
        digit, number = divmod(number, unit)
        if digit:
            words += (_DIGITS[0] if zero and words else "") + _DIGITS[digit] + name
            zero = False
        else:
            zero = True
    return words
