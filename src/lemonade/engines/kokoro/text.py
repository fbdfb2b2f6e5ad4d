"""Written text as it is read aloud: without what has no sound, and in English with numbers, sums and short forms in
words. espeak-ng reads numbers and the commonest short forms of all languages by itself."""

from __future__ import annotations

import re
import unicodedata

from lemonade.engines.kokoro.dates import dates
from lemonade.engines.kokoro.roman import numerals

# Every pattern is bounded in what it may try at one place: a text may be long, and all of it one letter.

#: Markdown that models write and nobody says.
_LINK = re.compile(r"!?\[([^\[\]]{0,300})\]\([^)\s]{0,500}\)")
_FENCE = re.compile(r"^[^\S\n]{0,99}```.*$", re.MULTILINE)
_LEAD = re.compile(r"^[^\S\n]*(?:#{1,6}|[-*+•]|\d+\)|\|)[^\S\n]+(.*?)[^\S\n]*$", re.MULTILINE)
_QUOTE = re.compile(r"^[^\S\n]*>[^\S\n]?", re.MULTILINE)
_RULE = re.compile(r"^(?:[-*_=|:][^\S\n]?){3,}$", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<!\w)(?:[*_`]{1,3}|~~)(?=\S)|(?<=\S)(?:[*_`]{1,3}|~~)(?!\w)")
_TAG = re.compile(r"</?[A-Za-z][^<>]{0,300}>")

_KEPT_SYMBOLS = "°©®™№"
_URL = re.compile(
    r"(?<![\w.-])(?:https?://)?(?:www\.)?((?:[\w-]{1,63}\.){1,9}[a-z]{2,63})((?:/[\w./%~-]*)?)(?:[?#][^\s)]*)?",
    re.IGNORECASE,
)
_MAIL = re.compile(r"(?<![\w.+-])([\w.+-]{1,64})@((?:[\w-]{1,63}\.){1,9}\w{2,63})\b")
#: Endings of host names that make "word.word" an address and no two sentences.
_HOSTS = {"com", "org", "net", "io", "ai", "dev", "edu", "gov", "app", "co", "uk", "de", "fr", "info", "html"}

_MONTHS = {
    "jan": "January", "feb": "February", "mar": "March", "apr": "April", "jun": "June", "jul": "July",
    "aug": "August", "sep": "September", "sept": "September", "oct": "October", "nov": "November", "dec": "December",
}  # fmt: skip
#: Short forms, by what has to stand beside them: some are words of their own, too.
_TITLES = {
    "dr": "Doctor", "mr": "Mister", "mrs": "Missus", "ms": "Miz", "prof": "Professor", "rev": "Reverend",
    "gen": "General", "sgt": "Sergeant", "capt": "Captain", "col": "Colonel", "lt": "Lieutenant", "gov": "Governor",
    "sen": "Senator", "rep": "Representative", "mt": "Mount", "ft": "Fort",
}  # fmt: skip
_COUNTED = {"fig": "figure", "vol": "volume", "ext": "extension", "p": "page", "pp": "pages", "ch": "chapter"}
_ALWAYS = {
    "jr": "Junior", "sr": "Senior", "vs": "versus", "etc": "et cetera", "approx": "approximately",
    "dept": "department", "inc": "Incorporated", "ltd": "Limited", "corp": "Corporation", "ave": "Avenue",
    "blvd": "Boulevard", "tel": "telephone", "univ": "University",
}  # fmt: skip
_SHORT_FORMS = {**_TITLES, **_COUNTED, **_ALWAYS}
_SHORT_FORM = re.compile(
    rf"\b(?:(?:{'|'.join(_TITLES)})\.(?=\s+[A-Z])|(?:{'|'.join(_COUNTED)})\.(?=\s*\d)|(?:{'|'.join(_ALWAYS)})\.)"
    rf"|(?<=\d )min\.(?=\s)",
    re.IGNORECASE,
)
#: Behind these, a dot ends the sentence as well when nothing follows or a capital letter does.
_MAY_END = {"etc", "inc", "ltd", "corp", "jr", "sr", "ave", "blvd"}
_LATIN = (
    (re.compile(r"\be\.\s?g\.,?", re.IGNORECASE), "for example,"),
    (re.compile(r"\bi\.\s?e\.,?", re.IGNORECASE), "that is,"),
    (re.compile(r"\bPh\.\s?D\b(?:\.(?=\s+[a-z]))?"), "P H D"),
    (re.compile(r"\bw/o\b"), "without"),
    (re.compile(r"\bw/(?=\s)"), "with"),
)
_MONTH = re.compile(rf"\b({'|'.join(_MONTHS)})\.?(?=\s+\d)", re.IGNORECASE)
_SAINT = re.compile(r"\bSt\.(?=\s+[A-Z])")
_STREET = re.compile(r"(?<=\w )St\.")
_DRIVE = re.compile(r"\b(?!The |My |Our )([A-Z][a-z]{1,30}) Dr\.(?=\s*$|[,;]|\s+[a-z])")
_ACRONYM = re.compile(r"\b(?:[A-Za-z]\.){2,}")

_UNITS = {
    "km/h": "kilometers per hour", "mph": "miles per hour", "km": "kilometers", "kg": "kilograms", "mg": "milligrams",
    "cm": "centimeters", "mm": "millimeters", "ml": "milliliters", "ghz": "gigahertz", "mhz": "megahertz",
    "khz": "kilohertz", "hz": "hertz", "kb": "kilobytes", "mb": "megabytes", "gb": "gigabytes", "tb": "terabytes",
    "lb": "pounds", "lbs": "pounds", "oz": "ounces", "ft": "feet", "ms": "milliseconds", "°c": "degrees Celsius",
    "°f": "degrees Fahrenheit", "°": "degrees", "kwh": "kilowatt hours", "kw": "kilowatts",
    "m/s": "meters per second", "kb/s": "kilobytes per second", "mb/s": "megabytes per second",
    "gb/s": "gigabytes per second", "km²": "square kilometers", "m²": "square meters", "cm²": "square centimeters",
    "m³": "cubic meters", "min": "minutes", "hrs": "hours",
}  # fmt: skip
#: Units of one letter, which have to stand apart: "5m" are millions as well.
_LETTER_UNITS = {"m": "meters", "g": "grams", "l": "liters", "h": "hours", "s": "seconds"}
_UNIT = re.compile(
    rf"(?<=\d)(?:\s?({'|'.join(sorted(map(re.escape, _UNITS), key=len, reverse=True))})|\s((?-i:[mglhs])))(?![\w/'’])",
    re.IGNORECASE,
)
_ONE_OF = {"feet": "foot", "hertz": "hertz"}

_CURRENCIES = {
    "$": ("dollar", "cent"),
    "£": ("pound", "penny"),
    "€": ("euro", "cent"),
    "¥": ("yen", ""),
    "₹": ("rupee", "paisa"),
}
_PLURALS = {"penny": "pence", "paisa": "paise", "yen": "yen"}
#: "$5-10" and "$5-$10".
_SUMS = re.compile(r"([$£€¥₹])(\d[\d,.]{0,15})\s?[-–]\s?\1?(?=\d)")
_SUM = re.compile(
    r"(-?)([$£€¥₹])\s?(\d{1,15}(?!\d)(?:,\d{3}(?!\d)){0,9})(?:(?:\.|,(?=\d\d(?!\d|,\d)))(\d{1,2})(?!\d))?(\.\d+)?"
    r"(?:\s?(thousand|million|billion|trillion|bn|mn|[kmb])\b)?",
    re.IGNORECASE,
)
_SCALES = {"k": "thousand", "m": "million", "b": "billion", "mn": "million", "bn": "billion"}
_TIME = re.compile(r"\b([01]?\d|2[0-3]):([0-5]\d)(?::([0-5]\d))?(?:\s?([ap])\.?\s?m\b\.?)?", re.IGNORECASE)
_HALF_DAY = re.compile(r"(?<=\d)\s?([ap])\.?m\b\.?", re.IGNORECASE)
_DECADE = re.compile(r"\b(1[1-9]|20)(\d)0'?s\b")
_YEAR = re.compile(r"(?<![\d.,$£€¥#/-])\b(1[1-9]|20)(\d\d)\b(?![\d%°]|[.,:/]\d|-\d)")
_FRACTION = re.compile(r"(?<![\d/.,])\b(?:(\d{1,3}) )?([1-9]|10)/([2-8]|10)\b(?![\d/])")
_TELEPHONE = re.compile(r"(?<![\w-])(\+?\d{1,3}[ -])?(?:\((\d{3})\) ?|(\d{3})[ -])(\d{3})-(\d{4})(?![\w-])")
_RANGE = re.compile(r"(?<![\d-])\b(\d+%?)\s?[-–]\s?(\d+)\b(?!-|\s?=)")
_DOTTED = re.compile(r"(?<![\d.])\d{1,9}(?:\.\d{1,9}){2,9}")
_GROUPS = re.compile(r"(?<=\d),(?=\d{3}\b)")
_TENS = (
    "hundreds",
    "tens",
    "twenties",
    "thirties",
    "forties",
    "fifties",
    "sixties",
    "seventies",
    "eighties",
    "nineties",
)
_PARTS = {
    "2": ("half", "halves"), "3": ("third", "thirds"), "4": ("quarter", "quarters"), "5": ("fifth", "fifths"),
    "6": ("sixth", "sixths"), "7": ("seventh", "sevenths"), "8": ("eighth", "eighths"),
}  # fmt: skip

_SIGNS = (
    (re.compile(r"(?<=\d)\s?[x×]\s?(?=\d)"), " times "),
    (re.compile(r"×"), " times "),
    (re.compile(r"÷"), " divided by "),
    (re.compile(r"(?<![\w)])[-−](?=\d)"), "minus "),
    (re.compile(r"\s[-−]\s(?=\d)"), " minus "),
    (re.compile(r"[~≈]\s?(?=\d)"), "about "),
    (re.compile(r"#\s?(?=\d)|№\s?|\bNo\.\s?(?=\d)"), "number "),
    (re.compile(r"\s?&\s?"), " and "),
    (re.compile(r"\s?\+\s?"), " plus "),
    (re.compile(r"\s?=\s?"), " equals "),
    (re.compile(r"≤"), " at most "),
    (re.compile(r"≥"), " at least "),
    (re.compile(r"(?<=\d)\s?<\s?(?=\d)"), " is less than "),
    (re.compile(r"(?<=\d)\s?>\s?(?=\d)"), " is more than "),
    (re.compile(r"(?<=\w)²"), " squared"),
    (re.compile(r"(?<=\w)³"), " cubed"),
    (re.compile(r"(?<=llars|.euro|euros|.cent|cents|ounds|pence)/(?=[a-z])"), " per "),
    (re.compile(r"(?<=[A-Za-z])/(?=[A-Za-z])|(?<=\d)/(?=\d)"), " "),
)  # fmt: skip


def clean(text: str) -> str:
    """The text without markup, emoji and characters that nobody can see."""
    text = text if text.isascii() else unicodedata.normalize("NFC", "".join(map(_plain, text)))
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    text = _FENCE.sub("", text)
    text = _RULE.sub("", text)
    text = _LINK.sub(r"\1", text)
    text = _TAG.sub(" ", text)
    text = _EMPHASIS.sub("", _LEAD.sub(_line, _QUOTE.sub("", text))).replace("|", ", ")
    text = "".join(letter if _has_sound(letter) else " " for letter in text)
    # Emoji leave gaps: no space may stand before a mark, and no line be full of them.
    text = re.sub(r"[^\S\n]+", " ", text)
    return re.sub(r" (?=[,.!?;:])", "", re.sub(r" ?\n ?", "\n", text)).strip()


def spoken(text: str, language: str) -> str:
    """The text as it is read in a language (BCP 47)."""
    text = clean(text)
    return english(text, language) if language.startswith("en") else text


def english(text: str, language: str = "en-US") -> str:
    """Numbers, sums of money, dates, times, addresses and short forms in words."""
    text = _MAIL.sub(lambda match: f"{_dotted(match[1])} at {_dotted(match[2])}", text)
    text = _URL.sub(_address, text)
    for pattern, words in _LATIN:
        text = pattern.sub(words, text)
    text = _MONTH.sub(lambda match: _MONTHS[match[1].lower()], text)
    text = _SAINT.sub("Saint", text)
    text = _STREET.sub("Street", text)
    text = _DRIVE.sub(r"\1 Drive", text)
    text = _SHORT_FORM.sub(_short_form, text)
    text = numerals(dates(text, language))
    text = _TIME.sub(_time, text)
    text = _HALF_DAY.sub(lambda match: f" {_half_day(match, match[1])}", text)
    text = _ACRONYM.sub(_acronym, text)
    text = _SUM.sub(_sum, _SUMS.sub(r"\2 to \1", text))
    text = _DOTTED.sub(lambda match: match[0].replace(".", " point "), text)
    text = _FRACTION.sub(_fraction, text)
    text = re.sub(r"(\d)?\s?([½¼¾])", _vulgar, text)
    text = _DECADE.sub(lambda match: f"{match[1]} {_TENS[int(match[2])]}".replace("20 hundreds", "two thousands"), text)
    text = _TELEPHONE.sub(_telephone, text)
    text = _RANGE.sub(_range, text)
    text = _UNIT.sub(_unit, text)
    text = _YEAR.sub(_year, text)
    # A number with commas is no year.
    text = _GROUPS.sub("", text)
    for pattern, words in _SIGNS:
        text = pattern.sub(words, text)
    return re.sub(r"[^\S\n]+", " ", text).strip()


def _plain(letter: str) -> str:
    """Letters that only look different, such as wide ones, bold ones of mathematics and numbers in circles."""
    kind = unicodedata.decomposition(letter).partition(" ")[0]
    return unicodedata.normalize("NFKC", letter) if kind in ("<font>", "<wide>", "<narrow>", "<circle>") else letter


def _line(match: re.Match[str]) -> str:
    """A heading or a line of a list, which ends like a sentence."""
    line = match[1].rstrip("| ")
    return line if not line or line[-1] in ".!?:;,…" else f"{line}."


def _has_sound(letter: str) -> bool:
    """Emoji, pictures, private characters and those that only steer the layout have none."""
    if letter in "\n\t" or letter in _KEPT_SYMBOLS:
        return True
    kind = unicodedata.category(letter)
    return kind not in ("So", "Sk", "Cs", "Co", "Cn", "Cc", "Cf") and not "\ufe00" <= letter <= "\ufe0f"


def _dotted(text: str) -> str:
    return text.replace(".", " dot ").replace("_", " underscore ").replace("-", " dash ").replace("+", " plus ")


def _address(match: re.Match[str]) -> str:
    host, path = match[1], match[2].rstrip("/.")
    if (
        "://" not in match[0]
        and not match[0].lower().startswith("www.")
        and host.rpartition(".")[2].lower() not in _HOSTS
    ):
        return match[0]
    ends = "." if match[0].endswith(".") else ""
    return _dotted(host) + _dotted(path).replace("/", " slash ") + ends


def _short_form(match: re.Match[str]) -> str:
    word = match[0].removesuffix(".").lower()
    ends = "." if word in _MAY_END and _ends_here(match) else ""
    return _SHORT_FORMS.get(word, "minutes") + ends


def _ends_here(match: re.Match[str]) -> bool:
    """Whether a dot at the end of a short form ends the sentence as well."""
    return bool(re.match(r"\s*$|\s+[A-Z]", match.string[match.end() :]))


def _letters(word: str) -> str:
    """A word letter by letter. "A" alone would be read as the article, and "ay" as "eye"."""
    return " ".join("eh" if letter in "aA" else letter.upper() for letter in word)


def _acronym(match: re.Match[str]) -> str:
    rest = match.string[match.end() :]
    ends = "." if re.match(r"\s*$|\s+[A-Z][a-z]+\s+[a-z]", rest) else ""
    return _letters(match[0].replace(".", "")) + ends


def _sum(match: re.Match[str]) -> str:
    minus, sign, whole, cents, more, scale = match.groups()
    one, hundredth = _CURRENCIES[sign]
    before = "minus " if minus else ""
    if scale or more:
        number = whole + (f".{cents}" if cents else "") + (more or "")
        large = _SCALES.get((scale or "").lower(), (scale or "").lower())
        return f"{before}{number} {large} {_counted(one, 2)}".replace("  ", " ")
    amount = f"{whole} {_counted(one, int(whole.replace(',', '')))}"
    rest = int((cents or "").ljust(2, "0")) if cents else 0
    if not rest or not hundredth:
        return before + amount
    small = f"{rest} {_counted(hundredth, rest)}"
    return before + (small if whole.strip("0") == "" else f"{amount} and {small}")


def _counted(word: str, number: int) -> str:
    return word if number == 1 else _PLURALS.get(word, f"{word}s")


def _time(match: re.Match[str]) -> str:
    hour, minute, second, half = match.groups()
    said = str(int(hour))
    if minute != "00":
        said += f" {minute}" if minute[0] != "0" else f" oh {minute[1]}"
    elif not half:
        said += " o'clock" if 0 < int(hour) <= 12 else " hundred hours"
    if second and second != "00":
        said += f" and {int(second)} seconds"
    return f"{said} {_half_day(match, half)}" if half else said


def _half_day(match: re.Match[str], half: str) -> str:
    ends = "." if match[0].endswith(".") and _ends_here(match) else ""
    return _letters(f"{half}m") + ends


def _fraction(match: re.Match[str]) -> str:
    whole, count, parts = match[1], int(match[2]), match[3]
    if count >= int(parts) or parts == "10":
        return f"{whole} {count} out of {parts}" if whole else f"{count} out of {parts}"
    one, many = _PARTS[parts]
    said = f"one {one}" if count == 1 else f"{count} {many}"
    return f"{whole} and {said}" if whole else said


def _telephone(match: re.Match[str]) -> str:
    groups = [" ".join(part.strip("+ -")) for part in match.groups() if part]
    return f"{'plus ' if match[0].startswith('+') else ''}{', '.join(groups)}"


def _range(match: re.Match[str]) -> str:
    first, last = match.groups()
    if len(first) == 3 and len(last) == 4:
        # A telephone number.
        return f"{' '.join(first)}, {' '.join(last)}"
    return f"{first} to {last}"


def _vulgar(match: re.Match[str]) -> str:
    part = {"½": "a half", "¼": "a quarter", "¾": "three quarters"}[match[2]]
    return f"{match[1]} and {part}" if match[1] else part


def _year(match: re.Match[str]) -> str:
    century, rest = match[1], match[2]
    if century == "20" and rest[0] == "0":
        return match[0]
    if rest == "00":
        return f"{century} hundred"
    return f"{century} oh {rest[1]}" if rest[0] == "0" else f"{century} {rest}"


def _unit(match: re.Match[str]) -> str:
    words = _UNITS[match[1].lower()] if match[1] else _LETTER_UNITS[match[2]]
    before = match.string[: match.start()]
    if re.search(r"(?:^|[^\d.,])1$", before) and " " not in words:
        words = _ONE_OF.get(words, words.removesuffix("s"))
    return f" {words}"
