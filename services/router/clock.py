"""The time that the scheduler goes by."""

import time
from collections.abc import Callable

# Of a second, in each second for which the machine's clock has been set back.
_CATCHING_UP = 0.5


class Clock:
    """Unix seconds that always go on. Where the machine's clock is behind they go half as fast, until it is there.

    Whoever waits for a time, say a task that is held back for some seconds, would else wait for all of that as well.
    """

    def __init__(self, wall: Callable[[], float] = time.time, steady: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._steady = steady
        self._looked_s = steady()
        self._now_s = wall()

    def now_s(self) -> float:
        """The time."""
        looked_s = self._steady()
        self._now_s = max(self._wall(), self._now_s + _CATCHING_UP * (looked_s - self._looked_s))
        self._looked_s = looked_s
        return self._now_s

    def advance(self, time_s: float) -> None:
        """Go on from this time if it is later: another router's clock has been there, and jobs are ranked by it."""
        self._now_s = max(self.now_s(), time_s)
