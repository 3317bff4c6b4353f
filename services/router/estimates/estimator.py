"""Estimates: each model's price law, corrected by what its calls took, on each kind of device."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from services.router.core.job import Stage, StageSeconds
from services.router.estimates.curve import Curve
from services.router.estimates.estimate_error import ErrorLog, EstimateError
from services.router.estimates.passes import Passes
from services.router.estimates.price import H100_TFLOPS, JobShape, ModelCost
from services.router.estimates.quadratic import Quadratic

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")

STATE_VERSION = 1
_MAX_CURVES = 512
_MAX_DEVICES = 256
_FEW_FORWARDS = 8

CallKind = tuple[str, Stage, str]
"""Model, stage and kind of device."""

Devices = Mapping[str, int]
"""How many workers run on each kind of device."""

NO_DEVICES: Devices = {"": 1}
"""Stands for workers of which nothing is known."""


@dataclass(frozen=True, slots=True)
class Serving:
    """Who serves a model: by stage the devices of its workers. Of `cold` stages no worker has it in memory."""

    devices: Mapping[Stage, Devices] = field(default_factory=dict)
    cold: frozenset[Stage] = frozenset()


@dataclass(frozen=True, slots=True)
class Estimate:
    """The price of a job: seconds by stage, forwards over all outputs, tokens of one forward."""

    seconds: StageSeconds
    forward_count: int
    token_count: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A measurement: `calls` calls of one `size` took `seconds` of device time together.

    A call is the encode of a job, a forward of the denoising network over `batch` samples, the decode of an output;
    `ModelCost.size` says what its size is.
    """

    model: str
    stage: Stage
    device: str
    size: int
    seconds: float
    calls: int = 1
    batch: int = 1


class _Kind(NamedTuple):
    """Calls whose times follow one curve."""

    model: str
    stage: Stage
    device: str
    batch: int


class CurveEstimator:
    """A curve for each kind of call: model, stage, device and batch. The `_MAX_CURVES` measured last are kept.

    What was learnt of a model is kept while its cost is not known, or becomes another.
    """

    def __init__(self, costs: Mapping[str, ModelCost] | None = None) -> None:
        self._costs = dict(costs or {})
        self._device_tflops: dict[str, float] = {}
        self._curves: dict[_Kind, Curve] = {}
        self._loads: dict[_Kind, Curve] = {}
        self._errors: dict[CallKind, ErrorLog] = {}
        self.passes = Passes()

    def set_cost(self, model: str, cost: ModelCost) -> None:
        """Add a model, or replace its prior. On another token grid, what its forwards took says nothing any more."""
        known = self._costs.get(model)
        if known == cost:
            return
        self._costs[model] = cost
        if known is not None and known.grid != cost.grid:
            for kind in [kind for kind in self._curves if kind.model == model and kind.stage is Stage.DENOISE]:
                del self._curves[kind]
        self._renew(lambda kind: kind.model == model)

    def size(self, shape: JobShape, stage: Stage) -> int:
        """What the time of such a call goes by. Raises `KeyError` for an unknown model."""
        return self._costs[shape.model].size(shape, stage)

    def set_speed(self, device: str, tflops: float) -> None:
        """What a kind of device does, for models whose cost does not say. Those told of last are kept."""
        if tflops > 0.0 and self._device_tflops.get(device) != tflops:
            self._device_tflops.pop(device, None)
            self._device_tflops[device] = tflops
            while len(self._device_tflops) > _MAX_DEVICES:
                del self._device_tflops[next(iter(self._device_tflops))]
            self._renew(lambda kind: kind.device == device)

    def estimate(self, shape: JobShape, serving: Serving) -> Estimate:
        """The price: of each stage, what a job takes one worker on the average, if all these share the work.

        Where there is no worker, what the prior says. Raises `KeyError` for an unknown model.
        """
        seconds = []
        for stage in Stage:
            devices = serving.devices.get(stage) or NO_DEVICES
            loading_s = self.load_s(shape.model, stage, devices) if stage in serving.cold else 0.0
            seconds.append(loading_s + self.stage_s(shape, stage, devices))
        forwards = shape.step_count * shape.output_count * self.passes.of(shape).per_step
        return Estimate(StageSeconds(*seconds), max(1, round(forwards)), self._costs[shape.model].tokens(shape))

    def stage_s(self, shape: JobShape, stage: Stage, devices: Devices) -> float:
        """Seconds of one stage: the harmonic mean over the workers, each as fast as its device.

        So that a backlog of so many such seconds, over so many workers, is gone when it says.
        """
        each = [(count, self._device_s(shape, stage, device)) for device, count in devices.items()]
        if any(seconds <= 0.0 for _, seconds in each):
            return 0.0
        return sum(count for count, _ in each) / sum(count / seconds for count, seconds in each)

    def load_s(self, model: str, stage: Stage, devices: Devices) -> float:
        """Seconds to load a stage of a model, the mean over the workers. Raises `KeyError` for an unknown model."""
        each = [(count, self._load(_Kind(model, stage, device, 1)).at(0)) for device, count in devices.items()]
        return sum(count * seconds for count, seconds in each) / max(1, sum(count for count, _ in each))

    def observe(self, sample: Sample) -> None:
        """Learn from measured calls; what makes no sense teaches nothing. Raises `KeyError` for an unknown model."""
        if sample.calls < 1 or sample.batch < 1 or not sample.seconds > 0.0:
            return
        kind = _Kind(sample.model, sample.stage, sample.device, sample.batch)
        curve = self._curves.pop(kind, None) or Curve(self._prior(kind))
        seconds = sample.seconds / sample.calls
        place = (sample.model, sample.stage, sample.device)
        errors = self._errors.pop(place, None) or ErrorLog()
        errors.add(curve.at(sample.size), seconds)
        _keep(self._errors, place, errors)
        curve.observe(sample.size, seconds, _weight(sample))
        _keep(self._curves, kind, curve)

    def observe_load(self, model: str, stage: Stage, device: str, seconds: float) -> None:
        """Learn how long it took to load a stage of a model. Raises `KeyError` for an unknown model."""
        kind = _Kind(model, stage, device, 1)
        curve = self._loads.pop(kind, None) or Curve(Quadratic(self._costs[model].load_s))
        curve.observe(0, seconds)
        _keep(self._loads, kind, curve)

    def errors(self) -> dict[CallKind, EstimateError]:
        """How far off what was foretold of the last calls has been, where any was measured since this began."""
        return {place: errors.error() for place, errors in self._errors.items()}

    def state(self) -> dict[str, Any]:
        """What was learnt, as plain values for JSON."""
        return {
            "version": STATE_VERSION,
            "curves": [[*_names(kind), curve.state()] for kind, curve in self._curves.items()],
            "loads": [[*_names(kind), curve.state()] for kind, curve in self._loads.items()],
            "passes": self.passes.state(),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what an earlier estimator had learnt. Raises `ValueError` if that cannot be read."""
        if state.get("version") != STATE_VERSION:
            raise ValueError(f"estimates of version {state.get('version')!r}; this router knows {STATE_VERSION}")
        try:
            curves = dict(_read(state["curves"]))
            loads = dict(_read(state["loads"]))
            self.passes.restore(state["passes"])
        except (KeyError, TypeError) as error:
            raise ValueError(f"estimates that cannot be read: {error!r}") from error
        self._curves, self._loads = curves, loads
        self._renew(lambda _: True)

    def _device_s(self, shape: JobShape, stage: Stage, device: str) -> float:
        cost = self._costs[shape.model]
        size = cost.size(shape, stage)
        match stage:
            case Stage.ENCODE:
                return self._curve(_Kind(shape.model, stage, device, 1)).at(size)
            case Stage.DENOISE:
                passes = self.passes.of(shape)
                forward_s = self._curve(_Kind(shape.model, stage, device, passes.batch)).at(size)
                return shape.step_count * shape.output_count * passes.per_step * forward_s
            case Stage.DECODE:
                return shape.output_count * self._curve(_Kind(shape.model, stage, device, 1)).at(size)

    def _curve(self, kind: _Kind) -> Curve:
        return self._curves.get(kind) or Curve(self._prior(kind))

    def _load(self, kind: _Kind) -> Curve:
        return self._loads.get(kind) or Curve(Quadratic(self._costs[kind.model].load_s))

    def _prior(self, kind: _Kind) -> Quadratic:
        """Of a batch: as many times what one sample takes, as far as that is known."""
        cost = self._costs[kind.model]
        alone = self._curves.get(kind._replace(batch=1))
        if kind.batch > 1 and alone is not None and alone.is_learnt:
            return alone.law.scaled(kind.batch)
        return cost.law(kind.stage, self._device_tflops.get(kind.device, H100_TFLOPS)).scaled(kind.batch)

    def _renew(self, is_changed: Callable[[_Kind], bool]) -> None:
        """Give the curves of these kinds, of which the cost is known, their priors anew."""
        for kind in sorted(
            (kind for kind in self._curves if kind.model in self._costs and is_changed(kind)), key=_order
        ):
            self._curves[kind].set_prior(self._prior(kind))
        for kind in (kind for kind in self._loads if kind.model in self._costs and is_changed(kind)):
            self._loads[kind].set_prior(Quadratic(self._costs[kind.model].load_s))


def _weight(sample: Sample) -> float:
    """In a few forwards, what a denoise begins and ends with tells more than they do."""
    return sample.calls / (sample.calls + _FEW_FORWARDS) if sample.stage is Stage.DENOISE else 1.0


def _order(kind: _Kind) -> int:
    return kind.batch


def _keep(learnt: dict[_Key, _Value], kind: _Key, value: _Value) -> None:
    learnt[kind] = value
    while len(learnt) > _MAX_CURVES:
        del learnt[next(iter(learnt))]


def _names(kind: _Kind) -> list[str | int]:
    return [kind.model, kind.stage.value, kind.device, kind.batch]


def _read(entries: list[list[Any]]) -> Iterator[tuple[_Kind, Curve]]:
    """Curves from their state, as yet without their priors."""
    for model, stage, device, batch, points in entries[-_MAX_CURVES:]:
        curve = Curve(Quadratic())
        curve.restore(points)
        yield _Kind(str(model), Stage(stage), str(device), int(batch)), curve
