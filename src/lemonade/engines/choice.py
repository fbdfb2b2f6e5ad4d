"""Which of its backends an engine is started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lemonade.engines.engine import Backend
from lemonade.errors import InvalidArgument, ModelLoadError


def choose(known: Sequence[Backend], options: Mapping[str, Any], *, recipe: str, section: str, setting: Any) -> Backend:
    """The backend that the options name, else the setting, else the first one that can run.

    Args:
        known: in order of preference.
        section: of the settings, for the message.
        setting: the value of its key `backend`.

    Raises:
        InvalidArgument: there is no such backend.
        ModelLoadError: it cannot run here, or none can.
    """
    option = f"{recipe}_backend"
    wanted = options.get(option) or "auto"
    if wanted == "auto":
        wanted = setting or "auto"
    if wanted == "auto":
        found = next((backend for backend in known if backend.can_run), None)
        if found is not None:
            return found
        reasons = [backend.message for backend in known if backend.state == "installable"] or [known[0].message]
        raise ModelLoadError(f"no backend of {recipe} can run here. {' '.join(reasons)}")
    for backend in known:
        if backend.name == wanted:
            if backend.can_run:
                return backend
            how = f" Install it: {backend.action}" if backend.action else ""
            raise ModelLoadError(f"the backend `{wanted}` of {recipe} cannot run here. {backend.message}{how}")
    raise unknown(known, wanted, recipe=recipe, section=section)


def unknown(known: Sequence[Backend], name: Any, *, recipe: str, section: str) -> InvalidArgument:
    """Says which backends there are."""
    names = ", ".join(["auto", *(backend.name for backend in known)])
    return InvalidArgument(f"'{section}.backend' must be one of: {names}, not {name!r}", param=f"{recipe}_backend")
