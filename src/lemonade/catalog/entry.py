"""One line of the listing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from lemonade.model import Model


class CheckpointStatus(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the bytes of one role are here.

    Attributes:
        type: the role: `main`, `mmproj`, `vae`, …
        present: complete and readable.
        required: whether the model is not downloaded without it.
        registry: where it comes from; empty for local files.
        path: the file or folder, when present. Shown only to those who ask for paths.
    """

    type: str
    present: bool
    required: bool
    registry: str
    path: Path | None = None


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """A model as the listing shows it.

    Attributes:
        id: the public id, or the alias.
        model: the model, with the labels that its file's header adds.
        downloaded: everything that is required is here; for a collection, all components are.
        size: GiB; on disk when downloaded, else the row's estimate; 0 when unknown.
        max_context_window: tokens, from the header of a downloaded GGUF file.
        checkpoint_status: one per role, `main` first.
        components: public ids of a collection's components, in order.
        recipe_options: the model's own options: its row's, with the saved ones on top.
        update_available: whether the registry is known to have newer files.
    """

    id: str
    model: Model
    downloaded: bool
    size: float = 0.0
    max_context_window: int | None = None
    checkpoint_status: tuple[CheckpointStatus, ...] = ()
    components: tuple[str, ...] = ()
    recipe_options: dict[str, Any] = {}
    update_available: bool = False

    @property
    def source(self) -> str:
        """The kind of local files, else the registry."""
        return self.model.source or self.model.registry


def gigabytes(size: int) -> float:
    """Bytes as GiB, rounded as the wire shows sizes: three decimals below 1, two below 10, else one."""
    value = size / 1024**3
    return round(value, 3 if value < 1 else 2 if value < 10 else 1)
