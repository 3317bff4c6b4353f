"""Ranks: the one number that orders jobs, lower runs first; and sums over everything that ranks ahead of a place.

A job's rank is when it is due to begin: κ times its own time after its arrival, in seconds on the scheduler's clock.
With κ = 4 a job of 2 s that arrives at 100 s has rank 108, one of 60 s rank 340: the short one goes first, until the
long one has waited 4 × (60 − 2) seconds longer. So short jobs pass in a burst, and nothing starves.

Tenants are kept fair by their own work alone. A tenant's turn comes when its share of the fleet would have run all of
its jobs that rank ahead, and the whole fleet then this one; a job gets the later of the two. With two tenants at work
on one denoiser, one of whom has 500 s ahead, that one's next job of 2 s is ranked 1,002 s from now, and the other
tenant's first one 8 s from now.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator, Sequence
from math import inf, ulp

from services.router.core.config import SchedulerConfig
from services.router.core.job import JobRequest

Key = tuple[float, str, int]
"""Place in a queue, lower first: rank, job id, output index."""

_BUCKET_SIZE = 128
_ROUNDING_ULPS = 64
"""Ranks this close count as one, so that rounding opens no gap."""
_SIMILAR = 1.25
"""Estimates within this factor are alike to a person: what is learnt between two submissions must not swap them."""


class RankedSums:
    """Seconds by key in rank order, in `width` columns, with fast sums over all keys ahead of a place.

    With n keys a change costs O(bucket), a sum O(bucket + n / bucket). The sums of a bucket are computed anew when it
    changes, never adjusted, so that they cannot drift.
    """

    __slots__ = ("_columns", "_keys", "_lasts", "_sums", "_width")

    def __init__(self, width: int) -> None:
        self._width = width
        self._keys: list[list[Key]] = []
        self._columns: list[tuple[list[float], ...]] = []
        self._lasts: list[Key] = []
        self._sums: list[list[float]] = [[] for _ in range(width)]

    def __len__(self) -> int:
        return sum(map(len, self._keys))

    def put(self, key: Key, seconds: tuple[float, ...]) -> None:
        """Add the key, or change its seconds: one number a column."""
        if not self._lasts:
            self._insert(0, [key], tuple([value] for value in seconds))
            return
        index = min(bisect_left(self._lasts, key), len(self._lasts) - 1)
        keys, columns = self._keys[index], self._columns[index]
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key:
            for column, value in zip(columns, seconds, strict=True):
                column[place] = value
        else:
            keys.insert(place, key)
            for column, value in zip(columns, seconds, strict=True):
                column.insert(place, value)
        if len(keys) > 2 * _BUCKET_SIZE:
            self._delete(index)
            for part in (slice(_BUCKET_SIZE, None), slice(_BUCKET_SIZE)):
                self._insert(index, keys[part], tuple(column[part] for column in columns))
        else:
            self._sum(index)

    def remove(self, key: Key) -> None:
        """Take the key out. Raises `KeyError` if it is not there."""
        index = bisect_left(self._lasts, key)
        keys = self._keys[index] if index < len(self._lasts) else []
        place = bisect_left(keys, key)
        if place == len(keys) or keys[place] != key:
            raise KeyError(key)
        if len(keys) == 1:
            self._delete(index)
            return
        del keys[place]
        for column in self._columns[index]:
            del column[place]
        self._sum(index)

    def ahead(self, key: Key) -> tuple[float, ...]:
        """Return the sums over all keys before this one."""
        index = bisect_left(self._lasts, key)
        if index == len(self._lasts):
            return self.total()
        place = bisect_left(self._keys[index], key)
        columns = zip(self._columns[index], self._sums, strict=True)
        return tuple([sum(column[:place], sum(sums[:index])) for column, sums in columns])

    def total(self) -> tuple[float, ...]:
        """Return the sums over all keys."""
        return tuple(map(sum, self._sums))

    def runs(self, start: float) -> Iterator[tuple[list[Key], list[float]]]:
        """Yield the keys whose rank is `start` or more, in order, with their seconds in the first column, in runs."""
        key = (start, "", 0)
        first = bisect_left(self._lasts, key)
        for index in range(first, len(self._lasts)):
            keys, column = self._keys[index], self._columns[index][0]
            place = bisect_left(keys, key) if index == first else 0
            yield keys[place:], column[place:]

    def _sum(self, index: int) -> None:
        self._lasts[index] = self._keys[index][-1]
        for column, sums in zip(self._columns[index], self._sums, strict=True):
            sums[index] = sum(column)

    def _insert(self, index: int, keys: list[Key], columns: tuple[list[float], ...]) -> None:
        self._keys.insert(index, keys)
        self._columns.insert(index, columns)
        self._lasts.insert(index, keys[-1])
        for column, sums in zip(columns, self._sums, strict=True):
            sums.insert(index, sum(column))

    def _delete(self, index: int) -> None:
        del self._keys[index], self._columns[index], self._lasts[index]
        for sums in self._sums:
            del sums[index]


class Tenant:
    """A tenant with accepted jobs: their remaining seconds in rank order, and those that are alike in order of length.

    `similar` has, by model and priority class, (estimate, rank) of each job.
    """

    __slots__ = ("backlog", "similar")

    def __init__(self) -> None:
        self.backlog = RankedSums(width=1)
        self.similar: dict[tuple[str, str], list[tuple[float, float]]] = {}

    def add(self, request: JobRequest, rank: float) -> None:
        insort(self.similar.setdefault(_kind(request), []), (request.seconds.total_s, rank))

    def remove(self, request: JobRequest, rank: float) -> None:
        entries = self.similar[_kind(request)]
        del entries[bisect_left(entries, (request.seconds.total_s, rank))]
        if not entries:
            del self.similar[_kind(request)]

    def last_similar(self, request: JobRequest) -> float:
        """Return the worst rank of its jobs of the same model and class that are not clearly longer."""
        entries = self.similar.get(_kind(request), [])
        end = bisect_right(entries, (_SIMILAR * request.seconds.total_s, inf))
        return max([rank for _, rank in entries[:end]], default=-inf)


def _kind(request: JobRequest) -> tuple[str, str]:
    return (request.model, request.priority_class)


class Ranking:
    """Ranks new jobs by the policy, from what each tenant has accepted. Changes nothing."""

    def __init__(self, config: SchedulerConfig, tenants: dict[str, Tenant]) -> None:
        self._config = config
        self._tenants = tenants

    def rank(self, request: JobRequest, now: float, denoisers: int) -> float:
        """Return the rank of a job that arrives now: seconds on the clock of `now`; under "sjf" its estimate."""
        return self.rank_at(request, self.turns(request, [request.seconds.total_s], now, denoisers)[0], now)

    def rank_at(self, request: JobRequest, turn: float, now: float) -> float:
        """Return the rank of a job that arrives now and whose fair rank is `turn`.

        Never ahead of an earlier job of the tenant that is alike: what is asked for twice runs in the order in which it
        was asked for, although the work ahead shrinks meanwhile.
        """
        match self._config.rules.rank:
            case "arrival":
                return now
            case "estimate":
                return request.seconds.total_s
            case "stretch":
                tenant = self._tenants.get(request.tenant)
                return max(turn, tenant.last_similar(request)) if tenant else turn

    def turns(self, request: JobRequest, lengths: Sequence[float], now: float, denoisers: int) -> list[float]:
        """Return the fair rank of the job if it had each of these lengths, which ascend.

        The least r ≥ now + κ · length with r ≥ now + length / denoisers + slope · (own seconds up to r), where slope
        is the seconds of the fleet in which the tenant gets one: found by one walk, since r grows with the length.
        """
        kappa, tenant = self._config.kappa, self._tenants.get(request.tenant)
        starts = [now + kappa * length for length in lengths]
        if tenant is None:
            return starts
        slope = self._weights() / self._weight(request) / max(1, denoisers)
        bases = [now + length / max(1, denoisers) for length in lengths]
        rounding = _ROUNDING_ULPS * ulp(starts[0])
        found: list[float] = []
        start, base = starts[0], bases[0]
        ahead = tenant.backlog.ahead((start, "", 0))[0]
        turn = max(start, base + slope * ahead)
        for keys, column in tenant.backlog.runs(start):
            for key, seconds in zip(keys, column, strict=True):
                while key[0] > turn + rounding:  # nothing of the tenant's is due from here to there
                    found.append(turn)
                    if len(found) == len(lengths):
                        return found
                    start, base = starts[len(found)], bases[len(found)]
                    turn = max(start, base + slope * ahead)
                ahead += seconds
                due = base + slope * ahead
                turn = due if due > start else start
        rest = zip(starts[len(found) :], bases[len(found) :], strict=True)
        return found + [max(start, base + slope * ahead) for start, base in rest]

    def crowding_s(self, request: JobRequest, key: Key, denoisers: int) -> float:
        """Return the seconds of the fleet that the shares of the other tenants come to while this one's jobs ahead run.

        0 for a tenant that is alone, or has nothing ahead; grows with `key`.
        """
        tenant = self._tenants.get(request.tenant)
        if tenant is None:
            return 0.0
        others = self._weights() - self._config.tenant_weights.get(request.tenant, 1.0)
        return others / self._weight(request) * tenant.backlog.ahead(key)[0] / max(1, denoisers)

    def _weight(self, request: JobRequest) -> float:
        """Return the weight of the tenant for a job of this class."""
        own = self._config.tenant_weights.get(request.tenant, 1.0)
        return own * self._config.class_weights.get(request.priority_class, 1.0)

    def _weights(self) -> float:
        """Return the sum of the weights of tenants with work."""
        named = sum(weight - 1.0 for name, weight in self._config.tenant_weights.items() if name in self._tenants)
        return len(self._tenants) + named
