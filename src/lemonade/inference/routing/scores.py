"""Asks the models of a policy's classifiers."""

from __future__ import annotations

import asyncio
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Collection, Sequence
from operator import mul
from typing import TYPE_CHECKING, Any

import msgspec

from lemonade.catalog.labels import is_zero_shot
from lemonade.catalog.policy.classifiers import Classifier
from lemonade.errors import ContextLengthExceeded, InvalidArgument, LemonadeError, UnsupportedOperation
from lemonade.inference import classification
from lemonade.inference.cloud import forward_cloud
from lemonade.inference.cloud_request import CloudRequest
from lemonade.inference.relay import Collected, EngineRequest, forward
from lemonade.inference.routing import prompts
from lemonade.inference.routing.evaluation import Scores

if TYPE_CHECKING:
    from lemonade.engines.cloud.providers import Providers
    from lemonade.model import Model
    from lemonade.residency.manager import Residency
    from lemonade.residency.policy import ResidencyClass

logger = logging.getLogger("lemonade.routing")

#: Seconds for one classifier, the start of its model included.
TIMEOUT = 120.0
#: Longest text in characters that a model is given; and how often it is halved when it is still too long for it.
MAX_TEXT = 100_000
HALVINGS = 8
#: Sets of reference phrases whose vectors are kept.
MAX_REFERENCES = 64

Vector = Sequence[float]


class _Embedding(msgspec.Struct):
    embedding: list[float]
    index: int


class _Embeddings(msgspec.Struct):
    data: list[_Embedding]


class _Labels(msgspec.Struct):
    labels: dict[str, float]


class Models:
    """The models that classifiers ask, for all policies. The vectors of reference phrases are made once."""

    def __init__(self, residency: Residency, providers: Providers) -> None:
        self._residency = residency
        self._providers = providers
        self._references: OrderedDict[tuple[str, tuple[str, ...]], list[Vector]] = OrderedDict()

    def scorer(self, find: Callable[[str], Model], candidates: Collection[str]) -> Scorer:
        """Who asks the models of one policy.

        Args:
            find: the model that a name in the policy means; raises ModelError.
            candidates: canonical names of the models that answer requests anyway.
        """
        return Scorer(self, find, candidates)

    async def settle(self, name: str) -> None:
        """Waits until the models of a provider are known, right after a start."""
        await self._providers.settle(name)

    async def ask(self, model: Model, request: EngineRequest, candidates: Collection[str]) -> bytes:
        """The engine's whole answer."""
        answer = Collected()
        await forward(self._residency, model, request, answer, None, residency_class=self._class(model, candidates))
        return answer.body

    async def ask_provider(self, model: Model, body: bytes) -> bytes:
        """The whole answer of a cloud model to a chat."""
        answer = Collected()
        request = CloudRequest(path="chat/completions", body=body, asked=model.name)
        await forward_cloud(self._providers, model, request, answer, None)
        return answer.body

    def _class(self, model: Model, candidates: Collection[str]) -> ResidencyClass:
        """A model that is here for its own sake, or may be at any moment, is no mere helper."""
        if model.canonical in candidates:
            return "standard"
        running = (one for one in self._residency.residents() if one.key == model.canonical)
        return "standard" if any(one.residency_class == "standard" for one in running) else "routing_helper"

    async def references(
        self, model: Model, phrases: tuple[str, ...], embed: Callable[[Sequence[str]], Awaitable[list[Vector]]]
    ) -> list[Vector]:
        key = (f"{model.canonical} {model.checkpoint}", phrases)
        if key not in self._references:
            self._references[key] = await embed(phrases)
            if len(self._references) > MAX_REFERENCES:
                self._references.popitem(last=False)
        self._references.move_to_end(key)
        return self._references[key]


class Scorer:
    """Asks for one policy. Whatever goes wrong is a failure in what it returns."""

    def __init__(self, models: Models, find: Callable[[str], Model], candidates: Collection[str]) -> None:
        self._models = models
        self._find = find
        self._candidates = candidates

    async def scores(self, classifier: Classifier, text: str) -> Scores:
        try:
            async with asyncio.timeout(TIMEOUT):
                return await self._shortened(classifier, text[:MAX_TEXT])
        except TimeoutError:
            reason = f"it gave no answer within {TIMEOUT:g} seconds"
        except LemonadeError as error:
            reason = error.message
        except ValueError as error:
            reason = f"its answer cannot be used: {error}"
        message = f"'{classifier.model}' could not be asked: {reason}"
        logger.warning("The classifier '%s' counts as %s: %s", classifier.id, classifier.on_error, message)
        return Scores(failure=message)

    async def _shortened(self, classifier: Classifier, text: str) -> Scores:
        """Asks with less and less of the text until the model can take it: its beginning says more than nothing."""
        for _ in range(HALVINGS):
            try:
                return await self._ask(classifier, text)
            except ContextLengthExceeded:
                text = text[: len(text) // 2]
        return await self._ask(classifier, text)

    async def _ask(self, classifier: Classifier, text: str) -> Scores:
        await self._models.settle(classifier.model)
        model = self._find(classifier.model)
        if classifier.type == "semantic_similarity":
            return await self._similarity(classifier, model, text)
        if classifier.type == "llm":
            return prompts.read_choice(
                await self._chat(model, prompts.choice(classifier, text, model.name)), classifier
            )
        if classifier.type == "classifier" and model.mode == "chat":
            said = await self._chat(model, prompts.scoring(classifier, text, model.name))
            return prompts.read_scores(said, classifier)
        labels = classifier.labels if classifier.type == "zero_shot" or is_zero_shot(model) else ()
        classification.check_model(model, labels)
        request = classification.engine_request(model, text, labels, asked=model.name, prompt=classifier.prompt)
        answer = await self._models.ask(model, request, self._candidates)
        return Scores(msgspec.json.decode(answer, type=_Labels).labels)

    async def _chat(self, model: Model, body: dict[str, Any]) -> str:
        if model.mode != "chat" or model.is_collection:
            raise UnsupportedOperation(f"'{model.name}' is no LLM.", param="model")
        if model.recipe == "cloud":
            raw = msgspec.json.encode(prompts.for_provider(body))
            return prompts.content(await self._models.ask_provider(model, raw))
        request = EngineRequest(
            path="/v1/chat/completions", body=msgspec.json.encode(body), asked=model.name, alias=model.name
        )
        return prompts.content(await self._models.ask(model, request, self._candidates))

    async def _similarity(self, classifier: Classifier, model: Model, text: str) -> Scores:
        if model.mode != "embeddings":
            raise UnsupportedOperation(f"'{model.name}' makes no embeddings.", param="model")

        async def embed(texts: Sequence[str]) -> list[Vector]:
            return await self._embed(model, texts)

        phrases = tuple(phrase for said in classifier.reference_phrases.values() for phrase in said)
        references = iter(await self._models.references(model, phrases, embed))
        # Nothing is like nothing.
        vector = (await embed([text]))[0] if text.strip() else ()
        return Scores(
            {
                concept: max(min(1.0, max(0.0, sum(map(mul, vector, next(references))))) for _ in said)
                for concept, said in classifier.reference_phrases.items()
            }
        )

    async def _embed(self, model: Model, texts: Sequence[str]) -> list[Vector]:
        """Vectors of length 1."""
        body = msgspec.json.encode({"model": model.name, "input": list(texts)})
        request = EngineRequest(path="/v1/embeddings", body=body, asked=model.name, alias=model.name)
        answer = msgspec.json.decode(await self._models.ask(model, request, self._candidates), type=_Embeddings)
        vectors = [one.embedding for one in sorted(answer.data, key=lambda one: one.index)]
        if len(vectors) != len(texts):
            raise InvalidArgument(f"'{model.name}' made {len(vectors)} vectors of {len(texts)} texts.", param="model")
        return [_unit(vector) for vector in vectors]


def _unit(vector: Vector) -> Vector:
    length = math.sqrt(sum(map(mul, vector, vector)))
    return [number / length for number in vector] if length else vector
