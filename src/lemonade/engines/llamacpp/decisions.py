"""Decision models: llama.cpp answers questions with them in one look, without generating text."""

from __future__ import annotations

from pathlib import Path

from lemonade.errors import ModelLoadError, ModelLoadRefused
from lemonade.hub.gguf import InvalidGGUF, read_header
from lemonade.model import Model

#: What the bundled llama.cpp reads out of a file's `decision.type`.
KNOWN = frozenset({"openjev", "lev", "nimble", "kev", "laya", "clef", "lfm2-d1", "lfm2-d1-omni", "pplx-decider"})


def check(model: Model, path: Path, *, bundled: bool) -> None:
    """Refuses a file that is no decision model, or none that the bundled engine understands.

    Raises:
        ModelLoadRefused: it can never answer.
        ModelLoadError: the file cannot be read.
    """
    try:
        kind = read_header(path).decision
    except (OSError, InvalidGGUF) as error:
        raise ModelLoadError(str(error)) from None
    if kind is None:
        raise ModelLoadRefused(
            f"'{model.name}' has the label `systemone`, but {path.name} is no decision model.", requested=model.name
        )
    if bundled and kind not in KNOWN:
        raise ModelLoadRefused(
            f"'{model.name}' is a decision model of the type '{kind[:80]}', which the bundled llama.cpp does not "
            f"know; it knows {', '.join(sorted(KNOWN))}.",
            requested=model.name,
        )
