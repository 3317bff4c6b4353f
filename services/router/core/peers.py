"""Jobs that a person would take for the same: one tenant's, of one model and class, in the order in which they came."""

from bisect import bisect_left, bisect_right
from math import inf
from typing import NamedTuple

from services.router.core.job import JobRequest

# Estimates this close are the same to a person: what is learnt between two submissions must not swap them.
SAME_JOB_RATIO = 1.25
_BUCKET_SIZE = 256


class PeerKey(NamedTuple):
    """What a tenant's peers have in common."""

    model: str
    priority_class: str


def peer_key(request: JobRequest) -> PeerKey:
    return PeerKey(request.model, request.priority_class)


class _Bucket:
    """Neighbours by estimate, and their ranks."""

    __slots__ = ("estimates", "ranks")

    def __init__(self, estimates: list[float], ranks: list[float]) -> None:
        self.estimates = estimates
        self.ranks = ranks


class Peers:
    """Ranks of accepted jobs by estimate. With n peers a change costs O(bucket), a look-up O(bucket + n / bucket)."""

    __slots__ = ("_buckets", "_lasts", "_worst")

    def __init__(self) -> None:
        self._buckets: list[_Bucket] = []
        self._lasts: list[float] = []
        self._worst: list[float] = []

    def __len__(self) -> int:
        return sum(len(bucket.ranks) for bucket in self._buckets)

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def add(self, estimate_s: float, rank: float) -> None:
        if not self._lasts:
            self._insert(0, _Bucket([estimate_s], [rank]))
            return
        index = min(bisect_right(self._lasts, estimate_s), len(self._lasts) - 1)
        bucket = self._buckets[index]
        place = bisect_right(bucket.estimates, estimate_s)
        bucket.estimates.insert(place, estimate_s)
        bucket.ranks.insert(place, rank)
        self._lasts[index] = bucket.estimates[-1]
        self._worst[index] = max(self._worst[index], rank)
        if len(bucket.ranks) > 2 * _BUCKET_SIZE:
            self._delete(index)
            for part in (slice(_BUCKET_SIZE, None), slice(_BUCKET_SIZE)):
                self._insert(index, _Bucket(bucket.estimates[part], bucket.ranks[part]))

    def remove(self, estimate_s: float, rank: float) -> None:
        """Take one out. Raises `ValueError` if it is not there."""
        for index in range(bisect_left(self._lasts, estimate_s), len(self._lasts)):
            bucket = self._buckets[index]
            first, last = bisect_left(bucket.estimates, estimate_s), bisect_right(bucket.estimates, estimate_s)
            if first == last:
                break
            if rank in bucket.ranks[first:last]:
                place = bucket.ranks.index(rank, first, last)
                del bucket.estimates[place], bucket.ranks[place]
                self._shrunk(index)
                return
        raise ValueError(f"no peer of {estimate_s} s has rank {rank}")

    def last_rank(self, estimate_s: float) -> float:
        """The rank behind which a job of this estimate comes: the worst of its peers that are not clearly longer."""
        bound_s = SAME_JOB_RATIO * estimate_s
        index = bisect_right(self._lasts, bound_s)
        worst = max(self._worst[:index], default=-inf)
        if index < len(self._lasts):
            bucket = self._buckets[index]
            worst = max(worst, max(bucket.ranks[: bisect_right(bucket.estimates, bound_s)], default=-inf))
        return worst

    def _shrunk(self, index: int) -> None:
        bucket = self._buckets[index]
        if bucket.ranks:
            self._lasts[index], self._worst[index] = bucket.estimates[-1], max(bucket.ranks)
        else:
            self._delete(index)

    def _insert(self, index: int, bucket: _Bucket) -> None:
        self._buckets.insert(index, bucket)
        self._lasts.insert(index, bucket.estimates[-1])
        self._worst.insert(index, max(bucket.ranks))

    def _delete(self, index: int) -> None:
        del self._buckets[index], self._lasts[index], self._worst[index]
