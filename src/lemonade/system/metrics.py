"""What the daemon counts: requests and tokens, per model and in all, since it was started."""

from __future__ import annotations

from dataclasses import dataclass, field

from lemonade.model import Model


@dataclass(frozen=True, slots=True)
class Measurement:
    """What an engine told of one answer.

    Attributes:
        input_tokens: of the prompt, those that were computed anew.
        prompt_tokens: of the prompt, all.
        cache_tokens: of the prompt, those that the engine remembered; None when it does not say.
        time_to_first_token: seconds, 0 when unknown.
        tokens_per_second: of the output, 0 when unknown.
    """

    input_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cache_tokens: int | None = None
    time_to_first_token: float = 0.0
    tokens_per_second: float = 0.0


NOTHING = Measurement()


@dataclass(slots=True)
class Totals:
    """Sums over all requests."""

    requests: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    prompt_tokens: int = 0
    cache_tokens: int = 0

    def add(self, one: Measurement) -> None:
        self.requests += 1
        self.input_tokens += one.input_tokens
        self.output_tokens += one.output_tokens
        self.prompt_tokens += one.prompt_tokens
        self.cache_tokens += one.cache_tokens or 0


@dataclass(slots=True)
class ModelMetrics:
    """One model that was asked something; `last` is its newest answer."""

    model: Model
    device: str
    totals: Totals = field(default_factory=Totals)
    last: Measurement = NOTHING


class Metrics:
    """All counters of one daemon.

    Attributes:
        last: the newest answer that generated text, of any model.
    """

    def __init__(self) -> None:
        self.totals = Totals()
        self.last = NOTHING
        self.routing_decisions = 0
        self.routing_switches = 0
        self._models: dict[str, ModelMetrics] = {}

    def answered(self, model: Model, device: str, measurement: Measurement | None) -> None:
        """Counts a request that was answered. Without a measurement it is a request all the same."""
        entry = self._of(model, device)
        measurement = measurement or NOTHING
        self.totals.add(measurement)
        entry.totals.add(measurement)
        if measurement is not NOTHING:
            entry.last = measurement
            if measurement.output_tokens:
                self.last = measurement

    def failed(self, model: Model, device: str) -> None:
        """Counts a request that the engine did not answer as it should."""
        self.totals.requests += 1
        self.totals.failures += 1
        totals = self._of(model, device).totals
        totals.requests += 1
        totals.failures += 1

    def models(self) -> list[ModelMetrics]:
        """Every model that was asked, in the order of their names."""
        return [self._models[key] for key in sorted(self._models)]

    def _of(self, model: Model, device: str) -> ModelMetrics:
        entry = self._models.get(model.canonical)
        if entry is None:
            entry = self._models[model.canonical] = ModelMetrics(model, device)
        entry.device = device
        return entry
