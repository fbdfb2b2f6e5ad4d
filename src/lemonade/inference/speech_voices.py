"""The voices that a model speaks with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.engines.kokoro.layout import find, voice_names
from lemonade.engines.kokoro.voices import NAMES, OPENAI, gender, language
from lemonade.model import Model


class Voice(msgspec.Struct):
    """One voice."""

    id: Annotated[str, Meta(description="What `voice` of a request takes.")]
    name: Annotated[str, Meta(description="The name for people.")]
    language: Annotated[str, Meta(description="The language that it reads a text in (BCP 47).")]
    gender: Annotated[str, Meta(description="`female` or `male`; empty when its name does not say.")]
    stands_for: Annotated[
        str | UnsetType, Meta(description="For OpenAI's names: the voice of the model that is heard.")
    ] = UNSET


def voices_of(model: Model, main: Path | None) -> list[Voice]:
    """The voices in the order of their names, OpenAI's at the end.

    Args:
        main: the model's file or folder on the disk; None while it is not here, when the usual ones are named.

    Raises:
        ModelLoadError: what is on the disk is not whole.
    """
    if model.recipe != "kokoro":
        return []
    names = sorted(NAMES) if main is None else voice_names(find(main).voices)
    own = [_voice(name, name) for name in names]
    return own + [_voice(alias, name, name) for alias, name in sorted(OPENAI.items()) if name in names]


def _voice(identifier: str, name: str, stands_for: str | UnsetType = UNSET) -> Voice:
    bare = name[3:] if name[2:3] == "_" else name
    shown = identifier.capitalize() if isinstance(stands_for, str) else bare.capitalize()
    return Voice(identifier, shown, language(name), gender(name), stands_for)
