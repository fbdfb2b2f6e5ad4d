"""Languages that models of speech know, by the codes that clients write."""

from __future__ import annotations

from typing import Final

from lemonade.errors import InvalidArgument

_TABLE: Final = """
    en=english zh=chinese de=german es=spanish ru=russian ko=korean fr=french ja=japanese pt=portuguese tr=turkish
    pl=polish ca=catalan nl=dutch ar=arabic sv=swedish it=italian id=indonesian hi=hindi fi=finnish vi=vietnamese
    he=hebrew uk=ukrainian el=greek ms=malay cs=czech ro=romanian da=danish hu=hungarian ta=tamil no=norwegian
    th=thai ur=urdu hr=croatian bg=bulgarian lt=lithuanian la=latin mi=maori ml=malayalam cy=welsh sk=slovak
    te=telugu fa=persian lv=latvian bn=bengali sr=serbian az=azerbaijani sl=slovenian kn=kannada et=estonian
    mk=macedonian br=breton eu=basque is=icelandic hy=armenian ne=nepali mn=mongolian bs=bosnian kk=kazakh
    sq=albanian sw=swahili gl=galician mr=marathi pa=punjabi si=sinhala km=khmer sn=shona yo=yoruba so=somali
    af=afrikaans oc=occitan ka=georgian be=belarusian tg=tajik sd=sindhi gu=gujarati am=amharic yi=yiddish lo=lao
    uz=uzbek fo=faroese ht=haitian_creole ps=pashto tk=turkmen nn=nynorsk mt=maltese sa=sanskrit lb=luxembourgish
    my=myanmar bo=tibetan tl=tagalog mg=malagasy as=assamese tt=tatar haw=hawaiian ln=lingala ha=hausa ba=bashkir
    jw=javanese su=sundanese yue=cantonese
"""
#: Code to English name. Source: the vocabulary of Whisper, which is that of OpenAI's API, too.
NAMES: Final = dict(pair.split("=") for pair in _TABLE.split())
_CODES: Final = {name.replace("_", "-"): code for code, name in NAMES.items()}
#: Newer, older and closely related codes.
_SYNONYMS: Final = {"jv": "jw", "nb": "no", "iw": "he", "fil": "tl", "in": "id", "cmn": "zh"}
AUTO: Final = "auto"


def code(text: str) -> str:
    """The code of a language that a client named: `de`, `de-AT`, `German`; `auto` and nothing are `auto`.

    Raises:
        InvalidArgument: no model knows it.
    """
    wanted = text.strip().lower().replace("_", "-").replace(" ", "-")
    if wanted in ("", AUTO):
        return AUTO
    base = wanted.partition("-")[0]
    found = _CODES.get(wanted) or _SYNONYMS.get(base, base)
    if found not in NAMES:
        raise InvalidArgument(
            f"'language' must be `auto` or a code such as `en`, `de` or `zh`, not {text[:50]!r}.", param="language"
        )
    return found


def name(code: str) -> str:
    """The English name, in small letters as OpenAI has it; the code itself when it is not known."""
    return NAMES.get(code, code).replace("_", " ")
