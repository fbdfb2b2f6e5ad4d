"""A text completion: what it may hold, and what llama.cpp is asked for it."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from lemonade.errors import InvalidArgument, UnsupportedOperation
from lemonade.inference.choices import copies
from lemonade.inference.measurement import NO_FIGURES, measured
from lemonade.inference.sampling import MAX_INT, Choices, Sampling, Stop
from lemonade.model import Model
from lemonade.system.metrics import Measurement

Prompt = str | list[int]


class CompletionRequest(Sampling):
    """Arguments that are not listed go to the engine untouched; `null` counts as absent."""

    prompt: Annotated[
        str | list[str | int | list[int]],
        Meta(description="The text to continue: a string or token ids, or an array of either for several prompts."),
    ]
    model: Annotated[str, Meta(description="The model to run; downloaded and loaded on first use.", min_length=1)]
    stream: Annotated[
        bool | UnsetType | None, Meta(description="`true` sends the text as server-sent events while it is made.")
    ] = UNSET
    stream_options: Annotated[dict[str, Any] | UnsetType | None, Meta(description="As in chats.")] = UNSET
    stop: Annotated[
        Stop | UnsetType | None,
        Meta(description="Text that ends the completion, as a string or an array; it is left out."),
    ] = UNSET
    echo: Annotated[
        bool | UnsetType | None,
        Meta(description="`true` puts the prompt before the text; with `logprobs`, its tokens before the others."),
    ] = UNSET
    logprobs: Annotated[
        bool | Annotated[int, Meta(ge=0, le=MAX_INT)] | UnsetType | None,
        Meta(description="The log probability of each token: `true`, or how many alternatives to tell with it."),
    ] = UNSET
    n: Annotated[
        Choices | UnsetType | None,
        Meta(description="How many completions to make of each prompt."),
    ] = UNSET
    suffix: Annotated[
        str | UnsetType | None, Meta(description="Text after the completion; goes to the engine, which may ignore it.")
    ] = UNSET
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_INT)] | UnsetType | None,
        Meta(description="Most tokens to generate; 0 is for `echo`."),
    ] = UNSET

    @property
    def choices(self) -> int:
        """How many completions are wanted of each prompt."""
        return self.n if isinstance(self.n, int) else 1

    @property
    def alternatives(self) -> int | None:
        """How many alternatives are told per token; None if no log probabilities are wanted."""
        if isinstance(self.logprobs, bool):
            return 1 if self.logprobs else None
        return self.logprobs if isinstance(self.logprobs, int) else None

    @property
    def needs_editing(self) -> bool:
        """Whether the engine's answer is not yet what the client asked for."""
        return self.echo is True or self.alternatives is not None or self.max_tokens == 0


def check_model(model: Model) -> None:
    """Raises UnsupportedOperation unless `model` is an LLM; asked before it is loaded."""
    if model.mode != "chat" and not model.is_collection:
        error = UnsupportedOperation(
            "This model does not support completion. Only LLM models support this endpoint.", param="model"
        )
        error.type = "invalid_request_error"
        raise error


def prompts(request: CompletionRequest) -> list[Prompt]:
    """The prompts, each a text or the ids of its tokens.

    Raises:
        InvalidArgument: there is none, or ids of tokens stand beside texts.
    """
    given = request.prompt
    if isinstance(given, str):
        return [given]
    if not given:
        raise InvalidArgument("'prompt' must not be an empty array.", param="prompt")
    if all(isinstance(item, int) for item in given):
        return [[item for item in given if isinstance(item, int)]]
    made: list[Prompt] = []
    for number, item in enumerate(given):
        if isinstance(item, int):
            raise InvalidArgument(
                f"'prompt[{number}]' is the id of a token beside whole prompts; put the ids of one prompt into an "
                "array of their own.",
                param=f"prompt[{number}]",
            )
        if item == []:
            raise InvalidArgument(f"'prompt[{number}]' must not be an empty array.", param=f"prompt[{number}]")
        made.append(item)
    return made


def shape(request: CompletionRequest, raw: bytes, texts: list[Prompt]) -> list[bytes]:
    """One body for llama.cpp per choice: `raw` itself when nothing has to change."""
    count = request.choices
    absent = any(getattr(request, name) is None for name in request.__struct_fields__)
    if len(texts) == 1 and count == 1 and not absent and not request.needs_editing and request.n is UNSET:
        return [raw]
    body = {key: value for key, value in msgspec.json.decode(raw).items() if value is not None}
    body.pop("echo", None)
    if request.alternatives is not None:
        # llama.cpp takes 0 for no log probabilities at all.
        body["logprobs"] = max(1, request.alternatives)
    if request.max_tokens == 0:
        # It generates at least one; the editor drops it.
        body["max_tokens"] = 1
    return [msgspec.json.encode({**one, "prompt": text}) for text in texts for one in copies(body, count)]


class _Choice(msgspec.Struct):
    text: str


class _Reply(msgspec.Struct):
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    model: str = ""
    usage: msgspec.Raw = NO_FIGURES
    timings: msgspec.Raw = NO_FIGURES


_reply_decoder = msgspec.json.Decoder(_Reply)


def check_reply(body: bytes, asked: str) -> tuple[bytes, Measurement | None]:
    """The engine's whole answer with the model's name as it was asked for, and its figures.

    Raises:
        msgspec.MsgspecError: the answer is no text completion.
    """
    reply = _reply_decoder.decode(body)
    figures = measured(reply.usage, reply.timings)
    if reply.model == asked:
        return body, figures
    return msgspec.json.encode({**msgspec.json.decode(body), "model": asked}), figures
