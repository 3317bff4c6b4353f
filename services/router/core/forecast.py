"""Predicts when a denoise would start if no other job arrived: jobs ahead go to the first free denoiser in turn."""

from heapq import heapify, heapreplace, merge

from services.router.core.config import SchedulerConfig
from services.router.core.job import Stage, StageSeconds
from services.router.core.jobs import JobTable, Seconds
from services.router.core.ranking import Key
from services.router.core.workers import Worker, Workers

_MOST_JOBS = 64
"""Beyond this number of waiting jobs the backlog, spread evenly, stands for them."""


class Forecast:
    """Predicts starts from the table and the workers as they are."""

    def __init__(self, config: SchedulerConfig, table: JobTable, workers: Workers) -> None:
        self._preempts = config.rules.preempts
        self._table = table
        self._workers = workers

    def wait_s(self, pool: str, model: str, key: Key, ahead: Seconds, seconds: StageSeconds) -> float:
        """Return the seconds until the denoise of a job at `key` starts.

        `ahead` is the backlog ahead of it by stage, `seconds` what it has to run itself.
        """
        return max(ahead[0] + seconds.encode_s, self._denoiser_s(pool, model, key, ahead[1]))

    def _denoiser_s(self, pool: str, model: str, key: Key, ahead_s: float) -> float:
        shared = self._workers.shared(Stage.DENOISE, pool, model)
        waiting = self._waiting(pool, model, key)
        borrowed = [w for w in self._workers.borrowable(pool, model) if w not in shared and not self._is_wanted(w)]
        levels = [self._free_s(worker, key) for worker in shared] + [worker.load_s for worker in borrowed]
        if not levels:
            return 0.0
        if len(waiting) > _MOST_JOBS:
            return max(min(levels), ahead_s)
        pace = len(shared) / self._workers.speed(Stage.DENOISE, pool, model) if shared else 1.0
        heapify(levels)
        for _, job_id in waiting:
            job = self._table.jobs[job_id]
            heapreplace(levels, levels[0] + pace * job.remaining(job.denoise))
        return levels[0]

    def _waiting(self, pool: str, model: str, key: Key) -> list[tuple[float, str]]:
        """Return rank and id of the jobs that wait ahead of `key` for the same denoisers, at most one too many."""
        queues = [
            queue.waiting[: _MOST_JOBS + 1]
            for queue in self._table.queues.values()
            if queue.waiting and queue.waiting[0] < key
            if self._workers.overlaps(pool, model, *queue.key)[1] > 0
        ]
        return [(rank, job_id) for rank, job_id, _ in merge(*queues) if (rank, job_id) < key[:2]][: _MOST_JOBS + 1]

    def _is_wanted(self, worker: Worker) -> bool:
        """Whether jobs wait whose own the worker is."""
        queues = [queue for queue in self._table.queues.values() if queue.waiting]
        return any(worker in self._workers.own(*queue.key) for queue in queues)

    def _free_s(self, worker: Worker, key: Key) -> float:
        """Return the seconds until the worker would take a job at `key` if no other waited."""
        if not self._preempts:
            return worker.load_s
        by_rank = sorted((job.key, job.remaining(task)) for task, job in worker.running.items())
        ahead_s = sum(seconds for rank, seconds in by_rank if rank < key)
        if by_rank and not worker.open:
            ahead_s = max(ahead_s, by_rank[0][1])  # what has the device leaves first
        return worker.slowdown * ahead_s
