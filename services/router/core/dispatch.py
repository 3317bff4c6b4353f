"""Who runs what next: the best-ranked task that can start, on the worker that would finish it soonest."""

from collections.abc import Callable, Iterable

from services.router.core.actions import StartTask
from services.router.core.book import Book
from services.router.core.config import PoolConfig, SchedulerConfig
from services.router.core.fleet import Fleet, Group
from services.router.core.job import Stage
from services.router.core.lane import Lane
from services.router.core.policy import POLICIES
from services.router.core.record import JobRecord, Key
from services.router.core.task import TaskRecord, TaskState
from services.router.core.worker import WorkerRecord

_Candidates = Callable[[JobRecord, TaskRecord], Iterable[WorkerRecord]]


class Dispatch:
    """Starts tasks: books them, gives them to workers, and says so in actions."""

    def __init__(self, config: SchedulerConfig, pools: Iterable[PoolConfig], book: Book, fleet: Fleet) -> None:
        self._config = config
        self._policy = POLICIES[config.policy]
        self._pools = {pool.name: pool for pool in pools}
        self._book = book
        self._fleet = fleet

    def run(self) -> list[StartTask]:
        """Start whatever can be started now."""
        started = self._fill(Stage.DECODE, self._any_with_room)
        started += self._fill(Stage.DENOISE, self._own_idle)
        started += self._fill(Stage.DENOISE, self._borrowed_idle)
        if self._policy.overtakes:
            started += self._fill(Stage.DENOISE, self._overtaken)
        started += self._fill(Stage.ENCODE, self._any_with_room)
        return started

    def _fill(self, stage: Stage, candidates: _Candidates) -> list[StartTask]:
        """Start tasks of a stage in the order of ranks until no lane's first task finds a worker."""
        started: list[StartTask] = []
        reserved: set[str] = set()
        heads = [lane for lane in self._book.lanes.values() if self._may_start(lane, stage)]
        while heads:
            lane = min(heads, key=lambda lane: lane.startable[stage][0])
            job, record = self._first(lane, stage)
            free = (worker for worker in candidates(job, record) if worker.worker_id not in reserved)
            worker = min(free, key=lambda worker: _preference(worker, job), default=None)
            if worker is not None:
                started.append(self._start(job, record, worker))
                heads = [lane for lane in heads if self._may_start(lane, stage)]
                continue
            heads.remove(lane)
            if record.suspect:  # it needs a worker to itself: let one run empty
                suited = self._fleet.suited(Group(stage, job.pool, job.request.model))
                reserved.update(worker.worker_id for worker in suited)
        return started

    def _may_start(self, lane: Lane, stage: Stage) -> bool:
        """Whether the lane has a task of the stage to start, and is allowed to."""
        if not lane.startable[stage]:
            return False
        if stage is Stage.ENCODE:
            rank, job_id, _ = lane.startable[stage][0]
            return lane.position((rank, job_id, 0)) < self._config.encode_ahead_jobs
        return stage is Stage.DECODE or not (lane.key.is_long and self._long_are_enough(lane))

    def _long_are_enough(self, lane: Lane) -> bool:
        most = self._pools[lane.key.pool].max_long_running
        if most is None:
            return False
        lanes = [other for other in self._book.lanes.values() if other.key.is_long and other.key.pool == lane.key.pool]
        return sum(other.denoising for other in lanes) >= most

    def _first(self, lane: Lane, stage: Stage) -> tuple[JobRecord, TaskRecord]:
        _, job_id, output_index = lane.startable[stage][0]
        job = self._book.jobs[job_id]
        if stage is Stage.DECODE:
            return job, job.decodes[output_index]
        return job, job.encode if stage is Stage.ENCODE else job.denoise

    def _start(self, job: JobRecord, record: TaskRecord, worker: WorkerRecord) -> StartTask:
        stage = record.task.stage
        finished: frozenset[int] = frozenset()
        if stage is Stage.DENOISE:
            job.attempt += 1
            finished = job.covered
            job.targets = set(range(len(job.decodes))) - finished
            record.share = len(job.targets) / len(job.decodes)
        self._book.move(job, record, TaskState.RUNNING)
        self._fleet.give(worker, record)
        attempt = job.attempt + 1 if stage is Stage.ENCODE else job.attempt
        return StartTask(record.task, worker.worker_id, job.rank, attempt, finished)

    def _any_with_room(self, job: JobRecord, record: TaskRecord) -> Iterable[WorkerRecord]:
        workers = self._fleet.capable(record.task.stage, job.request.model)
        return (worker for worker in workers if worker.has_room(record))

    def _own_idle(self, job: JobRecord, record: TaskRecord) -> Iterable[WorkerRecord]:
        workers = self._fleet.suited(Group(Stage.DENOISE, job.pool, job.request.model))
        return (worker for worker in workers if worker.idle and worker.has_room(record))

    def _borrowed_idle(self, job: JobRecord, record: TaskRecord) -> Iterable[WorkerRecord]:
        """Idle denoisers of other pools. They have no work of their own: that was started before."""
        borrow = self._pools[job.pool].borrow
        if borrow == "none":
            return ()
        slots = 2 if borrow == "preemptible" else 1
        workers = self._fleet.capable(Stage.DENOISE, job.request.model)
        return (worker for worker in workers if worker.idle and worker.info.slots >= slots)

    def _overtaken(self, job: JobRecord, record: TaskRecord) -> Iterable[WorkerRecord]:
        """Busy denoisers all of whose jobs rank behind."""
        workers = self._fleet.suited(Group(Stage.DENOISE, job.pool, job.request.model))
        return (
            worker
            for worker in workers
            if worker.has_room(record) and all(job.key < self._key(task.job_id) for task in worker.running)
        )

    def _key(self, job_id: str) -> Key:
        return self._book.jobs[job_id].key


def _preference(worker: WorkerRecord, job: JobRecord) -> tuple[bool, float, str]:
    return (job.request.model not in worker.info.resident, worker.load_s, worker.worker_id)
