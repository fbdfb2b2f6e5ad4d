"""The voices of Kokoro: what their names say, and which of them stand in for OpenAI's."""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass

from lemonade.errors import InvalidArgument

#: The voice of a request that names none. Source: the specification.
DEFAULT = "shimmer"

#: The voices of version 1.0 of the model. Source: its repository, hexgrad/Kokoro-82M.
NAMES = tuple(
    f"{kind}_{name}"
    for kind, names in {
        "af": "alloy aoede bella heart jessica kore nicole nova river sarah sky",
        "am": "adam echo eric fenrir liam michael onyx puck santa",
        "bf": "alice emma isabella lily",
        "bm": "daniel fable george lewis",
        "ef": "dora",
        "em": "alex santa",
        "ff": "siwis",
        "hf": "alpha beta",
        "hm": "omega psi",
        "if": "sara",
        "im": "nicola",
        "jf": "alpha gongitsune nezumi tebukuro",
        "jm": "kumo",
        "pf": "dora",
        "pm": "alex santa",
        "zf": "xiaobei xiaoni xiaoxiao xiaoyi",
        "zm": "yunjian yunxi yunxia yunyang",
    }.items()
    for name in names.split()
)

#: The first letter of a voice's name to its language (BCP 47).
LANGUAGES = {
    "a": "en-US",
    "b": "en-GB",
    "e": "es",
    "f": "fr",
    "h": "hi",
    "i": "it",
    "j": "ja",
    "p": "pt-BR",
    "z": "zh",
}
#: The second letter.
GENDERS = {"f": "female", "m": "male"}

#: OpenAI's voices, each with one of Kokoro's that is like it: the namesake where there is one.
OPENAI = {
    "alloy": "af_alloy",
    "ash": "am_michael",
    "ballad": "bm_george",
    "cedar": "am_fenrir",
    "coral": "af_bella",
    "echo": "am_echo",
    "fable": "bm_fable",
    "marin": "bf_emma",
    "nova": "af_nova",
    "onyx": "am_onyx",
    "sage": "af_sarah",
    "shimmer": "af_heart",
    "verse": "am_puck",
}

_PART = re.compile(r"^(?P<name>[a-z][a-z0-9_]*)(?:\.(?P<tenths>\d)|\((?P<weight>\d{1,9}(?:\.\d{1,9})?)\))?$")
#: Voices in one mixture.
MAX_PARTS = 8


@dataclass(frozen=True, slots=True)
class Blend:
    """What a request calls a voice: one, or a mixture.

    Attributes:
        parts: names of voices with their shares, which sum up to 1.
    """

    parts: tuple[tuple[str, float], ...]

    @property
    def language(self) -> str:
        """The language of the first voice."""
        return language(self.parts[0][0])


def language(name: str) -> str:
    """The language that a voice speaks, English for a name that does not say."""
    return LANGUAGES.get(name[:1], "en-US") if name[1:2] in GENDERS and name[2:3] == "_" else "en-US"


def gender(name: str) -> str:
    """`female`, `male` or, for a name that does not say, `""`."""
    return GENDERS.get(name[1:2], "") if name[2:3] == "_" else ""


def blend(text: str, known: Collection[str]) -> Blend:
    """The voice that a request names: one of `known`, one of OpenAI's, or a mixture such as `af_sky+af_bella`,
    `af_sky.4+af_nicole.6` (shares in tenths) or `af_sky(2)+af_bella(1)`.

    Raises:
        InvalidArgument: it names none, with the list of those there are.
    """
    if not known:
        raise InvalidArgument("The model has no voices.", param="voice")
    words = text.strip().split("+")
    parts: list[tuple[str, float]] = []
    for word in words[: MAX_PARTS + 1]:
        match = _PART.match(word.strip().lower())
        name = match["name"] if match else ""
        name = name if name in known else OPENAI.get(name, "")
        if match is None or name not in known:
            raise InvalidArgument(
                f"'voice' must be one of the model's voices, not {word.strip()[:60]!r}. There are: "
                f"{', '.join(sorted(known))}; and OpenAI's: "
                f"{', '.join(sorted(one for one, stands in OPENAI.items() if stands in known))}.",
                param="voice",
            )
        share = int(match["tenths"]) / 10 if match["tenths"] else float(match["weight"] or 1)
        parts.append((name, share))
    total = sum(share for _, share in parts)
    if len(parts) > MAX_PARTS or total <= 0:
        raise InvalidArgument(
            f"'voice' must mix at most {MAX_PARTS} voices, with shares that are not all 0.", param="voice"
        )
    return Blend(tuple((name, share / total) for name, share in parts))
