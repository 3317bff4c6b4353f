"""Jobs that a person would take for the same: one tenant's, of one model and class, in the order in which they came."""

from bisect import bisect_left, bisect_right
from math import inf
from typing import NamedTuple

from services.router.core.job import JobRequest

# Estimates this close are the same to a person: what is learnt between two submissions must not swap them.
SAME_JOB_RATIO = 1.25


class PeerKey(NamedTuple):
    """What peers have in common."""

    tenant: str
    model: str
    priority_class: str


def peer_key(request: JobRequest) -> PeerKey:
    return PeerKey(request.tenant, request.model, request.priority_class)


class Peers:
    """Ranks of accepted jobs by estimate. With n peers a change costs O(n) moves of one word, a look-up one `max`."""

    def __init__(self) -> None:
        self._estimates: list[float] = []
        self._ranks: list[float] = []

    def __len__(self) -> int:
        return len(self._ranks)

    def add(self, estimate_s: float, rank: float) -> None:
        place = bisect_right(self._estimates, estimate_s)
        self._estimates.insert(place, estimate_s)
        self._ranks.insert(place, rank)

    def remove(self, estimate_s: float, rank: float) -> None:
        """Take one out. Raises `ValueError` if it is not there."""
        place = self._ranks.index(
            rank, bisect_left(self._estimates, estimate_s), bisect_right(self._estimates, estimate_s)
        )
        del self._estimates[place], self._ranks[place]

    def last_rank(self, estimate_s: float) -> float:
        """The rank behind which a job of this estimate comes: the worst of its peers that are not clearly longer."""
        return max(self._ranks[: bisect_right(self._estimates, SAME_JOB_RATIO * estimate_s)], default=-inf)
