"""Who is let in: a job before whose end no more seconds per worker are due than its pool's level allows."""

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from services.router.core.actions import Verdict
from services.router.core.backlog import Backlog, Backlogs
from services.router.core.book import Book
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.forecast import Forecast
from services.router.core.job import JobRequest, Stage
from services.router.core.policy import POLICIES
from services.router.core.rank import crowding_s, rank_of
from services.router.core.record import JobRecord
from services.router.core.task import Key

_RETRY_ROUNDS = 8
_CROWDING = 0.08
"""The part by which the time that a tenant's own jobs cost the others lowers its level."""


class Admission:
    """Judges jobs; changes nothing."""

    def __init__(self, config: SchedulerConfig, pools: Sequence[PoolConfig], book: Book, fleet: Fleet) -> None:
        self._config = config
        self._policy = POLICIES[config.policy]
        self._pools = pools
        self._named = {pool.name: pool for pool in pools}
        self._book = book
        self._fleet = fleet
        self._reach = fleet.reach
        self._backlogs = Backlogs(book, fleet.reach)
        self._forecast = Forecast(config, book, fleet)

    def pool_of(self, request: JobRequest) -> PoolConfig:
        """The first pool that takes the job, else the last one."""
        for pool in self._pools:
            if pool.takes(request):
                return pool
        return self._pools[-1]

    def pool_named(self, name: str) -> PoolConfig | None:
        return self._named.get(name)

    def judge(
        self, request: JobRequest, now: float, pool: PoolConfig | None = None, *, foretell: bool = False
    ) -> Verdict:
        """Admit the job or not, by the state as it is; to its own pool, or to the given one.

        In one state, for one tenant, pool, model and class: if a job is refused for its backlog, its length or its
        deadline, so is every longer one. When it would start is worked out for a deadline or a refusal, or to
        `foretell` it.
        """
        pool = pool or self.pool_of(request)
        rank = rank_of(self._config, self._book, request, now, self._fleet.live)
        key = (rank, request.job_id, 0)
        judged = self._judged(request, key)
        near: Backlog | None = None
        if foretell or request.deadline_s is not None:
            near = self._backlogs.ahead(pool.name, request.model, key)
        verdict = Verdict(
            admitted=True,
            reason="",
            pool=pool.name,
            rank=rank,
            backlog_s=self._backlogs.ahead(pool.name, request.model, judged).worst_s,
            limit_s=self._limit_s(request, pool, judged),
            retry_after_s=0.0,
            wait_s=None if near is None else self._wait_s(request, pool, key, near),
            missing=self._reach.missing(request.stages, request.model),
        )
        reason = self._refusal(request, pool, verdict, near, now)
        if not reason:
            return verdict
        retry_after_s = self._retry_after_s(request, reason, verdict, judged)
        if near is None:
            near = self._backlogs.ahead(pool.name, request.model, key)
            verdict = replace(verdict, wait_s=self._wait_s(request, pool, key, near))
        return replace(verdict, admitted=False, reason=reason, retry_after_s=retry_after_s)

    def judge_amended(self, job: JobRecord, request: JobRequest, now: float) -> Verdict:
        """Admit a change of an accepted job or not: `request` is the job as it would be. The book must be without it.

        More work is judged by the total, as if all of it came now, in the job's own pool; its rank gets no better. Less
        work is always admitted, and keeps its rank.
        """
        verdict = self.judge(request, now, self.pool_named(job.pool))
        if request.seconds.total_s > job.request.seconds.total_s:
            return replace(verdict, rank=max(job.rank, verdict.rank))
        return replace(verdict, admitted=True, reason="", retry_after_s=0.0, rank=job.rank)

    def _judged(self, request: JobRequest, key: Key) -> Key:
        """The place up to which work counts against a job: what is due until it should have ended, not only begun."""
        return (key[0] + request.seconds.total_s, key[1], key[2]) if self._policy.sheds else key

    def _wait_s(self, request: JobRequest, pool: PoolConfig, key: Key, near: Backlog) -> float:
        return self._forecast.wait_s(pool.name, request.model, key, near, request.seconds)

    def _limit_s(self, request: JobRequest, pool: PoolConfig, key: Key) -> float:
        """The level for a job of this length, less a part of what its tenant's jobs ahead cost the other tenants.

        Who keeps others waiting is turned away the sooner: jobs that are put off for the sake of shares are late if
        there are many of them.
        """
        level_s = pool.max_backlog_s * pool.headroom(request.seconds.total_s)
        if not self._policy.sheds:
            return level_s
        crowding = crowding_s(self._config, self._book, request, key, self._fleet.live)
        return max(0.0, level_s - _CROWDING * crowding)

    def _refusal(
        self, request: JobRequest, pool: PoolConfig, verdict: Verdict, near: Backlog | None, now: float
    ) -> str:
        if request.seconds.total_s > pool.max_job_s:
            return "TOO_LONG"
        if verdict.missing and self._are_long_gone(verdict.missing, request.model, now):
            return "NO_WORKER"
        if len(self._book.jobs) >= self._config.max_queued_jobs:
            return "QUEUE_FULL"
        if self._policy.sheds and verdict.backlog_s > verdict.limit_s:
            return "OVERLOADED"
        if request.deadline_s is not None and verdict.wait_s is not None and near is not None:
            finish_s = now + near.finish_s(request.seconds, verdict.wait_s)
            if finish_s > request.deadline_s:
                return "DEADLINE_UNREACHABLE"
        return ""

    def _are_long_gone(self, stages: Sequence[Stage], model: str, now: float) -> bool:
        """Whether a stage has been without workers for so long that its jobs are not to wait for any."""
        since_s = now - self._config.absence_grace_s
        return any(self._reach.left_s(stage, model) < since_s for stage in stages)

    def _retry_after_s(self, request: JobRequest, reason: str, verdict: Verdict, key: Key) -> float:
        """Predicted seconds until the job would be admitted if nobody else came; 0 where waiting is no help."""
        if reason == "OVERLOADED":
            return self._overload_ends_s(request, verdict, key)
        if reason == "QUEUE_FULL":
            return self._next_finish_s(request, verdict)
        return 0.0

    def _overload_ends_s(self, request: JobRequest, verdict: Verdict, key: Key) -> float:
        """Each worker runs a second of the backlog a second, but a job that comes later also ranks later.

        So the least `t` with `A(key + t) - t ≤ limit`, found from below; `A` bounds it.
        """
        later_s = verdict.backlog_s - verdict.limit_s
        for _ in range(_RETRY_ROUNDS):
            place = (key[0] + later_s, key[1], key[2])
            next_s = self._backlogs.ahead(verdict.pool, request.model, place).worst_s - verdict.limit_s
            if next_s <= later_s:
                return later_s
            later_s = next_s
        return self._backlogs.ahead(verdict.pool, request.model, (inf, "", 0)).worst_s - verdict.limit_s

    def _next_finish_s(self, request: JobRequest, verdict: Verdict) -> float:
        """The mean time between two finishes of the jobs there are."""
        _, speed, _ = self._reach.speeds(verdict.pool, request.model)
        return self._book.unrun_s / len(self._book.jobs) / speed
