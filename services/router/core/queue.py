"""Keys in the order of ranks: the first at once, any place in the order fast, however many there are."""

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain

from services.router.core.task import Key

_BUCKET_SIZE = 256


class RankQueue:
    """Distinct keys in buckets of neighbours. With n keys a change costs O(bucket), a position O(n / bucket)."""

    __slots__ = ("_buckets", "_lasts")

    def __init__(self) -> None:
        self._buckets: list[list[Key]] = []
        self._lasts: list[Key] = []

    def __bool__(self) -> bool:
        return bool(self._lasts)

    def __len__(self) -> int:
        return sum(map(len, self._buckets))

    def __iter__(self) -> Iterator[Key]:
        return chain.from_iterable(self._buckets)

    @property
    def first(self) -> Key:
        """The best-ranked key. Raises `IndexError` if there is none."""
        return self._buckets[0][0]

    def add(self, key: Key) -> None:
        if not self._lasts:
            self._buckets.append([key])
            self._lasts.append(key)
            return
        index = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        bucket = self._buckets[index]
        bucket.insert(bisect_left(bucket, key), key)
        self._lasts[index] = bucket[-1]
        if len(bucket) > 2 * _BUCKET_SIZE:
            self._buckets[index : index + 1] = [bucket[:_BUCKET_SIZE], bucket[_BUCKET_SIZE:]]
            self._lasts.insert(index, bucket[_BUCKET_SIZE - 1])

    def remove(self, key: Key) -> None:
        """Take the key out. Raises `KeyError` if it is not there."""
        index = bisect_left(self._lasts, key)
        bucket = self._buckets[index] if index < len(self._lasts) else []
        place = bisect_left(bucket, key)
        if place == len(bucket) or bucket[place] != key:
            raise KeyError(key)
        del bucket[place]
        if bucket:
            self._lasts[index] = bucket[-1]
        else:
            del self._buckets[index], self._lasts[index]

    def is_among_first(self, count: int, key: Key) -> bool:
        """Whether fewer keys than `count` are before this one."""
        if self._buckets and 0 < count <= len(self._buckets[0]):
            return key <= self._buckets[0][count - 1]
        return self.position(key) < count

    def position(self, key: Key) -> int:
        """How many keys are before this one."""
        index = bisect_left(self._lasts, key)
        before = sum(map(len, self._buckets[:index]))
        return before + bisect_left(self._buckets[index], key) if index < len(self._lasts) else before
