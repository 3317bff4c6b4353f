"""Estimates: the prior of a model's price, times what measurements have taught."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, log
from typing import Protocol

from services.router.core.job import Stage, StageSeconds
from services.router.core.price import JobShape, ModelCost

_MAX_LOG_RATIO = log(1e4)


@dataclass(frozen=True, slots=True)
class Estimate:
    """The price of a job: seconds by stage, forwards over all outputs, tokens of one forward."""

    seconds: StageSeconds
    forward_count: int
    token_count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A measured stage: `seconds` of device time for all of `shape` (of a decode: with the outputs that it decoded)."""

    shape: JobShape
    stage: Stage
    seconds: float


class Estimator(Protocol):
    """Prices jobs and learns from what they took. No I/O."""

    def estimate(self, shape: JobShape) -> Estimate:
        """The price. Raises `KeyError` for an unknown model."""

    def observe(self, sample: Sample) -> None:
        """Learn from a measured stage. Raises `KeyError` for an unknown model."""


@dataclass(slots=True)
class Scale:
    """How measured seconds compare with the prior's: the geometric mean of their ratio.

    The prior counts as `prior_weight` measurements of ratio 1. At most `history` measurements count, later ones more.
    """

    prior_weight: float
    history: int
    log_sum: float = 0.0
    count: int = 0

    @property
    def factor(self) -> float:
        """What to multiply the prior with."""
        return exp(self.log_sum / (self.prior_weight + self.count))

    def add(self, ratio: float) -> None:
        """Take in measured / prior; a single one moves the mean no further than a factor of 10⁴ would."""
        if self.count == self.history:
            self.log_sum *= 1.0 - 1.0 / self.history
        else:
            self.count += 1
        self.log_sum += max(-_MAX_LOG_RATIO, min(_MAX_LOG_RATIO, log(ratio)))


class ScaledEstimator:
    """The prior, with one learnt scale a model and stage. Holds as many scales as there are models, times three."""

    def __init__(self, costs: Mapping[str, ModelCost], *, prior_weight: float = 1.0, history: int = 64) -> None:
        self._costs = dict(costs)
        self._prior_weight = prior_weight
        self._history = history
        self._scales: dict[tuple[str, Stage], Scale] = {}

    def set_cost(self, model: str, cost: ModelCost) -> None:
        """Add a model, or replace its prior and forget what was learnt against the old one."""
        if self._costs.get(model) != cost:
            self._costs[model] = cost
            for stage in Stage:
                self._scales.pop((model, stage), None)

    def estimate(self, shape: JobShape) -> Estimate:
        """The price. Raises `KeyError` for an unknown model."""
        seconds = [self._prior_s(shape, stage) * self._scale(shape.model, stage).factor for stage in Stage]
        return Estimate(StageSeconds(*seconds), shape.forward_count, self._costs[shape.model].tokens(shape))

    def observe(self, sample: Sample) -> None:
        """Learn from a measured stage. One without time, or without a prior, teaches nothing.

        Raises `KeyError` for an unknown model.
        """
        prior_s = self._prior_s(sample.shape, sample.stage)
        if prior_s > 0 and 0 < sample.seconds < inf:
            scale = self._scale(sample.shape.model, sample.stage)
            scale.add(sample.seconds / prior_s)
            self._scales[sample.shape.model, sample.stage] = scale

    def state(self) -> dict[str, dict[str, tuple[float, int]]]:
        """What was learnt, as plain values by model and stage: the sum of log ratios and their number."""
        learnt: dict[str, dict[str, tuple[float, int]]] = {}
        for (model, stage), scale in self._scales.items():
            learnt.setdefault(model, {})[stage.value] = (scale.log_sum, scale.count)
        return learnt

    def restore(self, state: Mapping[str, Mapping[str, tuple[float, int]]]) -> None:
        """Take up what an earlier estimator had learnt; models that are not known are left out."""
        for model, stages in state.items():
            if model in self._costs:
                for stage, (log_sum, count) in stages.items():
                    scale = Scale(self._prior_weight, self._history, log_sum, min(count, self._history))
                    self._scales[model, Stage(stage)] = scale

    def _prior_s(self, shape: JobShape, stage: Stage) -> float:
        cost = self._costs[shape.model]
        match stage:
            case Stage.ENCODE:
                return cost.encode_s
            case Stage.DENOISE:
                return cost.denoise_s(shape)
            case Stage.DECODE:
                return cost.decode_s(shape)

    def _scale(self, model: str, stage: Stage) -> Scale:
        return self._scales.get((model, stage)) or Scale(self._prior_weight, self._history)
