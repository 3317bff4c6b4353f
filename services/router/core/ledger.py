"""Unrun seconds in the order of ranks, with fast sums over everything that ranks ahead of a place."""

from bisect import bisect_left
from dataclasses import dataclass, field

from services.router.core.record import Key, Seconds

_BUCKET_SIZE = 128


@dataclass(slots=True)
class _Bucket:
    """A run of neighbours; `total` is None when it has to be summed anew (never adjusted, so it cannot drift)."""

    keys: list[Key] = field(default_factory=list)
    columns: tuple[list[float], list[float], list[float]] = field(default_factory=lambda: ([], [], []))
    total: Seconds | None = None

    def summed(self) -> Seconds:
        if self.total is None:
            self.total = self.sum_first(len(self.keys))
        return self.total

    def sum_first(self, count: int) -> Seconds:
        encode, denoise, decode = self.columns
        return (sum(encode[:count]), sum(denoise[:count]), sum(decode[:count]))


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
        bucket.total = None
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
        bucket.total = None
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
