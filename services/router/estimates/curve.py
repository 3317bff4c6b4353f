"""What calls of one kind take by their size, learnt from measurements around a prior."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from math import exp, inf, log

from services.router.estimates.quadratic import Point, Quadratic, fit

_KEPT_MEASUREMENTS = 9
_KEPT_SIZES = 8
_MAX_WEIGHT = 100
# The prior speaks for sizes that were not measured, as far around those that were.
_ANCHOR_SPREAD = 8.0
_PRIOR_WEIGHT = 1.0

PointState = tuple[int, float, list[tuple[float, float]]]
"""A size, the weight of all its measurements, and the last ones: seconds, weight."""


@dataclass(slots=True)
class _Measured:
    """The measurements of one size: their median is no prey to outliers, and the last ones alone make it up."""

    weight: float = 0.0
    recent: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=_KEPT_MEASUREMENTS))

    @property
    def seconds(self) -> float:
        """The weighted median."""
        ordered, half = sorted(self.recent), sum(weight for _, weight in self.recent) / 2
        for seconds, weight in ordered:
            half -= weight
            if half <= 0.0:
                return seconds
        return ordered[-1][0]

    def add(self, seconds: float, weight: float) -> None:
        # Rounded here, so that what is saved is all there is.
        self.weight = _rounded(min(self.weight + weight, _MAX_WEIGHT))
        self.recent.append((_rounded(seconds), _rounded(weight)))


class Curve:
    """Seconds of one call: `a + b·size + c·size²`, a weighted least-squares fit.

    Each measured size is a point, as heavy as it was often measured. The prior stands beside them as measurements that
    were never made and count as one in all: of the level at first, and for ever of the shape, where nothing was
    measured. The sizes measured last are kept.
    """

    def __init__(self, prior: Quadratic) -> None:
        self._prior = prior
        self._measured: dict[int, _Measured] = {}
        self._fitted: Quadratic | None = None

    @property
    def is_learnt(self) -> bool:
        """Whether anything was measured."""
        return bool(self._measured)

    @property
    def law(self) -> Quadratic:
        """The law as it is known by now."""
        if self._fitted is None:
            self._fitted = self._fit() if self._measured else self._prior
        return self._fitted

    def set_prior(self, prior: Quadratic) -> None:
        """Believe another prior; what was measured stays."""
        self._prior = prior
        self._fitted = None

    def at(self, size: int) -> float:
        """Seconds of one call, 0 or more."""
        return self.law.at(size)

    def observe(self, size: int, seconds: float, weight: float = 1.0) -> None:
        """Learn from a measured call, or from the mean of equal ones. What is no duration teaches nothing.

        `weight` says how good a measurement it is, above 0 and at most 1.
        """
        if not 0.0 < seconds < inf or size < 0:
            return
        measured = self._measured.pop(size, None) or _Measured()
        measured.add(seconds, weight)
        self._put(size, measured)

    def state(self) -> list[PointState]:
        """What was measured, as plain values of four digits."""
        return [(size, each.weight, list(each.recent)) for size, each in self._measured.items()]

    def restore(self, state: Iterable[PointState]) -> None:
        """Take up what was measured before. Raises ValueError where that makes no sense."""
        for size, weight, recent in state:
            measured = _Measured(min(weight, _MAX_WEIGHT))
            measured.recent.extend((float(seconds), float(each)) for seconds, each in recent)
            if size < 0 or not weight > 0.0 or not measured.recent or not all(map(_is_sound, measured.recent)):
                raise ValueError(f"not measurements: {size}, {weight}, {recent}")
            self._put(int(size), measured)

    def _put(self, size: int, measured: _Measured) -> None:
        self._measured[size] = measured
        while len(self._measured) > _KEPT_SIZES:
            del self._measured[next(iter(self._measured))]
        self._fitted = None

    def _fit(self) -> Quadratic:
        points = [Point(size, each.seconds, each.weight) for size, each in self._measured.items()]
        return fit([*points, *self._anchors(points)])

    def _anchors(self, points: list[Point]) -> list[Point]:
        """The prior around the points, on the level that they show."""
        ratios = [(point.weight, log(point.y / self._prior.at(point.x))) for point in points if self._prior.at(point.x)]
        weight = sum(weight for weight, _ in ratios)
        if not weight:
            return []
        level = exp(sum(weight * ratio for weight, ratio in ratios) / (weight + _PRIOR_WEIGHT))
        sizes = [point.x for point in points if point.x > 0.0]
        middle = exp(sum(map(log, sizes)) / len(sizes)) if sizes else 0.0
        around = [middle / _ANCHOR_SPREAD, middle, middle * _ANCHOR_SPREAD] if middle else [0.0]
        values = [(size, level * self._prior.at(size)) for size in around]
        return [Point(size, value, _PRIOR_WEIGHT / len(values)) for size, value in values if value > 0.0]


def _is_sound(measurement: tuple[float, float]) -> bool:
    seconds, weight = measurement
    return 0.0 < seconds < inf and 0.0 < weight <= 1.0


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")
