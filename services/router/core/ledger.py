"""Unrun seconds in the order of ranks, with fast sums over everything that ranks ahead of a place."""

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field

from services.router.core.record import Key, Seconds

_BUCKET_SIZE = 128
_SAME_PLACE_S = 1e-3


@dataclass(slots=True)
class _Bucket:
    """A run of neighbours. What is worked out of them is kept until one changes; never adjusted, so it cannot drift."""

    keys: list[Key] = field(default_factory=list)
    columns: tuple[list[float], list[float], list[float]] = field(default_factory=lambda: ([], [], []))
    total: Seconds | None = None
    lead: tuple[float, float] | None = None

    def changed(self) -> None:
        self.total = self.lead = None

    def summed(self) -> Seconds:
        if self.total is None:
            self.total = self.sum_first(len(self.keys))
        return self.total

    def sum_first(self, count: int) -> Seconds:
        encode, denoise, decode = self.columns
        return (sum(encode[:count]), sum(denoise[:count]), sum(decode[:count]))

    def steps(self) -> Iterator[tuple[float, float]]:
        """Each rank, and the seconds of all stages before it in the bucket."""
        ahead_s = 0.0
        for key, *seconds in zip(self.keys, *self.columns, strict=True):
            yield key[0], ahead_s
            ahead_s += sum(seconds)

    def greatest_lead(self, slope: float) -> float:
        """The most by which a rank is beyond `slope` × the seconds before it in the bucket."""
        if self.lead is None or self.lead[0] != slope:
            self.lead = (slope, max(rank - slope * ahead_s for rank, ahead_s in self.steps()))
        return self.lead[1]


class Ledger:
    """Seconds by key. With n entries a change costs O(bucket) and a sum O(bucket + n / bucket)."""

    def __init__(self) -> None:
        self._buckets: list[_Bucket] = []
        self._lasts: list[Key] = []

    def __len__(self) -> int:
        return sum(len(bucket.keys) for bucket in self._buckets)

    def put(self, key: Key, seconds: Seconds) -> None:
        """Add the key, or change its seconds."""
        if not self._buckets:
            self._buckets.append(_Bucket())
            self._lasts.append(key)
        index = min(bisect_left(self._lasts, key), len(self._buckets) - 1)
        bucket = self._buckets[index]
        place = bisect_left(bucket.keys, key)
        known = place < len(bucket.keys) and bucket.keys[place] == key
        if not known:
            bucket.keys.insert(place, key)
        for column, value in zip(bucket.columns, seconds, strict=True):
            column[place : place + known] = [value]
        bucket.changed()
        self._lasts[index] = bucket.keys[-1]
        if len(bucket.keys) > 2 * _BUCKET_SIZE:
            self._split(index)

    def remove(self, key: Key) -> None:
        """Take the key out. Raises `KeyError` if it is not there."""
        index = bisect_left(self._lasts, key)
        bucket = self._buckets[index] if index < len(self._buckets) else _Bucket()
        place = bisect_left(bucket.keys, key)
        if place == len(bucket.keys) or bucket.keys[place] != key:
            raise KeyError(key)
        del bucket.keys[place]
        for column in bucket.columns:
            del column[place]
        bucket.changed()
        if bucket.keys:
            self._lasts[index] = bucket.keys[-1]
        else:
            del self._buckets[index], self._lasts[index]

    def ahead(self, key: Key) -> Seconds:
        """Sums over all keys before this one."""
        index = bisect_left(self._lasts, key)
        parts = [bucket.summed() for bucket in self._buckets[:index]]
        if index < len(self._buckets):
            bucket = self._buckets[index]
            parts.append(bucket.sum_first(bisect_left(bucket.keys, key)))
        return (sum(part[0] for part in parts), sum(part[1] for part in parts), sum(part[2] for part in parts))

    def first_gap(self, start_s: float, slope: float) -> float:
        """The least rank `r ≥ start_s` with `r ≥ start_s + slope × seconds of all keys up to r`.

        Grows with `start_s`. Ranks closer than a millisecond count as one, so that rounding opens no gap.
        """
        place_s = start_s
        for bucket in self._buckets:
            if bucket.greatest_lead(slope) > place_s + _SAME_PLACE_S:
                for rank, ahead_s in bucket.steps():
                    if rank > place_s + slope * ahead_s + _SAME_PLACE_S:
                        return place_s + slope * ahead_s
            place_s += slope * sum(bucket.summed())
        return place_s

    def total(self) -> Seconds:
        """Sums over all keys."""
        return self.ahead((float("inf"), "", 0))

    def _split(self, index: int) -> None:
        old = self._buckets[index]
        encode, denoise, decode = old.columns
        halves = [
            _Bucket(old.keys[part], (encode[part], denoise[part], decode[part]))
            for part in (slice(None, _BUCKET_SIZE), slice(_BUCKET_SIZE, None))
        ]
        self._buckets[index : index + 1] = halves
        self._lasts[index : index + 1] = [half.keys[-1] for half in halves]
