"""What a completion adds to the engine's text: the prompt before it, and log probabilities in OpenAI's form.

llama.cpp tells no log probabilities of a prompt. It is made to say the prompt as if it had generated it: from the first
token on, a grammar that allows exactly the next one each time. The probabilities that it tells are those before the
grammar, that is, the model's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.errors import EngineReplied
from lemonade.inference.failure import engine_failure
from lemonade.inference.relay import MAX_ERROR

if TYPE_CHECKING:
    from lemonade.inference.completion import CompletionRequest, Prompt
    from lemonade.residency.lease import Lease

Tree = dict[str, Any]


class CompletionEditor:
    """Makes the choices of one request what it asked for.

    Args:
        texts: the prompts; choice `i` belongs to prompt `i // request.choices`.
    """

    def __init__(self, request: CompletionRequest, texts: Sequence[Prompt]) -> None:
        self._texts = texts
        self._choices = request.choices
        self._alternatives = request.alternatives
        self._echo = request.echo is True
        self._silent = request.max_tokens == 0
        self._said: list[str] = []
        self._tokens: list[list[Tree]] = []
        #: Per choice, how many characters were told already.
        self._offsets: dict[int, int] = {}

    async def prepare(self, lease: Lease) -> None:
        self._offsets.clear()
        self._said, self._tokens = [], []
        if not self._echo:
            return
        for text in self._texts:
            self._said.append(text if isinstance(text, str) else await detokenized(lease, text))
            if self._alternatives is not None:
                self._tokens.append(await scored(lease, text, max(1, self._alternatives)))

    def opening(self, number: int) -> Tree | None:
        if not self._echo:
            return None
        logprobs = self._prompt_logprobs(number)
        if logprobs is None:
            self._offsets[number] = len(self._prompt(number))
        return {"text": self._prompt(number), "logprobs": logprobs, "finish_reason": None}

    def edit(self, number: int, choice: Tree) -> None:
        if self._silent:
            choice["text"] = ""
            choice["logprobs"] = None
        logprobs = choice.get("logprobs")
        if self._alternatives is not None and isinstance(logprobs, dict):
            content = logprobs.get("content")
            choice["logprobs"] = self._told(number, content) if isinstance(content, list) else logprobs

    def whole(self, number: int, choice: Tree) -> None:
        if not self._echo:
            return
        self._offsets.clear()
        before = self._prompt_logprobs(number)
        after = choice.get("logprobs")
        choice["text"] = self._prompt(number) + choice["text"]
        if before is None:
            return
        if isinstance(after, dict):
            shift = len(self._prompt(number))
            after["text_offset"] = [offset + shift for offset in after.get("text_offset", [])]
            before = {key: [*value, *after.get(key, [])] for key, value in before.items()}
        choice["logprobs"] = before

    def count(self, usage: Tree) -> None:
        if self._silent and "completion_tokens" in usage:
            usage |= {"completion_tokens": 0, "total_tokens": usage.get("prompt_tokens", 0)}

    def _prompt(self, number: int) -> str:
        return self._said[number // self._choices]

    def _prompt_logprobs(self, number: int) -> Tree | None:
        if not self._tokens:
            return None
        return self._told(number, self._tokens[number // self._choices])

    def _told(self, number: int, content: list[Tree]) -> Tree:
        """OpenAI's four parallel lists; llama.cpp's own `content` stays beside them."""
        offset = self._offsets.get(number, 0)
        told: Tree = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": [], "content": []}
        for token in content:
            others = token.get("top_logprobs", [])[: self._alternatives]
            chosen = token.get("logprob")
            top = (
                None if chosen is None else {one["token"]: one["logprob"] for one in others} | {token["token"]: chosen}
            )
            told["tokens"].append(token["token"])
            told["token_logprobs"].append(chosen)
            told["top_logprobs"].append(top)
            told["text_offset"].append(offset)
            told["content"].append({**token, "top_logprobs": others})
            offset += len(token["token"])
        self._offsets[number] = offset
        return told


async def detokenized(lease: Lease, tokens: Sequence[int]) -> str:
    """The text of tokens, as the model's engine says."""
    answer = await ask(lease, "/detokenize", {"tokens": tokens})
    return str(answer["content"])


async def scored(lease: Lease, prompt: Prompt, alternatives: int) -> list[Tree]:
    """The tokens of a prompt with their log probabilities, in llama.cpp's form; the first has none.

    Takes about as long as generating that many tokens.

    Raises:
        EngineReplied: 501, the engine cannot be made to say this prompt.
    """
    if isinstance(prompt, str):
        body = {"content": prompt, "add_special": True, "parse_special": True}
        tokens = (await ask(lease, "/tokenize", body))["tokens"]
    else:
        tokens = list(prompt)
    if not tokens:
        return []
    text = await detokenized(lease, tokens[:1])
    first = {"id": tokens[0], "token": text, "bytes": list(text.encode()), "logprob": None, "top_logprobs": []}
    if len(tokens) == 1:
        return [first]
    answer = await ask(
        lease,
        "/v1/completions",
        {
            "prompt": tokens[:1],
            "max_tokens": len(tokens) - 1,
            "logprobs": alternatives,
            "temperature": 0,
            "grammar": "root ::= " + " ".join(f"<[{token}]>" for token in tokens[1:]),
        },
    )
    said: list[Tree] = (answer["choices"][0].get("logprobs") or {}).get("content") or []
    if [token.get("id") for token in said] != tokens[1:]:
        raise EngineReplied(
            "The engine cannot tell the log probabilities of this prompt's tokens; leave out 'echo' or 'logprobs'.",
            status=501,
        )
    return [first, *said]


async def ask(lease: Lease, path: str, body: Tree) -> Any:
    """One small question to the engine that a lease holds.

    Raises:
        RequestError, EngineError: as the engine says.
    """
    reply = await lease.connection.request("POST", path, msgspec.json.encode(body))
    try:
        if reply.status != 200:
            raise engine_failure(reply.status, await reply.read(MAX_ERROR), lease.resident.launch.name)
        return msgspec.json.decode(await reply.read())
    finally:
        reply.close()
