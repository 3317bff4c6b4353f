"""Unrun seconds in the order of ranks, with fast sums over everything that ranks ahead of a place."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate, repeat
from operator import itemgetter, mul, sub

from services.router.core.hull import Hull
from services.router.core.task import Key

_BUCKET_SIZE = 128
_SAME_PLACE_S = 1e-3
_rank = itemgetter(0)


class _Bucket:
    """A run of neighbours, and their seconds by column."""

    __slots__ = ("_hull", "_lead", "columns", "keys")

    def __init__(self, keys: list[Key], columns: list[list[float]]) -> None:
        self.keys = keys
        self.columns = columns
        self.forget()

    def forget(self) -> None:
        """Something has changed: what was worked out holds no more."""
        self._lead: tuple[float, float] | None = None
        self._hull: Hull | None = None

    def steps(self) -> Iterator[tuple[float, float]]:
        """Each rank, and the seconds before it in the bucket."""
        return zip(map(_rank, self.keys), accumulate(self._seconds(), initial=0.0), strict=False)

    def greatest_lead(self, slope: float) -> float:
        """The most by which a rank is beyond `slope` × the seconds before it in the bucket.

        The first answer is worked out for its slope alone. Asked again for another, a bucket that has not changed
        works out the answers for all slopes.
        """
        if self._hull is not None:
            return self._hull.greatest_lead(slope)
        if self._lead is None:
            ahead_s = accumulate(self._seconds(), initial=0.0)
            self._lead = (slope, max(map(sub, map(_rank, self.keys), map(mul, repeat(slope), ahead_s))))
        if self._lead[0] != slope:
            self._hull = Hull(self.steps())
            return self._hull.greatest_lead(slope)
        return self._lead[1]

    def part(self, part: slice) -> "_Bucket":
        return _Bucket(self.keys[part], [column[part] for column in self.columns])

    def _seconds(self) -> Iterator[float]:
        return iter(self.columns[0]) if len(self.columns) == 1 else map(sum, zip(*self.columns, strict=True))


class Ledger:
    """Seconds by key, in `width` columns. With n entries a change costs O(bucket), a sum O(bucket + n / bucket).

    The sums of a bucket are worked out anew when it changes, never adjusted, so that they cannot drift.
    """

    __slots__ = ("_buckets", "_lasts", "_sums", "_width")

    def __init__(self, width: int = 3) -> None:
        self._width = width
        self._buckets: list[_Bucket] = []
        self._lasts: list[Key] = []
        self._sums: list[list[float]] = [[] for _ in range(width)]

    def __len__(self) -> int:
        return sum([len(bucket.keys) for bucket in self._buckets])

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def put(self, key: Key, seconds: tuple[float, ...]) -> None:
        """Add the key, or change its seconds: one number a column."""
        if not self._lasts:
            self._insert(0, _Bucket([key], [[value] for value in seconds]))
            return
        index = bisect_left(self._lasts, key)
        if index == len(self._lasts):
            index -= 1
        bucket = self._buckets[index]
        keys = bucket.keys
        place = bisect_left(keys, key)
        bucket.forget()
        if place < len(keys) and keys[place] == key:
            for column, sums, value in zip(bucket.columns, self._sums, seconds, strict=True):
                if column[place] != value:
                    column[place] = value
                    sums[index] = sum(column)
            return
        keys.insert(place, key)
        for column, sums, value in zip(bucket.columns, self._sums, seconds, strict=True):
            column.insert(place, value)
            sums[index] = sum(column)
        self._lasts[index] = keys[-1]
        if len(keys) > 2 * _BUCKET_SIZE:
            self._delete(index)
            self._insert(index, bucket.part(slice(_BUCKET_SIZE, None)))
            self._insert(index, bucket.part(slice(_BUCKET_SIZE)))

    def remove(self, key: Key) -> None:
        """Take the key out. Raises `KeyError` if it is not there."""
        index = bisect_left(self._lasts, key)
        if index == len(self._lasts):
            raise KeyError(key)
        bucket = self._buckets[index]
        keys = bucket.keys
        place = bisect_left(keys, key)
        if keys[place] != key:
            raise KeyError(key)
        if len(keys) == 1:
            self._delete(index)
            return
        del keys[place]
        bucket.forget()
        for column, sums in zip(bucket.columns, self._sums, strict=True):
            del column[place]
            sums[index] = sum(column)
        self._lasts[index] = keys[-1]

    def ahead(self, key: Key) -> tuple[float, ...]:
        """Sums over all keys before this one."""
        index = bisect_left(self._lasts, key)
        if index == len(self._lasts):
            return self.total()
        bucket = self._buckets[index]
        place = bisect_left(bucket.keys, key)
        return tuple(
            [sum(column[:place], sum(sums[:index])) for column, sums in zip(bucket.columns, self._sums, strict=True)]
        )

    def total(self) -> tuple[float, ...]:
        """Sums over all keys."""
        return tuple(map(sum, self._sums))

    def first_gap(self, start_s: float, base_s: float, slope: float) -> float:
        """The least rank `r ≥ start_s` with `r ≥ base_s + slope × seconds of all keys up to r`.

        Grows with `start_s` and `base_s`. Ranks closer than a millisecond count as one, so that rounding opens no gap.
        For ledgers of one column.
        """
        assert self._width == 1
        totals = self._sums[0]
        first = bisect_left(self._lasts, (start_s, "", 0))
        place_s = base_s + slope * sum(totals[:first])
        for index, (last_s, _, _) in enumerate(self._lasts[first:], first):
            if last_s > place_s + _SAME_PLACE_S and last_s > start_s + _SAME_PLACE_S:
                bucket = self._buckets[index]
                if bucket.greatest_lead(slope) > place_s + _SAME_PLACE_S:
                    for rank, ahead_s in bucket.steps():
                        found_s = max(start_s, place_s + slope * ahead_s)
                        if rank > found_s + _SAME_PLACE_S:
                            return found_s
            place_s += slope * totals[index]
        return max(start_s, place_s)

    def _insert(self, index: int, bucket: _Bucket) -> None:
        self._buckets.insert(index, bucket)
        self._lasts.insert(index, bucket.keys[-1])
        for column, sums in zip(bucket.columns, self._sums, strict=True):
            sums.insert(index, sum(column))

    def _delete(self, index: int) -> None:
        del self._buckets[index], self._lasts[index]
        for sums in self._sums:
            del sums[index]
