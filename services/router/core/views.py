"""What may be read of the scheduler: for a fleet page, for a job's place in the queue."""

from collections.abc import Sequence
from dataclasses import dataclass

from services.router.core.backlog import Backlogs
from services.router.core.book import Book
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.fleet import Fleet
from services.router.core.forecast import Forecast
from services.router.core.job import Stage, StageSeconds, Task
from services.router.core.task import TaskState


@dataclass(frozen=True, slots=True)
class PoolView:
    """A pool: jobs that wait for a denoiser, jobs past that, and unrun seconds of all of them per reserved worker.

    `backlog_s` is of the denoise stage; a pool without workers of its own counts as having one. `borrowable` counts the
    idle workers of other pools that it may borrow.
    """

    name: str
    queued: int
    running: int
    backlog_s: float
    max_backlog_s: float
    workers: int
    borrowable: int


@dataclass(frozen=True, slots=True)
class WorkerView:
    """A worker: `unrun_s` estimated seconds until what it runs is done, at its `pace`, the seconds that it takes per
    second estimated; `pool` is "" for encoders and decoders.
    """

    worker_id: str
    stage: Stage
    pool: str
    ready: bool
    slots: int
    unrun_s: float
    pace: float
    running: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class JobView:
    """A job that is not over.

    `position` counts the waiting jobs of its pool that rank ahead, `wait_s` predicts the seconds until its denoise
    starts; both are 0 once it does. `unrun_s` is of all stages, `denoise_s` the denoise's part of it; `running` are
    its tasks that run now.
    """

    job_id: str
    pool: str
    rank: float
    attempt: int
    queued: bool
    position: int
    wait_s: float
    unrun_s: float
    denoise_s: float
    running: tuple[Task, ...]


class Views:
    """Makes the views from the book and the fleet."""

    def __init__(self, config: SchedulerConfig, pools: Sequence[PoolConfig], book: Book, fleet: Fleet) -> None:
        self._pools = pools
        self._book = book
        self._fleet = fleet
        self._backlogs = Backlogs(book, fleet.reach)
        self._forecast = Forecast(config, book, fleet)

    def job(self, job_id: str) -> JobView | None:
        job = self._book.jobs.get(job_id)
        if job is None:
            return None
        position, wait_s = 0, 0.0
        if job.queued:
            model = job.request.model
            position = self._backlogs.position(job.pool, job.key)
            backlog = self._backlogs.ahead(job.pool, model, job.key)
            wait_s = self._forecast.wait_s(job.pool, model, job.key, backlog, StageSeconds(*job.unrun))
        running = tuple(record.task for record in job.tasks if record.state is TaskState.RUNNING)
        unrun = job.unrun
        return JobView(
            job_id=job_id,
            pool=job.pool,
            rank=job.rank,
            attempt=job.attempt,
            queued=job.queued,
            position=position,
            wait_s=wait_s,
            unrun_s=sum(unrun),
            denoise_s=unrun[1],
            running=running,
        )

    def pools(self) -> tuple[PoolView, ...]:
        return tuple(self._pool(pool) for pool in self._pools)

    def _pool(self, pool: PoolConfig) -> PoolView:
        lanes = [lane for lane in self._book.lanes.values() if lane.key.pool == pool.name]
        queued = sum(len(lane.queued) for lane in lanes)
        workers = sum(w.info.ready and w.pool == pool.name for w in self._fleet.of_stage(Stage.DENOISE))
        return PoolView(
            name=pool.name,
            queued=queued,
            running=sum(lane.job_count for lane in lanes) - queued,
            backlog_s=sum(lane.ledger.total()[1] for lane in lanes) / max(1, workers),
            max_backlog_s=pool.max_backlog_s,
            workers=workers,
            borrowable=self._borrowable(pool),
        )

    def _borrowable(self, pool: PoolConfig) -> int:
        models = {model for worker in self._fleet.of_stage(Stage.DENOISE) for model in worker.info.models}
        cohorts = {cohort for model in models for cohort in self._fleet.reach.borrowable(pool.name, model)}
        return sum(len(cohort.idle) for cohort in cohorts)

    def workers(self) -> tuple[WorkerView, ...]:
        return tuple(
            WorkerView(
                worker_id=worker_id,
                stage=worker.info.stage,
                pool=worker.pool,
                ready=worker.info.ready,
                slots=worker.info.slots,
                unrun_s=worker.load_s,
                pace=worker.pace.ratio,
                running=tuple(worker.running),
            )
            for worker_id, worker in sorted(self._fleet.workers.items())
        )
