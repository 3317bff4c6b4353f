"""Read-only views of the scheduler: for a fleet page, for a job's place in the queue."""

from bisect import bisect_left
from dataclasses import dataclass

from services.router.core.admission import Backlog
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.forecast import Forecast
from services.router.core.job import Stage, StageSeconds, Task
from services.router.core.jobs import Job, JobTable
from services.router.core.workers import Workers


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool: jobs that wait for a denoiser, jobs past that, and remaining seconds of all of them per reserved worker.

    `backlog_s` is of the denoise stage; a pool without workers of its own counts as having one. `max_backlog_s` is
    None where admission scales with the job. `borrowable` counts the idle workers of other pools that it may borrow.
    """

    name: str
    queued: int
    running: int
    backlog_s: float
    max_backlog_s: float | None
    workers: int
    borrowable: int


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: `remaining_s` estimated seconds until what it runs is done, at its `slowdown`, the seconds that its
    tasks take per second estimated; `pool` is "" for encoders and decoders.
    """

    worker_id: str
    stage: Stage
    pool: str
    ready: bool
    slots: int
    remaining_s: float
    slowdown: float
    running: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that is not over.

    `position` counts the waiting jobs of its pool that rank ahead, `wait_s` predicts the seconds until its denoise
    starts; both are 0 once it does. `remaining_s` is of all stages, `denoise_s` the denoise's part of it; `running` are
    its tasks that run now.
    """

    job_id: str
    pool: str
    rank: float
    attempt: int
    queued: bool
    position: int
    wait_s: float
    remaining_s: float
    denoise_s: float
    running: tuple[Task, ...]


class Views:
    """Makes views from the table and the workers."""

    def __init__(self, config: SchedulerConfig, table: JobTable, workers: Workers) -> None:
        self._config = config
        self._table = table
        self._workers = workers
        self._forecast = Forecast(config, table, workers)

    def job(self, job_id: str) -> JobView | None:
        """Return a job that is not over, None if it is unknown or over."""
        job = self._table.jobs.get(job_id)
        if job is None:
            return None
        remaining_s = job.remaining_s
        order = list(Stage)
        return JobView(
            job_id=job_id,
            pool=job.pool,
            rank=job.rank,
            attempt=job.attempt,
            queued=job.waits,
            position=self._position(job) if job.waits else 0,
            wait_s=self._wait_s(job) if job.waits else 0.0,
            remaining_s=sum(remaining_s),
            denoise_s=remaining_s[1],
            running=tuple(sorted(job.calls, key=lambda task: (order.index(task.stage), task.output_index))),
        )

    def pools(self) -> tuple[PoolView, ...]:
        """Return the pools, in the order of the configuration."""
        return tuple(self._pool(pool) for pool in self._config.pools_in_force)

    def workers(self) -> tuple[WorkerView, ...]:
        """Return the workers, by id."""
        return tuple(
            WorkerView(
                worker_id=worker_id,
                stage=worker.info.stage,
                pool=worker.pool,
                ready=worker.info.ready,
                slots=worker.info.slots,
                remaining_s=worker.load_s,
                slowdown=worker.slowdown,
                running=tuple(worker.running),
            )
            for worker_id, worker in sorted(self._workers.by_id.items())
        )

    def _position(self, job: Job) -> int:
        queues = [queue for queue in self._table.queues.values() if queue.key.pool == job.pool]
        return sum(bisect_left(queue.waiting, job.key) for queue in queues)

    def _wait_s(self, job: Job) -> float:
        model = job.request.model
        ahead = Backlog(self._table, self._workers, job.pool, model).ahead(job.key)
        return self._forecast.wait_s(job.pool, model, job.key, ahead, StageSeconds(*job.remaining_s))

    def _pool(self, pool: PoolConfig) -> PoolView:
        queues = [queue for queue in self._table.queues.values() if queue.key.pool == pool.name]
        queued = sum(len(queue.waiting) for queue in queues)
        denoisers = self._workers.of_stage(Stage.DENOISE)
        workers = sum(worker.info.ready and worker.pool == pool.name for worker in denoisers)
        models = {model for worker in denoisers for model in worker.info.models}
        lent = {worker for model in models for worker in self._workers.borrowable(pool.name, model)}
        return PoolView(
            name=pool.name,
            queued=queued,
            running=sum(len(queue.backlog) for queue in queues) - queued,
            backlog_s=sum(queue.backlog.total()[1] for queue in queues) / max(1, workers),
            max_backlog_s=pool.max_backlog_s,
            workers=workers,
            borrowable=sum(worker.idle for worker in lent),
        )
