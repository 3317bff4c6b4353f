"""How far estimates were off, each told before its call was measured."""

from collections import deque
from dataclasses import dataclass
from statistics import median

_KEPT = 64


@dataclass(frozen=True, slots=True)
class EstimateError:
    """Of `sample_count` measurements so far the newest 64: the median of |estimated - measured|, in seconds of one call
    and as a part of what was measured.

    `bias` is all that was estimated over all that was measured, less 1: above 0, estimates are too long.
    """

    sample_count: int
    median_s: float
    median_relative: float
    bias: float


class ErrorLog:
    """Collects the errors of one kind of call."""

    def __init__(self) -> None:
        self._sample_count = 0
        self._recent: deque[tuple[float, float]] = deque(maxlen=_KEPT)

    def add(self, estimated_s: float, measured_s: float) -> None:
        """A call that was said to take `estimated_s` took `measured_s`, above 0."""
        self._sample_count += 1
        self._recent.append((estimated_s, measured_s))

    def error(self) -> EstimateError:
        """What has been seen, at least one measurement."""
        return EstimateError(
            sample_count=self._sample_count,
            median_s=median(abs(estimated - measured) for estimated, measured in self._recent),
            median_relative=median(abs(estimated - measured) / measured for estimated, measured in self._recent),
            bias=sum(estimated for estimated, _ in self._recent) / sum(measured for _, measured in self._recent) - 1.0,
        )
