"""When a denoise would start, were nobody else to come: what dispatch would do, worked out for one place in the order.

Nobody looks at more than so many denoisers, or so many jobs: of more of them an average is as good.
"""

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heapreplace, merge
from itertools import chain, islice
from typing import NamedTuple

from services.router.core.backlog import Backlog
from services.router.core.book import Book
from services.router.core.cohort import Cohort
from services.router.core.config import SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.job import Stage, StageSeconds
from services.router.core.lane import Lane
from services.router.core.policy import POLICIES, pools_in_force
from services.router.core.task import PATIENCE, Key
from services.router.core.worker import WorkerRecord

_MOST_WORKERS = 64
_MOST_QUEUED = 64


class _Ahead(NamedTuple):
    """A lane with jobs that wait ahead: so many, of which this part falls on the denoisers in question."""

    lane: Lane
    queued: int
    part: float


class Forecast:
    """Predicts starts. A job takes a denoiser of its pool when all that ranks ahead there is done, or one of another
    pool's that it may borrow; those of its pool that wait ahead are dealt out before, each to the first one free.
    """

    def __init__(self, config: SchedulerConfig, book: Book, fleet: Fleet) -> None:
        self._overtakes = POLICIES[config.policy].overtakes
        pools = pools_in_force(config) if self._overtakes else ()
        self._overtakers = {pool.name for pool in pools if pool.borrow == "preemptible"}
        self._book = book
        self._fleet = fleet
        self._reach = fleet.reach

    def wait_s(self, pool: str, model: str, key: Key, backlog: Backlog, seconds: StageSeconds) -> float:
        """Seconds until the denoise of a job at `key` starts, which has `seconds` to run itself."""
        return max(backlog.encode_s + seconds.encode_s, self._denoiser_s(pool, model, key, backlog, seconds.denoise_s))

    def lent(self, pool: str, model: str) -> list[Cohort]:
        """Denoisers that a pool may borrow, and that nobody waits for whose own they are."""
        found = self._reach.borrowable(pool, model)
        if not found:
            return []
        lanes = [lane.key for lane in self._book.lanes.values() if lane.queued]
        wanted = [self._reach.suited(Stage.DENOISE, lane.pool, lane.model) for lane in lanes]
        return [cohort for cohort in found if not any(cohort in cohorts for cohorts in wanted)]

    def _denoiser_s(self, pool: str, model: str, key: Key, backlog: Backlog, denoise_s: float) -> float:
        own = self._reach.suited(Stage.DENOISE, pool, model)
        ahead = list(self._ahead(pool, model, key))
        if not ahead and any(cohort.idle for cohort in own):
            return 0.0
        lent = self.lent(pool, model)
        size = sum(cohort.size for cohort in chain(own, lent))
        if not size:
            return 0.0
        stride = -(-size // _MOST_WORKERS)
        levels = [self._lent_level_s(worker, pool, key, denoise_s) for worker in self._each(lent, stride)]
        pace = size / sum(cohort.speed for cohort in chain(own, lent))
        if sum(each.queued for each in ahead) > _MOST_QUEUED:
            levels += [0.0] * sum(1 for _ in self._each(own, stride))  # what they run is in the backlog
            ahead_s = backlog.denoise_s * self._reach.speeds(pool, model)[1]
            return _filled(levels, ahead_s * pace / stride)
        levels += [self._own_level_s(worker, key, denoise_s) for worker in self._each(own, stride)]
        return _dealt(levels, (seconds * pace / stride for seconds in self._queued_s(ahead)))

    def _ahead(self, pool: str, model: str, key: Key) -> Iterator[_Ahead]:
        """Where jobs wait ahead that could take the same denoisers, as their own."""
        for lane in self._book.lanes.values():
            if lane.queued and lane.queued.first < key:
                part = self._reach.overlaps(pool, model, lane.key.pool, lane.key.model)[1]
                if part > 0.0:
                    yield _Ahead(lane, lane.queued.position(key), part)

    def _queued_s(self, ahead: Sequence[_Ahead]) -> Iterator[float]:
        """What those that wait ahead have to denoise, the best-ranked first."""
        queues = [[(key, each.part) for key in islice(each.lane.queued, each.queued)] for each in ahead]
        for key, part in merge(*queues):
            yield part * self._book.jobs[key[1]].denoise.unrun_s

    def _each(self, cohorts: Iterable[Cohort], stride: int) -> Iterator[WorkerRecord]:
        """Every so manieth worker."""
        for cohort in cohorts:
            for _, worker_id in chain(cohort.idle[::stride], cohort.roomy[::stride], cohort.full[::stride]):
                yield self._fleet.workers[worker_id]

    def _own_level_s(self, worker: WorkerRecord, key: Key, denoise_s: float) -> float:
        """Seconds until a worker of its own would take the job."""
        if not self._overtakes:
            return worker.load_s
        ahead_s = sum(record.unrun_s for record in worker.running.values() if record.order < key and not record.lent)
        guests = worker.guests
        reclaims = bool(guests) and key < worker.own_front
        guests_s = [guest.unrun_s for guest in guests if guest.order < key]
        while reclaims and sum(guests_s) > PATIENCE * denoise_s:
            guests_s.pop()
        if worker.full and not reclaims:  # what has the device leaves first
            ahead_s = max(ahead_s, min(worker.running.values(), key=lambda record: record.order).unrun_s)
        return worker.pace.ratio * (ahead_s + sum(guests_s))

    def _lent_level_s(self, worker: WorkerRecord, pool: str, key: Key, denoise_s: float) -> float:
        """Seconds until a worker that is lent would take the job: at once, if its own jobs bear with such a guest."""
        bears = pool in self._overtakers and not worker.full and key < worker.front
        return 0.0 if bears and denoise_s <= worker.patience_s else worker.load_s


def _dealt(levels: list[float], seconds: Iterable[float]) -> float:
    """The least level, after each of these was added to the least one in turn."""
    heapify(levels)
    for each in seconds:
        heapreplace(levels, levels[0] + each)
    return levels[0]


def _filled(levels: list[float], seconds: float) -> float:
    """How high it stands if so much is poured over these levels."""
    below_s = 0.0
    for count, level_s in enumerate(sorted(levels)):
        if count and level_s * count - below_s >= seconds:
            return (below_s + seconds) / count
        below_s += level_s
    return (below_s + seconds) / len(levels)
