"""Whether a figure stays level. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import median

HOUR_S = 3600.0


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What may be added in an hour: so much, or such a share of the usual value, whichever is more."""

    per_hour: float
    share: float = 0.0


@dataclass(frozen=True, slots=True)
class Trend:
    """`level`: the median. `per_hour`: the slope by Theil and Sen, the median of the slopes between all pairs.

    It is flat while the slope is at most `tolerance`; what falls does not leak.
    """

    level: float
    per_hour: float
    tolerance: float

    @property
    def flat(self) -> bool:
        return self.per_hour <= self.tolerance


def trend(points: Sequence[tuple[float, float]], tolerance: Tolerance) -> Trend:
    """The trend of two samples or more, each a time in seconds and a value."""
    slopes = [(later[1] - earlier[1]) / (later[0] - earlier[0]) for earlier, later in combinations(points, 2)]
    level = median(value for _, value in points)
    return Trend(level, median(slopes) * HOUR_S, max(tolerance.per_hour, tolerance.share * level))
