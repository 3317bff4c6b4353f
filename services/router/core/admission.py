"""Admission: a job is accepted if the work ahead of it leaves its promise half of the time, and shed otherwise.

A job of length e promises to end by (κ + 1) · e after its arrival: κ · e until it begins, and its own time. Work due
before that end runs ahead of it. It is admitted if that work, per worker, fills at most a part (`slack`, a half) of the
time: so much may still come that ranks ahead. With κ = 4 a job of 2 s finds room behind 5 s of work per worker, one of
60 s behind 150 s. Nothing here is in seconds: multiply all times by any factor, and every decision stays.

Under overload the longest are shed first. Of the last arrivals, shortest first, some may fill more than a part
(`overload_load`, a half) of the fleet's time since the first of them: the length at which that happens is the cutoff.
A job of twice that length finds half of the room of one at the cutoff, and so on.

A job is shed, too, if a shorter one would be: every length from the shortest of the last arrivals up, in steps of a
quarter, is tried. So in one state, for one tenant, pool, model and class, whatever is longer than a job that is shed is
shed as well.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from services.router.core.actions import Verdict
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.forecast import Forecast
from services.router.core.job import JobRequest, Stage
from services.router.core.jobs import Job, JobTable, Seconds
from services.router.core.ranking import Key, Ranking
from services.router.core.workers import Workers

_STEP = 1.25
_LEAST_S = 1e-6
"""Shorter lengths count as this one, so that the steps up to a job's own length are few."""
_RETRY_ROUNDS = 8


@dataclass(frozen=True, slots=True)
class _Room:
    """Work ahead of a job of some length, and the most that it may find there. Seconds per worker."""

    key: Key
    ahead_s: float
    limit_s: float

    @property
    def excess_s(self) -> float:
        return self.ahead_s - self.limit_s


class Backlog:
    """Work of the queues whose jobs run on the workers of one pool and model: seconds per worker."""

    def __init__(self, table: JobTable, workers: Workers, pool: str, model: str) -> None:
        self._parts = []
        speeds = [workers.speed(stage, pool, model) for stage in Stage]
        for queue in table.queues.values():
            parts = workers.overlaps(pool, model, *queue.key)
            if any(parts):
                self._parts.append((queue.backlog, [part / speed for part, speed in zip(parts, speeds, strict=True)]))

    def ahead(self, key: Key) -> Seconds:
        """Return the seconds that rank ahead of the key, by stage."""
        encode_s = denoise_s = decode_s = 0.0
        for backlog, (encode, denoise, decode) in self._parts:
            seconds = backlog.ahead(key)
            encode_s += encode * seconds[0]
            denoise_s += denoise * seconds[1]
            decode_s += decode * seconds[2]
        return (encode_s, denoise_s, decode_s)

    def worst_s(self, key: Key) -> float:
        """Return the seconds ahead of the key at the stage that has most."""
        return max(self.ahead(key))


class Admission:
    """Judges jobs. Remembers the lengths of the last arrivals, and changes nothing else."""

    def __init__(self, config: SchedulerConfig, table: JobTable, workers: Workers, arrivals: "Arrivals") -> None:
        self._config = config
        self._table = table
        self._workers = workers
        self._arrivals = arrivals
        self._ranking = Ranking(config, table.tenants)
        self._forecast = Forecast(config, table, workers)

    def judge(
        self, request: JobRequest, now: float, pool: PoolConfig | None = None, *, predict: bool = False
    ) -> Verdict:
        """Admit the job or not, by the state as it is; to its own pool, or to the given one.

        The start is predicted for a deadline, for a refusal, and if `predict` is set.
        """
        pool = pool or self._config.pool_of(request)
        model, denoisers = request.model, self._workers.live
        lengths = self._lengths(request, pool)
        turns = self._ranking.turns(request, [*lengths, request.seconds.total_s], now, denoisers)
        rank = self._ranking.rank_at(request, turns[-1], now)
        key = (rank, request.job_id, 0)
        backlog = Backlog(self._table, self._workers, pool.name, model)
        room = self._room(request, pool, backlog, list(zip(lengths, turns, strict=False)), now)
        if not self._config.rules.sheds:
            room = _Room(key, backlog.worst_s(key), inf)
        wait_s = None
        if predict or request.deadline_s is not None:
            wait_s = self._forecast.wait_s(pool.name, model, key, backlog.ahead(key), request.seconds)
        verdict = Verdict(
            admitted=True,
            reason="",
            pool=pool.name,
            rank=rank,
            backlog_s=room.ahead_s,
            limit_s=room.limit_s,
            retry_after_s=0.0,
            wait_s=wait_s,
            missing=self._workers.missing(request.stages, model),
        )
        reason = self._refusal(request, pool, verdict, backlog.ahead(key)[2], now)
        if not reason:
            return verdict
        retry_s = self._retry_after_s(request, reason, verdict, room, backlog)
        if wait_s is None:
            wait_s = self._forecast.wait_s(pool.name, model, key, backlog.ahead(key), request.seconds)
        return replace(verdict, admitted=False, reason=reason, retry_after_s=retry_s, wait_s=wait_s)

    def judge_amended(self, job: Job, request: JobRequest, now: float) -> Verdict:
        """Admit a change of an accepted job or not: `request` is the job as it would be. The table must be without it.

        More work is judged by the total, as if all of it came now, in the job's own pool; its rank gets no better. Less
        work is always admitted, and keeps its rank.
        """
        verdict = self.judge(request, now, self._config.pool_of(request, job.pool))
        if request.seconds.total_s > job.request.seconds.total_s:
            return replace(verdict, rank=max(job.rank, verdict.rank))
        return replace(verdict, admitted=True, reason="", retry_after_s=0.0, rank=job.rank)

    def _lengths(self, request: JobRequest, pool: PoolConfig) -> list[float]:
        """Return the lengths to try for a job, ascending: from the shortest up in steps, never beyond its own."""
        own_s, shortest_s = request.seconds.total_s, self._shortest_s()
        if pool.max_backlog_s is not None or not 0.0 < shortest_s <= own_s:
            return [own_s]
        lengths = [shortest_s]
        while lengths[-1] * _STEP <= own_s:
            lengths.append(lengths[-1] * _STEP)
        return lengths

    def _room(
        self, request: JobRequest, pool: PoolConfig, backlog: Backlog, tries: list[tuple[float, float]], now: float
    ) -> _Room:
        """Return the room of the shortest length that finds too little; if none does, that of the longest.

        `tries` are lengths and their fair ranks.
        """
        shortest_s, denoisers = self._shortest_s(), self._workers.live
        # A job that is shorter than all arrivals finds no less room than the shortest of them.
        cutoff_s = max(shortest_s, self._arrivals.cutoff_s(now, request.seconds.total_s, max(1, denoisers)))
        for length_s, turn in tries:
            key = (turn + length_s, "", 0)
            crowding_s = self._config.crowding * self._ranking.crowding_s(request, key, denoisers)
            limit_s = pool.max_backlog_s
            if limit_s is None:
                limit_s = self._limit_s(max(length_s, shortest_s), cutoff_s)
            room = _Room(key, backlog.worst_s(key), max(0.0, limit_s - crowding_s))
            if room.excess_s > 0:
                break
        return room

    def _limit_s(self, length_s: float, cutoff_s: float) -> float:
        """Return the seconds of work per worker that a job of this length may find ahead."""
        room_s = length_s if length_s <= cutoff_s else cutoff_s * (cutoff_s / length_s)
        return self._config.slack * (self._config.kappa + 1) * room_s

    def _shortest_s(self) -> float:
        """Return the shortest of the last arrivals, else of the accepted jobs; 0 if there are none."""
        shortest_s = self._arrivals.shortest_s
        if not shortest_s:
            lengths = [job.request.seconds.total_s for job in self._table.jobs.values()]
            shortest_s = min([length for length in lengths if length > 0], default=0.0)
        return max(shortest_s, _LEAST_S) if shortest_s else 0.0

    def _refusal(self, request: JobRequest, pool: PoolConfig, verdict: Verdict, decode_s: float, now: float) -> str:
        seconds = request.seconds
        if seconds.total_s > pool.max_job_s:
            return "TOO_LONG"
        if verdict.missing and self._are_long_gone(verdict.missing, request.model, now):
            return "NO_WORKER"
        if len(self._table.jobs) >= self._config.max_queued_jobs:
            return "QUEUE_FULL"
        if verdict.backlog_s > verdict.limit_s:
            return "OVERLOADED"
        if request.deadline_s is not None and verdict.wait_s is not None:
            end_s = now + max(verdict.wait_s + seconds.denoise_s, decode_s) + seconds.decode_s
            if end_s > request.deadline_s:
                return "DEADLINE_UNREACHABLE"
        return ""

    def _are_long_gone(self, stages: Sequence[Stage], model: str, now: float) -> bool:
        """Whether a stage has been without workers for so long that its jobs are not to wait for any."""
        since_s = now - self._config.absence_grace_s
        return any(self._workers.left_s(stage, model) < since_s for stage in stages)

    def _retry_after_s(
        self, request: JobRequest, reason: str, verdict: Verdict, room: _Room, backlog: Backlog
    ) -> float:
        """Predict the seconds until the job would be admitted if nobody else came; 0 where waiting does not help."""
        if reason == "OVERLOADED":
            return _overload_ends_s(room, backlog)
        if reason == "QUEUE_FULL":  # the mean time between two finishes of the jobs there are
            speed = self._workers.speed(Stage.DENOISE, verdict.pool, request.model)
            return self._table.remaining_s / len(self._table.jobs) / speed
        return 0.0


def _overload_ends_s(room: _Room, backlog: Backlog) -> float:
    """Return the least t with A(key + t) − t ≤ limit, found from below.

    Each worker runs a second of the backlog a second, but a job that arrives later also ranks later.
    """
    later_s = room.excess_s
    for _ in range(_RETRY_ROUNDS):
        next_s = backlog.worst_s((room.key[0] + later_s, "", 0)) - room.limit_s
        if next_s <= later_s:
            return later_s
        later_s = next_s
    return backlog.worst_s((inf, "", 0)) - room.limit_s


class Arrivals:
    """The lengths of the last arrivals, and what they say of the load. `window` bounds their number.

    `shortest_s` is the shortest of the lengths above 0; 0 if there are none.
    """

    def __init__(self, window: int, load: float) -> None:
        self._window = window
        self._load = load
        self._recent: deque[tuple[float, float]] = deque(maxlen=window)
        self.shortest_s = 0.0

    def add(self, now: float, length_s: float) -> None:
        """Note an arrival, accepted or not."""
        self._recent.append((now, length_s))
        self.shortest_s = min([length for _, length in self._recent if length > 0], default=0.0)

    def cutoff_s(self, now: float, own_s: float, workers: int) -> float:
        """Return the length up to which arrivals, shortest first, fill the fleet's time; infinity if they do not.

        That time is from the first of them until a job of this length, begun now, ends. A job of `own_s` that arrives
        now counts as one of them. Fewer arrivals than the window has say nothing yet.
        """
        if len(self._recent) < self._window:
            return inf
        span_s = now - min([time for time, _ in self._recent], default=now)
        filled_s = 0.0
        for length_s in sorted([own_s, *(length for _, length in self._recent)]):
            filled_s += length_s
            if filled_s > self._load * workers * (span_s + length_s):
                return length_s
        return inf

    def resized(self, window: int, load: float) -> "Arrivals":
        """Return the last of these arrivals with other bounds."""
        made = Arrivals(window, load)
        for time, length_s in self._recent:
            made.add(time, length_s)
        return made
