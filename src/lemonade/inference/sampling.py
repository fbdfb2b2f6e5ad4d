"""The arguments that requests for text have in common, and the values that they can have.

A bound is here when a value beyond it means nothing to any engine. Temperatures above OpenAI's 2 do mean something, as
does a negative `top_k` (all tokens), so they pass.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

#: llama.cpp counts in 32 bits, and takes larger numbers modulo that.
MAX_INT = 2**31 - 1

#: Most choices of one prompt, and most alternatives per token. Source: OpenAI's API.
MAX_CHOICES = 128
MAX_ALTERNATIVES = 20

Count = Annotated[int, Meta(ge=1, le=MAX_INT)]
ContextSize = Annotated[int, Meta(ge=-1, le=MAX_INT)]
Choices = Annotated[int, Meta(ge=1, le=MAX_CHOICES)]
Alternatives = Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)]
#: An empty text would end every answer before its first token.
Stop = Annotated[str, Meta(min_length=1)] | list[Annotated[str, Meta(min_length=1)]]
Probability = Annotated[float, Meta(ge=0, le=1)]
#: Source of the bounds: OpenAI's API.
Penalty = Annotated[float, Meta(ge=-2, le=2)]


class Loading(msgspec.Struct, kw_only=True):
    """What any request for text may say of the model that it names."""

    metadata: Annotated[
        dict[str, Any] | UnsetType | None,
        Meta(description="Strings by name. Policies of router models may look at them; nothing else does."),
    ] = UNSET
    route_trace: Annotated[
        bool | UnsetType | None,
        Meta(description="Extension for router models: `true` adds the `trace` to `x_lemonade_route`."),
    ] = UNSET
    ctx_size: Annotated[
        ContextSize | UnsetType | None,
        Meta(description="Extension: context size to load the model with, if this request loads it."),
    ] = UNSET

    @property
    def load_options(self) -> dict[str, Any]:
        """The options that count if this request is what loads the model."""
        return {"ctx_size": self.ctx_size} if isinstance(self.ctx_size, int) else {}


class Choosing(Loading, kw_only=True):
    """How the next token is chosen, as far as every format of requests can say it."""

    temperature: Annotated[
        Annotated[float, Meta(ge=0)] | UnsetType | None, Meta(description="Sampling temperature, from 0.0.")
    ] = UNSET
    repeat_penalty: Annotated[
        Annotated[float, Meta(gt=0)] | UnsetType | None,
        Meta(description="1.0 applies no penalty; higher values discourage repetition."),
    ] = UNSET
    top_k: Annotated[
        Annotated[int, Meta(ge=-MAX_INT, le=MAX_INT)] | UnsetType | None,
        Meta(description="Sample from the most likely K tokens; 0 or less is all of them."),
    ] = UNSET
    top_p: Annotated[
        Probability | UnsetType | None,
        Meta(description="Sample from the tokens that make up this much probability, 0.0 to 1.0."),
    ] = UNSET
    min_p: Annotated[
        Probability | UnsetType | None,
        Meta(description="Extension: the least probability of a token, relative to the likeliest one, 0.0 to 1.0."),
    ] = UNSET


class Sampling(Choosing, kw_only=True):
    """The same with what chats and completions have."""

    frequency_penalty: Annotated[
        Penalty | UnsetType | None,
        Meta(description="-2.0 to 2.0: positive values discourage tokens by how often they have appeared."),
    ] = UNSET
    presence_penalty: Annotated[
        Penalty | UnsetType | None,
        Meta(description="-2.0 to 2.0: positive values discourage tokens that have appeared."),
    ] = UNSET
    seed: Annotated[
        Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | UnsetType | None,
        Meta(description="Random seed for a reproducible answer; -1 is a new one each time."),
    ] = UNSET
