"""The upper hull of points: where a line of any slope touches them from above."""

from bisect import bisect_left
from collections.abc import Iterable


class Hull:
    """Of ranks over the seconds before them, both ascending. Answers in O(log n)."""

    __slots__ = ("_falls", "_ranks", "_seconds")

    def __init__(self, steps: Iterable[tuple[float, float]]) -> None:
        seconds: list[float] = []
        ranks: list[float] = []
        falls: list[float] = []  # the slopes between neighbours, negated: ascending
        for rank, ahead_s in steps:
            while seconds:
                gap_s = ahead_s - seconds[-1]
                if gap_s > 0 and (not falls or falls[-1] < (ranks[-1] - rank) / gap_s):
                    falls.append((ranks[-1] - rank) / gap_s)
                    break
                seconds.pop()
                ranks.pop()
                if falls:
                    falls.pop()
            seconds.append(ahead_s)
            ranks.append(rank)
        self._seconds, self._ranks, self._falls = seconds, ranks, falls

    def greatest_lead(self, slope: float) -> float:
        """The greatest `rank - slope × seconds`."""
        place = bisect_left(self._falls, -slope)
        return self._ranks[place] - slope * self._seconds[place]
