"""The arguments that requests for text have in common."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType


class Loading(msgspec.Struct, kw_only=True):
    """What any request for text may say of the model that it names."""

    route_trace: Annotated[
        bool | UnsetType | None, Meta(description="Extension for router models; others answer as without it.")
    ] = UNSET
    ctx_size: Annotated[
        Annotated[int, Meta(ge=-1)] | UnsetType | None,
        Meta(description="Extension: context size to load the model with, if this request loads it."),
    ] = UNSET

    @property
    def load_options(self) -> dict[str, Any]:
        """The options that count if this request is what loads the model."""
        return {"ctx_size": self.ctx_size} if isinstance(self.ctx_size, int) else {}


class Sampling(Loading, kw_only=True):
    """How the next token is chosen."""

    temperature: Annotated[float | UnsetType | None, Meta(description="Sampling temperature.")] = UNSET
    repeat_penalty: Annotated[
        float | UnsetType | None, Meta(description="1.0 applies no penalty; higher values discourage repetition.")
    ] = UNSET
    frequency_penalty: Annotated[
        float | UnsetType | None,
        Meta(description="-2.0 to 2.0: positive values discourage tokens by how often they have appeared."),
    ] = UNSET
    presence_penalty: Annotated[
        float | UnsetType | None, Meta(description="-2.0 to 2.0: positive values discourage tokens that have appeared.")
    ] = UNSET
    seed: Annotated[int | UnsetType | None, Meta(description="Random seed for a reproducible answer.")] = UNSET
    top_k: Annotated[int | UnsetType | None, Meta(description="Sample from the most likely K tokens.")] = UNSET
    top_p: Annotated[
        float | UnsetType | None,
        Meta(description="Sample from the tokens that make up this much probability, 0.0 to 1.0."),
    ] = UNSET
