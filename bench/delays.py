"""What a run says of delays: how much shorter one policy makes them, and how well they were foretold."""

from collections.abc import Sequence
from random import Random

from services.router.simulate.percentiles import percentile

RESAMPLES = 2000
# Jobs that come after one another wait in the same queue, so they are drawn again together.
RUN_LENGTH = 10


def at_least(resolution_s: float, delays_s: Sequence[float]) -> list[float]:
    """The delays, none below what can be measured."""
    return [max(resolution_s, delay_s) for delay_s in delays_s]


def p99(delays_s: Sequence[float]) -> float:
    """Their 99th percentile. Raises `ValueError` if there are none."""
    found = percentile(delays_s, 0.99)
    if found is None:
        raise ValueError("no delays")
    return found


def p99_gain(before_s: Sequence[float], after_s: Sequence[float]) -> float:
    """How many times smaller the 99th percentile is."""
    return p99(before_s) / p99(after_s)


def gain_interval(before_s: Sequence[float], after_s: Sequence[float], seed: int) -> tuple[float, float]:
    """95% of `p99_gain`, by bootstrap: both delays of a job are drawn together, with those of the jobs next to it.

    The delays of one job have the same place in both, in the order of arrival (a circular block bootstrap).
    """
    random, count = Random(f"bootstrap {seed}"), len(before_s)
    gains = []
    for _ in range(RESAMPLES):
        starts = (random.randrange(count) for _ in range(-(-count // RUN_LENGTH)))
        places = [(start + step) % count for start in starts for step in range(RUN_LENGTH)][:count]
        gains.append(p99_gain([before_s[place] for place in places], [after_s[place] for place in places]))
    gains.sort()
    return gains[int(0.025 * RESAMPLES)], gains[int(0.975 * RESAMPLES)]


def relative_error(foretold_s: float, measured_s: float) -> float:
    """How far off a prediction is, as a part of what was measured."""
    return abs(foretold_s - measured_s) / measured_s
