"""How long a worker takes for what it is given, against the estimates."""

from dataclasses import dataclass
from math import log

_WEIGHT = 0.2
_TRUSTED_SAMPLES = 5
_BOUND = 16.0
_MOST_AT_ONCE = 2.0
_STEP = log(1.5)


@dataclass(slots=True)
class Pace:
    """`ratio`: seconds observed per second estimated, a moving average; 1 until there are measurements enough.

    A single task counts as twice or half of that at most: the first of a model is estimated by nothing but a prior, and
    says nothing of who happened to run it. `step` is the ratio in steps of half as much again: smaller differences are
    no reason to prefer a worker.
    """

    ratio: float = 1.0
    step: int = 0
    _measured: float = 1.0
    _samples: int = 0

    def observe(self, estimate_s: float, seconds: float) -> None:
        """A task took `seconds`. Without an estimate, or without sense, it teaches nothing."""
        if estimate_s > 0 and 0 < seconds < float("inf"):
            least, most = self._measured / _MOST_AT_ONCE, self._measured * _MOST_AT_ONCE
            ratio = min(_BOUND, most, max(1 / _BOUND, least, seconds / estimate_s))
            self._measured += _WEIGHT * (ratio - self._measured)
            self._samples += 1
            if self._samples >= _TRUSTED_SAMPLES:
                self.ratio, self.step = self._measured, round(log(self._measured) / _STEP)
